"""The viewer that opens from a figure: one kernel among many is found, seen and named, by keys, by
pointer and by screen reader, from a file and without a network.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proflab.showing import Picture
from tests.browser.lab import console_errors
from tests.browser.pages import LOOKS, barriers, hard_to_read, overhang, show
from tidyprof import plots
from tidyprof.plots import TidyFigure
from tidyprof_tests.analyses.test_analyses import event, host_step, profile_of
from tidyprof_tests.plots.test_plot_counters import profile_of as counted
from tidyprof_tests.plots.test_plot_memory import history, phases

KERNELS = 1_511
STREAM = 3
"""Lanes are: steps, ranges, operators, stream."""

HOSTILE = "</script><script>window.broken=1</script><img src=x onerror='window.broken=2'>"

THEME = """
:root { color-scheme: light dark } body { font-family: sans-serif; margin: 8px }
img { height: auto }
@media (prefers-color-scheme: dark) { body { background: #111; color: #eee } }
"""


def timeline(names: Callable[[int], str] = "kernel_{}".format) -> TidyFigure:
    """A step of 40 ms with so many kernels, 2 µs long with 20 µs from one to the next."""
    rows = [host_step(7, 0, 40_000_000), event("annotation", "forward", 0, 20_000_000)]
    rows += [event("operator", "aten::mm", 1_000, 19_000_000)]
    rows += [
        event(
            "kernel", names(n), 20_000 * n + 9_000, 20_000 * n + 11_000, device=0, launch_ns=n * 100
        )
        for n in range(KERNELS)
    ]
    return plots.timeline(profile_of(*rows), title="A step of 1,511 kernels")


def page(tmp_path: Path, *figures: TidyFigure) -> str:
    """The address of a page with these figures, as a file."""
    shown = "".join(Picture(figure)._repr_html_() for figure in figures)
    path = tmp_path / "page.html"
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Figures</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{THEME}</style></head><body><main><h1>Figures</h1>{shown}</main></body></html>",
        encoding="utf-8",
    )
    return path.as_uri()


def opened(browser: Any, address: str, scheme: str = "light", width: int = 1280) -> Any:
    """The stage of the first viewer of a page, after its button was pressed by key."""
    console_errors(browser)  # of other pages
    show(browser, address, scheme, width)
    browser.find_element("css selector", ".tidy-viewer > button").send_keys("\n")
    return stage(browser)


def stage(browser: Any) -> Any:
    return browser.find_element("css selector", ".tv-stage")


def drawn(browser: Any) -> tuple[float, float]:
    """From where to where the view reaches, once what was asked for is drawn."""
    browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")
    return tuple(json.loads(stage(browser).get_attribute("data-view")))


def said(browser: Any) -> str:
    return browser.find_element("css selector", ".tv-said").text


def press(browser: Any, *keys: str) -> None:
    for key in keys:
        stage(browser).send_keys(key)


def pixel(browser: Any, share: float, y: float) -> list[int]:
    """Red, green and blue at a place of the canvas: share of its width, pixels from its top."""
    return browser.execute_script(
        "const canvas = document.querySelector('.tv-stage canvas');"
        "return [...canvas.getContext('2d').getImageData(canvas.width * arguments[0],"
        " arguments[1], 1, 1).data].slice(0, 3)",
        share,
        y,
    )


def move_to(browser: Any, share: float, y: float) -> Any:
    """The pointer over the canvas; returns what goes on from there."""
    from selenium.webdriver.common.action_chains import ActionChains

    box = browser.find_element("css selector", ".tv-stage canvas")
    x, middle = box.size["width"] * (share - 0.5), box.size["height"] / 2
    actions = ActionChains(browser).move_to_element_with_offset(box, round(x), round(y - middle))
    actions.perform()
    return ActionChains(browser)


LANE, FIRST = 44, 51
"""Pixels from lane to lane, and from the top to the bars of the first."""


def bar(lane: int) -> int:
    """Pixels from the top of the canvas to the middle of a lane's bars."""
    return FIRST + 11 + LANE * lane


def test_one_kernel_of_1511_is_reached_by_keys_fills_the_width_and_is_named(
    tmp_path: Path, browser: Any
) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, page(tmp_path, timeline()))
    begin, end = drawn(browser)
    assert (begin, end) == (0, 40_000_000)
    press(browser, *[Keys.ARROW_DOWN] * (STREAM + 1), "n", "n", *"+" * 13)
    begin, end = drawn(browser)
    words = said(browser)
    assert words.startswith("kernel_477\n2.00 µs · begins at 9.549 ms")
    assert "launched 9.50 ms earlier · part of ProfilerStep#7, forward" in words
    assert "number 478 of 1,511" in words
    assert 2_000 / (end - begin) * stage(browser).size["width"] > 400
    place = (9_550_000 - begin) / (end - begin)
    assert pixel(browser, place + 0.1, bar(STREAM) + 6) == [0, 0x72, 0xB2]
    press(browser, Keys.ARROW_LEFT)
    moved, _ = drawn(browser)
    assert moved == pytest.approx(begin - 0.2 * (end - begin))
    press(browser, "-", Keys.HOME)
    assert drawn(browser) == (0, 40_000_000)
    assert console_errors(browser) == []


def test_a_pointer_names_what_lies_under_it_and_zooms_with_ctrl_alone(
    tmp_path: Path, browser: Any
) -> None:
    from selenium.webdriver.common.keys import Keys

    opened(browser, page(tmp_path, timeline()))
    drawn(browser)
    move_to(browser, 0.25, bar(0))
    assert said(browser).startswith("ProfilerStep#7\n40.0 ms")
    move_to(browser, 0.25, bar(2))
    assert said(browser).startswith("aten::mm\n19.0 ms")
    actions = move_to(browser, 0.5, bar(STREAM))
    actions.scroll_by_amount(0, -100).perform()
    assert drawn(browser) == (0, 40_000_000)
    wheel = "arguments[0].dispatchEvent(new WheelEvent('wheel', {deltaY: -120, ctrlKey: true,"
    wheel += " clientX: arguments[1], bubbles: true, cancelable: true}))"
    for _ in range(12):
        assert not browser.execute_script(f"return {wheel}", stage(browser), 600)
    begin, end = drawn(browser)
    assert end - begin < 40_000_000 / 1000
    move_to(browser, 0.5, bar(STREAM)).click_and_hold().move_by_offset(200, 0).release().perform()
    moved, _ = drawn(browser)
    width = stage(browser).size["width"]
    assert moved == pytest.approx(begin - 200 / width * (end - begin), rel=0.01)
    browser.find_element("css selector", ".tv-bar input").send_keys(f"kernel_1510{Keys.ENTER}")
    drawn(browser)
    assert said(browser).startswith("kernel_1510\n2.00 µs")
    assert "1 of 1 found" in said(browser)
    assert console_errors(browser) == []


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_it_can_be_read_by_everybody_in_both_themes_and_on_a_phone(
    scheme: str, width: int, tmp_path: Path, browser: Any
) -> None:
    opened(browser, page(tmp_path, timeline()), scheme, width)
    press(browser, "n", "+")
    drawn(browser)
    dark = scheme == "dark"
    assert (sum(pixel(browser, 0.5, 15)) < 150) == dark
    assert overhang(browser) <= 0
    assert barriers(browser) == []
    texts, hard = hard_to_read(browser, ".tidy-viewer", "[aria-hidden=true], script, style")
    assert texts > 10
    assert hard == []
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('.tv-bar > *')].map(one =>"
        " Math.min(one.offsetWidth, one.offsetHeight))"
    )
    assert min(sizes) >= 24
    assert console_errors(browser) == []


