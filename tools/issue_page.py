"""The page docs/known-issues.md, from the table of known issues: `python -m tools.issue_page
[--check]`.
"""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path

from proflab.doctor.findings import KnownIssue, Versions, all_issues
from proflab.doctor.report import DOCUMENT, TITLES
from tools.generated_page import write_or_check

PAGE = Path(DOCUMENT)

_ROWS = re.compile(
    r"(?<=doctor's row )`[\w-]+`|(?<=doctor's rows )`[\w-]+`(?:(?:, | and )`[\w-]+`)*"
)
"""Rows of the doctor by their keys, which programs read; people see titles."""

HEAD = """\
# Known issues

What goes wrong when PyTorch is profiled on AMD GPUs, as others have reported it. Each entry says \
how to recognise it, how to check, what to do, which versions have it, where it is published, and \
when the entry was last compared with that. `python -m proflab doctor` makes the checks that a \
program can make, and names the issues of the versions that are here; `--json` lists them for \
programs.

Nobody has repeated these reports on a GPU for this course. "Not stated" means that the source \
names no version. The table behind this page is `src/proflab/doctor/known_issues.toml`; add what \
is missing there.
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
        "Check": _ROWS.sub(_titles, issue.check),
        "Cure": issue.cure,
        "Versions": f"{versions(issue.versions)}.",
        "Source": f"{sources} ({issue.looked:%-d %B %Y})",
    }
    return "\n".join(
        [f"### {issue.heading}\n", *(f"- **{name}:** {text}" for name, text in points.items()), ""]
    )


def _titles(found: re.Match[str]) -> str:
    return re.sub(r"`([\w-]+)`", lambda key: f"*{TITLES[key[1]]}*", found[0])


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
    tool = TITLES.get(found.tool, found.tool)
    if span is None:
        return (
            found.note if found.note.startswith("all") else f"{tool}: {found.note or 'not stated'}"
        )
    return "; ".join(filter(None, [f"{tool} {span}", found.note]))


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page(), "python -m tools.issue_page", sys.argv[1:]))
