"""The table of known issues: its page is up to date, and entries are complete."""

from __future__ import annotations

import re

import pytest

from tests.conftest import REPOSITORY
from tools.issue_page import PAGE, Versions, all_issues, page, versions


def test_the_page_is_what_the_table_gives() -> None:
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    assert text == page()
    assert text.count("\n### ") == len(all_issues())


def test_every_entry_has_its_texts_and_sources() -> None:
    for anchor, issue in all_issues().items():
        assert all((issue.symptom, issue.check, issue.fix, issue.also, issue.sources)), anchor
        assert all(re.fullmatch(r"https://[^\s<>]+", source) for source in issue.sources), anchor
        assert "|" not in issue.no_kernels, anchor


def test_the_table_of_traces_without_kernels_leads_to_six_entries() -> None:
    text = (REPOSITORY / PAGE).read_text(encoding="utf-8")
    rows = re.findall(r"^\| .+ \| \[.+\]\(#(.+)\) \|$", text, flags=re.MULTILINE)
    assert len(rows) == 6
    assert set(rows) <= set(all_issues())


@pytest.mark.parametrize(
    ("found", "parts"),
    [
        (Versions("rocm", since="7.2.1", until="7.2.2"), ["7.2.1", "7.2.2"]),
        (Versions("rocm", since="6.4.0", last="6.4.0"), ["6.4.0"]),
        (Versions("rocm", since="7.2", last="7.2.4", note="7.2.3"), ["7.2", "7.2.4", "7.2.3"]),
        (Versions("omnitrace", last="1.7"), ["1.7"]),
        (Versions("torch"), []),
    ],
)
def test_each_bound_is_stated_once(found: Versions, parts: list[str]) -> None:
    assert re.findall(r"\d[\d.]*\d", versions(found)) == parts
