"""The book in the form of LUMI AI Factory's course template."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.book.contents import contents
from docs.book.course_template import main
from tests.conftest import REPOSITORY

FRONT = re.compile(r"---\n((?:\w+: .*\n)+)---\n")
"""How every page has to begin: one line for each field."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    (folder / "content").mkdir()
    assert main([str(folder)]) == 0
    return folder


def fields(page: Path) -> dict[str, str | int]:
    """The front matter, whose values are JSON and so YAML."""
    lines = FRONT.match(page.read_text(encoding="utf-8"))[1].splitlines()
    return {key: json.loads(value) for key, _, value in (line.partition(": ") for line in lines)}


def test_each_page_of_the_book_is_there_under_a_title_of_its_own(site: Path):
    parts = contents(REPOSITORY)
    wanted = {str(Path(page).with_suffix("")) for part in parts for page in part.pages}
    wanted |= {"index", "lessons", "to-look-up", "for-instructors", "to-carry-it-on", "tidyprof"}
    pages = {
        str(path.relative_to(site / "content").with_suffix("")): path
        for path in site.glob("content/**/*.md")
    }
    assert pages.keys() == wanted
    titles = [fields(path)["title"] for path in pages.values()]
    assert len(set(titles)) == len(titles)
    for path in pages.values():
        own = fields(path)
        assert own.keys() <= {"title", "nav_order", "parent"}
        assert own.get("parent", own["title"]) in titles
    lesson = fields(pages["notebooks/02_torch_profiler_timeline"])
    assert lesson == {"title": "02 Where does a step go?", "parent": "Lessons", "nav_order": 4}
    assert (
        (site / "content/index.md")
        .read_text()
        .partition("---\n\n")[2]
        .startswith("# Profiling PyTorch")
    )
