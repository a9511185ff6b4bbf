"""JupyterLab as `make lab` starts it: the address that it prints opens lesson 00, whose links lead
on.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from nbformat import v4

from docs.book.lesson_pages import METADATA
from proflab.display import Notice, Table
from proflab.lessons import lessons
from proflab.showing import Picture
from tests.browser.lab import (
    choose,
    console_errors,
    open_notebook,
    running_lab,
    set_size,
    shipped_settings,
    trust,
    wait_for,
    write_settings,
)
from tests.browser.test_viewer import drawn, pixel, press, said, timeline
from tidyprof import plots

ROOM = 0.7
"""Share of a name that has to show: the longest name of a lesson is then cut within its last
word.
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address that JupyterLab prints."""
    with running_lab(tmp_path) as printed:
        yield printed


def test_the_printed_address_opens_lesson_00_and_its_links_lead_on(
    address: str, browser: Any
) -> None:
    browser.get(address)
    title = "return document.querySelector('.jp-Notebook h1')?.innerText"
    assert "can I trust my setup" in wait_for(browser, lambda: browser.execute_script(title))
    link = (
        "return [...document.querySelectorAll('.jp-Notebook a')].find(a => a.innerText ==="
        " 'Course')"
    )
    browser.execute_script(
        "arguments[0].click()", wait_for(browser, lambda: browser.execute_script(link))
    )
    opened = (
        "return [...document.querySelectorAll('.lm-TabBar-tabLabel')].map(tab => tab.innerText)"
    )
    wait_for(browser, lambda: "README.md" in browser.execute_script(opened))


@pytest.mark.long
def test_the_names_of_lessons_have_room_in_the_file_browser(
    tmp_path: Path, address: str, browser: Any
) -> None:
    write_settings(tmp_path, shipped_settings())
    set_size(browser, 1280)
    browser.get(address)
    # How much of each name, with its ending, there is room for.
    rooms = """return Object.fromEntries([...document.querySelectorAll('.jp-DirListing-itemText')]
        .map(name => [name.innerText, name.clientWidth / name.scrollWidth]))"""
    known = {f"{lesson.folder.name}.ipynb" for lesson in lessons().values()}
    found = wait_for(
        browser, lambda: known <= {*(rooms_now := browser.execute_script(rooms))} and rooms_now
    )
    assert [name for name in known if found[name] < ROOM] == []


LIGHT_BOXES = """
const light = color => color.match(/[\\d.]+/g).map(Number).reduce((sum, value, place) =>
    place < 3 ? sum + value / 3 : sum * (value > 0), 0) > 128;
return [...document.querySelectorAll('.jp-OutputArea-output, .jp-OutputArea-output *')]
    .filter(box => box.checkVisibility() && light(getComputedStyle(box).backgroundColor))
    .map(box => box.outerHTML.slice(0, 120));
"""
"""What has a light ground in an output."""

PICTURES = (
    "return [...document.querySelectorAll('img')].filter(one => one.checkVisibility()).map(one =>"
    " one.className)"
)


@pytest.mark.long
@pytest.mark.parametrize(("theme", "trusted"), [("dark", True), ("light", True), ("dark", False)])
def test_outputs_are_as_dark_as_the_page(
    theme: str, trusted: bool, tmp_path: Path, browser: Any
) -> None:
    root, home = tmp_path / "root", tmp_path / "home"
    (root / "notebooks").mkdir(parents=True)
    notice, table = (
        Notice("Not yet right", "`ms`, not `us`", "wrong", code="a = 1"),
        Table("Two", ("a", "b"), [("1", "2")]),
    )
    steps = pd.DataFrame({"step": [0, 1], "duration_ns": [1_000_000, 2_000_000]})
    steps.attrs["origin"] = "modelled: by hand"
    shown = (notice, table, Picture(plots.step_times(steps)))
    outputs = [v4.new_output("display_data", {"text/html": item._repr_html_()}) for item in shown]
    path = root / "notebooks/outputs.ipynb"
    nbformat.write(
        v4.new_notebook(cells=[v4.new_code_cell("show()", outputs=outputs, execution_count=1)]),
        path,
    )
    choose(home, theme)
    if trusted:
        trust(home, path)
    with running_lab(home, root) as address:
        open_notebook(browser, address, "notebooks/outputs.ipynb", root)
        assert wait_for(browser, lambda: browser.execute_script(PICTURES)) == [
            "tidy-dark" if (theme, trusted) == ("dark", True) else "tidy-light"
        ]
        boxes = browser.execute_script(LIGHT_BOXES)
    assert bool(boxes) == (theme == "light")


@pytest.mark.long
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_viewer_of_a_figure_is_as_dark_as_the_page_and_has_its_keys(
    theme: str, tmp_path: Path, browser: Any
) -> None:
    root, home = tmp_path / "root", tmp_path / "home"
    (root / "notebooks").mkdir(parents=True)
    output = v4.new_output("display_data", {"text/html": Picture(timeline())._repr_html_()})
    cells = [v4.new_code_cell("show()", outputs=[output], execution_count=1)]
    path = root / "notebooks/viewer.ipynb"
    nbformat.write(
        v4.new_notebook(metadata=METADATA, cells=[*cells, v4.new_code_cell("second = 2")]), path
    )
    choose(home, theme)
    trust(home, path)
    with running_lab(home, root) as address:
        open_notebook(browser, address, "notebooks/viewer.ipynb", root)
        button = ".tidy-viewer > button"
        wait_for(browser, lambda: browser.find_elements("css selector", button))
        browser.find_element("css selector", button).click()
        press(browser, *"nn++")
        begin, end = drawn(browser)
        assert end - begin == 10_000_000
        assert said(browser).startswith("ProfilerStep#7")
        assert (sum(pixel(browser, 0.5, 15)) < 150) == (theme == "dark")
        active = ".jp-Cell.jp-mod-active .cm-content"
        assert "show()" in browser.find_element("css selector", active).text
        assert console_errors(browser) == []
        browser.save_screenshot(str(tmp_path / f"{theme}.png"))
