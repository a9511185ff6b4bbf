"""Pages stand where their links expect them, a lesson that was not run is refused, and no page
needs the network.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from nbformat import v4, write

from docs.book.__main__ import executed
from docs.book.contents import START
from docs.book.offline import in_page, remote_resources
from docs.book.staging import (
    remove_others,
    stage_page,
    with_address,
    write_if_new,
)
from tests.conftest import REPOSITORY
from tidyprof.errors import UserError


def test_pages_are_staged_where_their_links_expect_them(tmp_path: Path):
    repository, target = tmp_path / "repository", tmp_path / "pages"
    for path, text in {
        "docs/a.md": "[l](../LICENSE) [b](b.md)",
        "docs/b.md": "# B",
        "LICENSE": "MIT",
    }.items():
        write_if_new(repository / path, text)
    stage_page(repository, "docs/a.md", target, ())
    assert {str(path.relative_to(target)) for path in target.rglob("*.*")} == {"docs/a.md"}
    assert (target / "LICENSE").read_text() == "MIT"
    write_if_new(target / "docs/old.md", "# Gone")
    remove_others(target, {"docs/a.md"})
    assert not (target / "docs/old.md").exists()
    assert (target / "docs/a.md").exists()


def test_the_first_page_comes_with_its_picture(tmp_path: Path):
    stage_page(REPOSITORY, START, tmp_path, ())
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", (tmp_path / "index.md").read_text())
    assert pictures
    assert all((tmp_path / picture).is_file() for picture in pictures)


def test_what_lies_beside_the_files_on_the_repositorys_site_is_no_link_in_the_book(tmp_path: Path):
    assert "](../../releases)" in (REPOSITORY / START).read_text()
    stage_page(REPOSITORY, START, tmp_path, ())
    text = (tmp_path / "index.md").read_text()
    assert "](../" not in text
    assert "published book" not in text
    assert "a finished lesson" in text
    assert "[a finished lesson](notebooks/02_torch_profiler_timeline.ipynb)" in text


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ('<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ('<link rel="stylesheet" href="//fonts.example/a.css">', ["//fonts.example/a.css"]),
        ('<img src="http://example/x.png">', ["http://example/x.png"]),
        (
            "<style>@import 'https://example/a.css'; p {color: red}</style>",
            ["https://example/a.css"],
        ),
        ('<div style="background: url(https://example/a.png)"></div>', ["https://example/a.png"]),
        (
            (
                '<a href="https://example">a link</a><img src="data:image/png;base64,aa"><script'
                ' src="_static/x.js">'
            ),
            [],
        ),
    ],
)
def test_what_a_page_loads_from_the_network_is_found(page: str, found: list[str]):
    assert in_page(page) == found


def test_style_sheets_are_searched_too(tmp_path: Path):
    (tmp_path / "a.css").write_text('@font-face {src: url("https://example/a.woff")}')
    (tmp_path / "a.html").write_text("<p>fine</p>")
    assert remote_resources(tmp_path) == ["a.css: https://example/a.woff"]


def test_a_lesson_that_was_not_run_as_it_is_now_is_refused(tmp_path: Path):
    path, wanted = (
        tmp_path / "00_clock.ipynb",
        v4.new_notebook(cells=[v4.new_code_cell("1 + 1", id="lesson-1")]),
    )
    with pytest.raises(UserError, match="in its current form"):
        executed(path, wanted)
    write(wanted, path)
    with pytest.raises(UserError, match="to its end"):
        executed(path, wanted)
    wanted.cells[0].execution_count = 1
    write(wanted, path)
    assert executed(path, wanted) == wanted
    with pytest.raises(UserError, match="in its current form"):
        executed(path, v4.new_notebook(cells=[v4.new_code_cell("1 + 2")]))


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("docs/*.md")), ids=lambda path: path.stem)
def test_each_row_of_a_table_has_the_cells_of_its_header(path: Path):
    text = path.read_text(encoding="utf-8")
    for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        plain = re.sub(r"`[^`]*`|\\\|", "", table)
        assert len({row.count("|") for row in plain.splitlines()}) == 1, table[:200]


def test_the_published_first_page_has_the_repository_s_address():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    found = {"GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "who/what"}
    published = with_address(text, found)
    assert "git clone https://host/who/what rocm-profiling-course\n" in published
    assert "[Open an issue](https://host/who/what/issues)" in published
    assert "URL: the address" not in published
    assert "Open an issue on the repository's page" in with_address(text, {})