def test_the_theme_may_change_while_it_is_open(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, timeline()))
    drawn(browser)
    assert pixel(browser, 0.5, 15) == [255, 255, 255]
    media = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    drawn(browser)
    assert pixel(browser, 0.5, 15) == [0x11, 0x11, 0x11]


def test_what_is_said_of_the_chosen_is_in_sight_as_soon_as_it_opens(
    tmp_path: Path, browser: Any
) -> None:
    show(browser, page(tmp_path, timeline(), timeline()), "light", 1280)
    browser.execute_script(
        "document.body.style.padding = '900px 0';"
        "const button = document.querySelector('.tidy-viewer > button');"
        "button.scrollIntoView({block: 'end'}); button.click()"
    )
    said = "return document.querySelector('.tv-said').getBoundingClientRect().bottom"
    assert browser.execute_script(said) <= browser.execute_script("return innerHeight")


def test_of_many_rows_the_answer_to_a_click_or_key_is_in_sight_and_so_is_what_is_chosen(
    tmp_path: Path, browser: Any
) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    rows = [
        event("kernel", f"kernel_{n}", 10_000 * n, 10_000 * n + 5_000, device=0, stream=n)
        for n in range(40)
    ]
    opened(browser, page(tmp_path, plots.timeline(profile_of(*rows), title="Forty streams")))
    drawn(browser)
    rows_of = stage(browser)
    assert rows_of.size["height"] < 500
    bottom = "return document.querySelector('.tv-said').getBoundingClientRect().bottom"
    seen = browser.execute_script("return innerHeight")
    ActionChains(browser).move_to_element_with_offset(
        rows_of,
        round(rows_of.size["width"] * (0.5 / 40 - 0.5)),
        bar(0) - rows_of.size["height"] // 2,
    ).click().perform()
    assert said(browser).startswith("kernel_0\n")
    assert browser.execute_script(bottom) <= seen
    press(browser, *[Keys.ARROW_DOWN] * 39)
    drawn(browser)
    assert said(browser).startswith("kernel_39\n")
    assert browser.execute_script(bottom) <= seen
    shown = browser.execute_script("return document.querySelector('.tv-stage').scrollTop")
    assert shown <= bar(39) <= shown + rows_of.size["height"]
    assert pixel(browser, 0.5, shown + 5) == [0, 0x72, 0xB2]  # the axis went with the rows


