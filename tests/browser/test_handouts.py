"""What an instructor prints and shows: the cheat sheet is one page of A4, slides fit the screen and
follow the keys.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from docs.book import handouts
from docs.book.handouts import Slide
from tests.browser.lab import set_size
from tests.browser.pages import slide_faults

LONG = "".join(f"<p>{'word ' * 40}.</p>" for _ in range(9))
"""More than has room on a slide, in the size in which text begins."""

PRESS = (
    "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))"
)
HERE = "return Math.round(scrollY / innerHeight)"


def test_the_cheat_sheet_is_one_page_of_a4(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    monkeypatch.setattr(handouts, "TARGET", tmp_path)
    handouts.write_sheet()
    browser.get(f"file://{tmp_path}/cheat-sheet.html")
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"]
    pages = re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", base64.b64decode(printed))
    assert [tuple(round(float(length) / 72 * 25.4) for length in page) for page in pages] == [
        (210, 297)
    ]


def test_slides_fit_the_screen_and_follow_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, browser: Any
) -> None:
    monkeypatch.setattr(handouts, "TARGET", tmp_path)
    handouts.write_slides(
        "02_tiny", "Tiny", [Slide("One", "short"), Slide("Two", LONG), Slide("Three", "end")]
    )
    set_size(browser, 1280, 720)
    browser.get(f"file://{tmp_path}/02_tiny.html")
    assert [fault.split(":")[0] for fault in slide_faults(browser)] == [
        "1 says nothing",
        "3 says nothing",
    ]
    zooms = (
        "return [...document.querySelectorAll('section > div')].map(content =>"
        " Number(content.style.zoom))"
    )
    first, second, third = browser.execute_script(zooms)
    assert first == third > 1 > second >= 0.75
    places = []
    for key in ("ArrowRight", "PageDown", "ArrowRight", "ArrowLeft"):
        browser.execute_script(
            f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles:"
            " true}))"
        )
        places.append(browser.execute_script(HERE))
    assert places == [1, 2, 2, 1]
