"""The viewer that replaces a figure: one kernel among many is found, seen and named, its launch is
one key away, and a range is summed, by keys and by pointer, from a file and without a network.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proflab.showing import Picture
from tests.browser.lab import console_errors
from tests.browser.pages import show
from tidyprof import plots
from tidyprof.plots import TidyFigure
from tidyprof_tests.analyses.test_analyses import event, host_step, profile_of

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
    assert words.startswith("kernel_477\n2.00 µs · ")
    assert " 9.549 ms" in words
    assert "launched 9.50 ms earlier" in words
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


def test_names_can_do_nothing_and_two_viewers_do_not_meet(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, timeline(lambda n: f"{HOSTILE}{n}"), timeline()))
    press(browser, *"nn", "\ue015", "\ue015", "\ue015")
    assert said(browser).startswith(HOSTILE)
    assert browser.execute_script("return [window.broken, document.images.length]") == [None, 2]
    assert len(browser.find_elements("css selector", ".tv-panel")) == 1
    browser.find_elements("css selector", ".tidy-viewer > button")[1].click()
    assert len(browser.find_elements("css selector", ".tv-panel")) == 2
    assert console_errors(browser) == []


def launching() -> TidyFigure:
    """Two kernels with their launches, which two nested operators contain."""
    return plots.timeline(
        profile_of(
            host_step(7, 0, 1_000_000),
            event("operator", "aten::linear", 100_000, 500_000),
            event("operator", "aten::addmm", 200_000, 400_000),
            event("runtime", "hipLaunchKernel", 220_000, 240_000),
            event("runtime", "hipLaunchKernel", 300_000, 310_000),
            event("kernel", "gemm", 600_000, 700_000, device=0, launch_ns=220_000),
            event("kernel", "add", 700_000, 725_000, device=0, launch_ns=300_000),
        )
    )


def test_one_key_leads_from_a_kernel_to_its_launch_and_back(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, launching()))
    press(browser, "\ue013", "n", "n")
    assert said(browser).startswith("add\n25.0 µs · starts at 0.7 ms · launched 400 µs earlier")
    press(browser, "l")
    assert said(browser).startswith("hipLaunchKernel\n10.0 µs · starts at 0.3 ms")
    press(browser, "l")
    assert said(browser).startswith("add\n")


def test_operators_are_nested_below_their_callers(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, launching()))
    press(browser, *["\ue015"] * 3)
    assert said(browser).startswith("aten::addmm\n200 µs · starts at 0.2 ms · inside aten::linear")
    press(browser, "\ue013")
    assert said(browser).startswith("aten::linear\n")


def test_a_selected_range_is_summed(tmp_path: Path, browser: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    opened(browser, page(tmp_path, launching()))
    press(browser, "m")
    words = said(browser)
    assert "Shown: 1.00 ms" in words
    assert "stream 0 2 125 µs 13%" in words
    assert "hipLaunchKernel 2 30.0 µs 3.0%" in words
    half = stage(browser).size["width"] / 2
    (
        ActionChains(browser)
        .key_down(Keys.SHIFT)
        .move_to_element_with_offset(stage(browser), 0, 0)
        .click_and_hold()
        .move_by_offset(int(half) + 50, 0)
        .release()
        .key_up(Keys.SHIFT)
        .perform()
    )
    assert "gemm 1 100 µs" in said(browser)
    assert "ProfilerStep#7 1 500 µs 100%" in said(browser)
    assert drawn(browser) == (0, 1_000_000)


def test_the_sum_of_a_selected_event_is_that_of_its_time(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, launching()))
    press(browser, *["\ue015"] * 2, "m")
    assert "Selected: 400 µs" in said(browser)
    assert "aten::addmm 1 200 µs 50%" in said(browser)


def test_no_key_leaves_the_viewer_after_a_button_was_clicked(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, launching()))
    browser.execute_script("window.got = []; document.onkeydown = event => got.push(event.key)")
    browser.find_element("css selector", ".tv-bar button").click()
    for _ in range(2):
        browser.switch_to.active_element.send_keys("d")
    assert browser.execute_script("return window.got") == []
    assert drawn(browser) == (450_000, 950_000)


def test_the_keys_of_perfetto_zoom_and_move(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, launching()))
    press(browser, "w")
    assert drawn(browser) == (250_000, 750_000)
    press(browser, "d")
    assert drawn(browser) == (350_000, 850_000)
    press(browser, "a", "s")
    assert drawn(browser) == (0, 1_000_000)


def test_all_hits_are_marked_in_the_whole(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, launching()))
    browser.find_element("css selector", "input[type=search]").send_keys("hipLaunch\n")
    drawn(browser)
    for place in (0.23, 0.305):
        assert pixel(browser, place, 1) == [0xD5, 0x5E, 0]
    press(browser, "\ue00c")
    drawn(browser)
    assert pixel(browser, 0.305, 1) == [255, 255, 255]


def test_the_viewer_replaces_the_figure(tmp_path: Path, browser: Any) -> None:
    opened(browser, page(tmp_path, launching()))
    image = browser.find_element("css selector", "img.tidy-figure")
    assert not image.is_displayed()
    browser.find_element("css selector", ".tidy-viewer > button").click()
    assert image.is_displayed()
    assert not stage(browser).is_displayed()
