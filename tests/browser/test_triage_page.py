"""The page that `tidyprof triage --html` writes, on a laptop and on a phone, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.pages import LOOKS, barriers, overhang, show
from tests.browser.test_viewer import opened
from tests.conftest import REPOSITORY
from tidyprof.cli.main import main

_PICTURES = """
return [...document.querySelectorAll('figure svg')].filter(one => one.checkVisibility())\
.map(one => {
    const natural = one.width.baseVal.valueInSpecifiedUnits * 96 / 72;
    const scale = one.getBoundingClientRect().width / natural;
    const named = one.closest('[aria-labelledby]');
    const title = document.getElementById(named.getAttribute('aria-labelledby'));
    return [scale, title.textContent, title.getBoundingClientRect().right];
});
"""
"""Of each picture that is seen: its size against the one that it was drawn in, where letters have
10 points, and its title with its right end.
"""

LEAST_LETTERS = 10 * 96 / 72 * 0.75
MOST_LETTERS = 16
"""Pixels of a picture's letters; those of the text have 16."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("triage") / "page.html"
    recording = REPOSITORY / "recordings/modelled-rank-skew/torch"
    assert main(["triage", str(recording), "--html", str(target)]) == 0
    return target


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_the_page_can_be_read_by_everybody_and_fits_its_window(
    scheme: str, width: int, page: Path, browser: Any
):
    show(browser, page.as_uri(), scheme, width)
    assert browser.execute_script("return document.querySelector('meta[name=viewport]').content")
    assert overhang(browser) <= 0
    assert barriers(browser) == []


@pytest.mark.parametrize("width", sorted({width for _, width in LOOKS}))
def test_each_picture_has_a_title_and_letters_as_large_as_the_text_at_most(
    width: int, page: Path, browser: Any
):
    show(browser, page.as_uri(), "light", width)
    pictures = browser.execute_script(_PICTURES)
    assert len(pictures) == 4
    assert len({title for _, title, _ in pictures}) == 4
    text = browser.execute_script(
        "return document.querySelector('dl').getBoundingClientRect().width"
    )
    for scale, title, right in pictures:
        if width == 1280:
            assert scale * 816 == pytest.approx(text, abs=1), "as wide as the text"
        assert title
        assert right <= width
        assert LEAST_LETTERS <= 10 * 96 / 72 * scale <= MOST_LETTERS


def test_the_viewer_is_called_as_its_picture(page: Path, browser: Any):
    label = opened(browser, page.as_uri()).get_attribute("aria-label")
    assert label.startswith("The longest of the judged steps, of rank ")


@pytest.mark.parametrize("width", sorted({width for _, width in LOOKS}))
def test_a_picture_that_is_wider_than_its_box_says_so(width: int, page: Path, browser: Any):
    show(browser, page.as_uri(), "light", width)
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('figure > .light')].map(one =>"
        " [one.scrollWidth > one.clientWidth, getComputedStyle(one, '::before').content])"
    )
    assert len(boxes) == 4
    assert all(wider == ("scroll" in said) for wider, said in boxes)
