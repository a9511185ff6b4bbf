"""The book in the form of LUMI AI Factory's course template."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.book.contents import contents
from docs.book.course_template import lesson_text, main
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


def test_every_link_leads_to_a_page_or_a_file(site: Path):
    pages = {
        f"/{path.relative_to(site / 'content').with_suffix('')}"
        for path in site.glob("content/**/*.md")
    }
    seen = set()
    for page in site.glob("content/**/*.md"):
        for link in re.findall(r"\]\(([^()\s]+)\)", page.read_text(encoding="utf-8")):
            path = link.partition("#")[0]
            assert not re.search(r"\.(md|ipynb)$", path) or path.startswith("http"), (page, link)
            if path.startswith("/"):
                assert path == "/" or path in pages, (page, link)
                seen.add("page")
            if path.startswith("./"):
                assert (site / "public" / path).is_file(), (page, link)
                seen.add("file")
    assert seen == {"page", "file"}


def test_cells_are_code_with_a_fence_that_they_do_not_end(tmp_path: Path):
    cells = [
        ("markdown", "before"),
        ("markdown", "# One\n"),
        ("code", 'print("```")'),
        ("markdown", "after"),
    ]
    notebook = tmp_path / "00_one.ipynb"
    notebook.write_text(
        json.dumps({"cells": [{"cell_type": kind, "source": [text]} for kind, text in cells]})
    )
    assert lesson_text(notebook) == '# One\n\n\n````python\nprint("```")\n````\n'


def test_another_folder_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error: {tmp_path}: no folder `content` is in it")
    assert list(tmp_path.iterdir()) == []
