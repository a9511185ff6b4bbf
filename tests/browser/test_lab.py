"""JupyterLab as `make lab` starts it: the address that it prints opens lesson 00, whose links lead on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proflab.lessons import lessons
from tests.browser.lab import running_lab, set_size, shipped_settings, wait_for, write_settings

ROOM = 0.7
"""Share of a name that has to show: the longest name of a lesson is then cut within its last word."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address that JupyterLab prints."""
    with running_lab(tmp_path) as printed:
        yield printed


def test_the_printed_address_opens_lesson_00_and_its_links_lead_on(address: str, browser: Any) -> None:
    browser.get(address)
    title = "return document.querySelector('.jp-Notebook h1')?.innerText"
    assert "can I trust my setup" in wait_for(browser, lambda: browser.execute_script(title))
    link = "return [...document.querySelectorAll('.jp-Notebook a')].find(a => a.innerText === 'Course')"
    browser.execute_script("arguments[0].click()", wait_for(browser, lambda: browser.execute_script(link)))
    opened = "return [...document.querySelectorAll('.lm-TabBar-tabLabel')].map(tab => tab.innerText)"
    wait_for(browser, lambda: "README.md" in browser.execute_script(opened))


def test_the_names_of_lessons_have_room_in_the_file_browser(tmp_path: Path, address: str, browser: Any) -> None:
    write_settings(tmp_path, shipped_settings())
    set_size(browser, 1280)
    browser.get(address)
    # How much of each name, with its ending, there is room for.
    rooms = """return Object.fromEntries([...document.querySelectorAll('.jp-DirListing-itemText')]
        .map(name => [name.innerText, name.clientWidth / name.scrollWidth]))"""
    known = {f"{lesson.folder.name}.ipynb" for lesson in lessons().values()}
    found = wait_for(browser, lambda: known <= {*(rooms_now := browser.execute_script(rooms))} and rooms_now)
    assert [name for name in known if found[name] < ROOM] == []
