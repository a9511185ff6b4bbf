"""The page docs/known-issues.md, from the table of known issues: `python -m tools.issue_page
[--check]`.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import groupby
from pathlib import Path

import msgspec

from tools.generated_page import write_or_check

PAGE = Path("docs/known-issues.md")
TABLE = Path(__file__).parents[1] / "docs" / "known-issues.toml"


@dataclass(frozen=True)
class Versions:
    """Versions of `tool` that have an issue: from `since` through `last`, or up to but not
    including `until`. A bound is "" if no source states it.
    """

    tool: str
    since: str = ""
    last: str = ""
    until: str = ""
    note: str = ""


@dataclass(frozen=True)
class KnownIssue:
    """One entry of the table. `looked` is the day on which its sources were last read."""

    symptom: str
    check: str
    fix: str
    versions: Versions
    sources: Sequence[str]
    looked: date
    section: str
    heading: str
    brief: str = ""
    todo: str = ""


@cache
def all_issues() -> dict[str, KnownIssue]:
    """Return the entries by the anchor of their heading, as GitHub makes it."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"): msgspec.convert(
            entry | {"section": section, "heading": heading}, KnownIssue
        )
        for section, entries in tomllib.loads(TABLE.read_text(encoding="utf-8")).items()
        for heading, entry in entries.items()
    }


HEAD = """\
# Known issues

What goes wrong when PyTorch is profiled on AMD GPUs, as others have reported it. Each entry says \
how to recognize it, how to check, what to do, which versions have it, where it is published, and \
when the entry was last compared with that. `python -m proflab doctor` makes the checks that a \
program can make, and names the entries that belong to them.

Nobody has repeated these reports on a GPU for this course. "Not stated" means that the source \
names no version. The table behind this page is `docs/known-issues.toml`; add what is missing there.
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for section, issues in groupby(all_issues().values(), key=lambda issue: issue.section):
        parts += [f"## {section}\n", *map(_entry, issues)]
    return "\n".join(parts)


def _entry(issue: KnownIssue) -> str:
    sources = " ".join(f"<{source}>" for source in issue.sources)
    points = {
        "Symptom": issue.symptom,
        "Check": issue.check,
        "Fix": issue.fix,
        "Versions": f"{versions(issue.versions)}.",
        "Source": f"{sources} ({issue.looked:%-d %B %Y})",
    }
    return "\n".join(
        [f"### {issue.heading}\n", *(f"- **{name}:** {text}" for name, text in points.items()), ""]
    )


def versions(found: Versions) -> str:
    """The bounds and the note in words, such as "ROCm 7.2 to 7.2.4; seen with 7.2.3"."""
    spans = {
        (True, True, False): (
            f"{found.since} to {found.last}" if found.since != found.last else found.since
        ),
        (True, False, True): f"from {found.since}, repaired in {found.until}",
        (True, False, False): f"{found.since} and newer",
        (False, True, False): f"up to {found.last}",
        (False, False, True): f"before {found.until}",
    }
    span = spans.get((bool(found.since), bool(found.last), bool(found.until)))
    if span is None:
        return (
            found.note
            if found.note.startswith("all")
            else f"{found.tool}: {found.note or 'not stated'}"
        )
    return "; ".join(filter(None, [f"{found.tool} {span}", found.note]))


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page(), "python -m tools.issue_page", sys.argv[1:]))
