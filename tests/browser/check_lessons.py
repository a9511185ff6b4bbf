"""The lessons, as they were run, in JupyterLab: no red box on success, nothing too wide, nothing
hard to read.

There are no outputs before the lessons were run, so `make test` asks for this file by its name
afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.book import handouts
from proflab.lessons import lessons
from tests.browser.lab import (
    RED_BOXES,
    THEMES,
    choose,
    console_errors,
    open_notebook,
    running_lab,
    set_size,
    trust,
)
from tests.browser.pages import hard_to_read
from tests.conftest import LONG, REPOSITORY

LESSONS = (
    sorted(path.stem for path in (REPOSITORY / "build/combined").glob("*.ipynb"))
    if LONG
    else ["02_torch_profiler_timeline"]
)
"""In a long run every lesson, else one."""
ALLOWED_TO_SCROLL = 2
"""Pixels by which rounding may make content wider than its box."""

TOO_WIDE_SLIDES = """
const slides = [...document.querySelectorAll('section section')];
slides.forEach(slide => slide.style.setProperty('display', 'block', 'important'));
return slides.filter(slide => slide.scrollWidth > slide.clientWidth || slide.scrollHeight > 720)\
.map(slide => slide.innerText.slice(0, 80));
"""

TOO_WIDE = """
const wide = [...document.querySelectorAll('.jp-OutputArea-output, .jp-MarkdownOutput')]
    .filter(box => box.scrollWidth > box.clientWidth + arguments[0]);
wide[0]?.scrollIntoView();
return wide.map(box => box.scrollWidth + ' in ' + box.clientWidth + ': ' \
+ box.innerText.slice(0, 80));
"""

WRAPPED_CODE = """
const tall = (box, lines) => box.clientHeight > (lines + 0.5) * parseFloat(getComputedStyle(box)\
.lineHeight) + parseFloat(getComputedStyle(box).paddingTop) * 2;
const lines = [...document.querySelectorAll('.jp-CodeCell .cm-line')].filter(line => tall(line, 1));
const blocks = [...document.querySelectorAll('.jp-MarkdownOutput pre')]
    .filter(block => tall(block, block.innerText.trimEnd().split('\\n').length));
const cut = [...document.querySelectorAll('.jp-CodeCell .jp-InputArea .cm-scroller')]
    .filter(box => box.scrollWidth > box.clientWidth + arguments[0]);
return [...lines, ...blocks, ...cut].map(box => box.innerText.slice(0, 80));
"""
"""Lines of code that are wrapped or too wide."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with JupyterLab's settings."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def lab(home: Path) -> Iterator[str]:
    """The address of JupyterLab, with its token."""
    with running_lab(home) as address:
        yield address


@pytest.mark.parametrize(
    ("lesson", "theme"), [(lesson, theme) for lesson in LESSONS for theme in THEMES]
)
def test_a_lesson_fits_its_window_and_can_be_read(
    lesson: str, theme: str, home: Path, lab: str, browser: Any
) -> None:
    path = f"build/combined/{lesson}.ipynb"
    cells = json.loads((REPOSITORY / path).read_text())["cells"]
    assert any(cell.get("outputs") for cell in cells), "the lesson was not run: make lessons"
    choose(home, theme)
    trust(home, REPOSITORY / path)
    open_notebook(browser, lab, path)
    assert browser.execute_script("return document.body.dataset.jpThemeName") == THEMES[theme]
    assert browser.execute_script(RED_BOXES) == []
    assert browser.execute_script(TOO_WIDE, ALLOWED_TO_SCROLL) == []
    assert browser.execute_script(WRAPPED_CODE, ALLOWED_TO_SCROLL) == []
    # JupyterLab's own colors for code are not ours to judge.
    texts, hard = hard_to_read(
        browser, ".jp-OutputArea-output, .jp-MarkdownOutput", "svg, .jp-RenderedMarkdown pre"
    )
    assert texts > len(cells)
    assert hard == []
    assert console_errors(browser) == []


def test_every_core_lesson_has_slides_each_of_which_fits_on_the_screen(browser: Any) -> None:
    assert handouts.main() == 0
    set_size(browser, 1280, 720)
    decks = sorted(handouts.TARGET.glob("[0-9]*.html"))
    assert len(decks) == sum(lesson.core for lesson in lessons().values()) + 1  # the workshop
    for deck in decks:
        browser.get(deck.as_uri())
        assert browser.execute_script(TOO_WIDE_SLIDES) == [], deck.name
