"""The book's table of contents against the files, and the links between its pages."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

import pytest

from docs.book.contents import READERS, START, contents, toctrees
from docs.book.staging import SITE
from proflab.lessons import lessons as all_lessons
from tests.conftest import REPOSITORY

PARTS = contents(REPOSITORY)
PAGES = [page for part in PARTS for page in part.pages]
MARKDOWN = [page for page in [START, *PAGES] if page.endswith(".md")]


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    text = re.sub(
        r"^```.*?^```",
        "",
        (REPOSITORY / page).read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


def links(page: str) -> list[str]:
    """The links to files and headings of the repository."""
    text = SITE.sub("", (REPOSITORY / page).read_text(encoding="utf-8"))
    return [link for link in re.findall(r"\]\(([^()\s]+)\)", text) if not urlsplit(link).scheme]


def test_every_lesson_and_every_page_of_docs_is_in_the_book_once():
    lessons = [
        f"notebooks/{path.name}.ipynb" for path in sorted((REPOSITORY / "lessons").glob("[0-9]*"))
    ]
    documents = [
        str(path.relative_to(REPOSITORY))
        for folder in ("docs", READERS)
        for path in (REPOSITORY / folder).rglob("*.md")
    ]
    others = ["CONTRIBUTING.md", "CHANGELOG.md", "packages/tidyprof/CHANGELOG.md"]
    assert sorted(PAGES) == sorted([*lessons, *documents, *others])


def test_the_lessons_come_first_and_in_order_after_the_ninety_minutes():
    assert [page.removeprefix("notebooks/")[:2] for page in PARTS[0].pages] == [
        "90",
        *sorted(all_lessons()),
    ]


def test_the_first_page_gets_all_pages_without_their_endings():
    listed = re.findall(
        r"^(?:(?:docs|notebooks|packages)/.+|CONTRIBUTING|CHANGELOG)$",
        toctrees(PARTS),
        re.MULTILINE,
    )
    assert [
        f"{page}.ipynb" if page.startswith("notebooks") else f"{page}.md" for page in listed
    ] == PAGES


@pytest.mark.parametrize("page", MARKDOWN)
def test_links_of_a_page_lead_to_a_file_and_a_heading(page: str):
    for link in links(page):
        parts = urlsplit(link)
        target = (
            (REPOSITORY / page).parent / unquote(parts.path) if parts.path else REPOSITORY / page
        )
        assert target.is_file(), link
        if parts.fragment:
            found = str(target.resolve().relative_to(REPOSITORY))
            assert parts.fragment in anchors(found), link


def test_the_plans_of_the_instructor_guide_add_up():
    text = (REPOSITORY / "docs/instructor.md").read_text(encoding="utf-8")
    plans = re.findall(r"^\| [^|]+ \| ([^|]*\[\d\d\][^|]*) \| (\d+) \|$", text, re.MULTILINE)
    assert len(plans) == 6
    for lessons, minutes in plans:
        assert sum(
            all_lessons()[number].minutes for number in re.findall(r"\[(\d\d)\]", lessons)
        ) == int(minutes)
    in_all_days = re.findall(r"\[(\d\d)\]", "".join(lessons for lessons, _ in plans[2:]))
    assert sorted(in_all_days) == sorted(all_lessons())