def test_its_scroll_bar_scrolls_its_rows_and_changes_nothing_else(
    tmp_path: Path, browser: Any
) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    # Each row goes on below the scroll bar once the view is narrower than the whole.
    rows = [event("kernel", f"kernel_{n}", 0, 10_000, device=0, stream=n) for n in range(40)]
    opened(browser, page(tmp_path, plots.timeline(profile_of(*rows), title="Forty streams")))
    press(browser, "n", "+")
    before = drawn(browser), said(browser)
    rows_of = stage(browser)
    high = rows_of.size["height"]
    room = browser.execute_script("return arguments[0].clientWidth", rows_of)
    assert room < rows_of.size["width"], "this browser shows no scroll bar"
    pointer = ActionChains(browser)
    pointer.move_to_element_with_offset(rows_of, room // 2, bar(0) - high // 2)
    pointer.click_and_hold().move_by_offset(0, 60).move_by_offset(-5, 60).release().perform()
    assert browser.execute_script("return arguments[0].scrollTop", rows_of) > 0
    assert (drawn(browser), said(browser)) == before
    ActionChains(browser).double_click().perform()
    assert (drawn(browser), said(browser)) == before


def test_a_curve_tells_the_value_after_each_change_and_its_phase(
    tmp_path: Path, browser: Any
) -> None:
    from selenium.webdriver.common.keys import Keys

    figure = plots.memory(counted(*history()), phases=phases(), title="Two tensors")
    opened(browser, page(tmp_path, figure), "dark", 390)
    press(browser, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert "requested memory" in said(browser)
    press(browser, "n", "n", "n")
    assert said(browser) == (
        "requested memory\n4.00 MiB · −8.00 MiB by this change · change 4 of 4 ·"
        " 900 s after the first · part of backward"
    )
    assert barriers(browser) == []
    assert console_errors(browser) == []


def test_two_fingers_zoom_and_one_moves_and_chooses(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, timeline()), "light", 390)
    drawn(browser)
    box = browser.execute_script(
        "return arguments[0].getBoundingClientRect().toJSON()", stage(browser)
    )
    y = box["y"] + bar(0)

    def touch(kind: str, *xs: float) -> None:
        points = [{"x": box["x"] + x, "y": y, "id": number} for number, x in enumerate(xs)]
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", 100, 200)
    touch("touchMove", 50, 250)
    touch("touchEnd")
    begin, end = drawn(browser)
    assert 40_000_000 / (end - begin) == pytest.approx(2, rel=0.01)
    touch("touchStart", 200)
    touch("touchMove", 180)
    touch("touchMove", 100)
    touch("touchEnd")
    moved, _ = drawn(browser)
    assert (moved - begin) / (end - begin) == pytest.approx(100 / box["width"], rel=0.1)
    touch("touchStart", 200)
    touch("touchEnd")
    assert said(browser).startswith("ProfilerStep#7")


def test_names_can_do_nothing_and_two_viewers_do_not_meet(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, timeline(lambda n: f"{HOSTILE}{n}"), timeline()))
    press(browser, *"nn", "\ue015", "\ue015", "\ue015")
    assert said(browser).startswith(HOSTILE)
    assert browser.execute_script("return [window.broken, document.images.length]") == [None, 4]
    assert len(browser.find_elements("css selector", ".tv-panel")) == 1
    browser.find_elements("css selector", ".tidy-viewer > button")[1].click()
    assert len(browser.find_elements("css selector", ".tv-panel")) == 2
    assert console_errors(browser) == []


def test_without_scripts_the_picture_stands_alone(tmp_path: Path, browser: Any) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, page(tmp_path, timeline()), "light", 1280)
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    box = browser.find_element("css selector", ".tidy-viewer")
    assert (box.size["height"], box.text) == (0, "")
    assert browser.find_element("css selector", "img").is_displayed()


def test_paper_has_the_picture_alone(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, timeline()))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not browser.find_element("css selector", ".tidy-viewer").is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
