"""Write the page of known issues from its table: `python -m tools.issue_page [--check]`."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import groupby
from pathlib import Path

import msgspec

from tools.generated_page import write_or_check

PAGE = Path("docs/known-issues.md")
ARCHIVE = Path("docs/known-issues-archive.md")
"""The page of entries that only affect ROCm older than 6.4."""

TABLE = Path(__file__).parents[1] / "docs" / "known-issues.toml"


@dataclass(frozen=True)
class Versions:
    """Versions of `tool` that have an issue.

    They range from `since` through `last`, or up to but not including `until`. A bound is "" if no
    source states it.
    """

    tool: str
    since: str = ""
    last: str = ""
    until: str = ""
    note: str = ""


@dataclass(frozen=True)
class KnownIssue:
    """One entry of the table.

    also       -- how issue titles and users describe it, for the search.
    looked     -- the day on which we last compared the entry with its sources.
    no_kernels -- what distinguishes it from the other reasons for a trace without kernels.
    archived   -- True if only ROCm older than 6.4 has it.
    """

    symptom: str
    check: str
    fix: str
    also: str
    versions: Versions
    sources: Sequence[str]
    looked: date
    section: str
    heading: str
    no_kernels: str = ""
    archived: bool = False


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

Look up what goes wrong when you profile PyTorch on AMD GPUs, how to check it, and how to fix it. \
First, let the doctor check your machine:

```
.venv/bin/python -m proflab doctor
```

If a check fails, the doctor prints the next step and the entry on this page:

```
cores: Request more cores with --cpus-per-task=8, or train with --num-workers 0.
See docs/known-issues.md#data-loader-workers-without-cpu-cores
```

If the doctor finds nothing, search this page for the words of the error message. The entries \
come from the named sources, and we haven't reproduced them on an AMD GPU. The date is when we \
last read the sources. Entries for ROCm older than 6.4 are in the [archive](known-issues-archive.md).

## No kernels in the trace: which of six?

Open the trace or its tables, and find the row that matches.

| what you see | entry |
| --- | --- |
"""

AFTER_TABLE = """
If no row matches, check the program itself. `activities` must contain `ProfilerActivity.CUDA`, \
the model and its inputs must be on the GPU, and the run must reach the [recorded \
steps](#the-schedule-never-starts-to-record). To test your own torch, run this in its environment. \
It must print a kernel:

```python
import torch

with torch.profiler.profile() as profile:
    torch.ones(8, device="cuda").sum().item()
print([event.name for event in profile.events() if event.device_type.name == "CUDA"])
```

"""

ARCHIVE_HEAD = """\
# Known issues of ROCm older than 6.4

Look up problems that newer releases don't have. The doctor prints your release in the row *ROCm*:

```
.venv/bin/python -m proflab doctor
```

For current releases, see the [known issues](known-issues.md).
"""


def page() -> str:
    """Return the page of entries that affect ROCm 6.4 or newer."""
    rows = (
        f"| {issue.no_kernels} | [{issue.heading}](#{anchor}) |\n"
        for anchor, issue in all_issues().items()
        if issue.no_kernels
    )
    issues = [issue for issue in all_issues().values() if not issue.archived]
    return "".join([HEAD, *rows, AFTER_TABLE, _entries(issues)])


def archive() -> str:
    """Return the page of entries that only affect ROCm older than 6.4."""
    issues = [issue for issue in all_issues().values() if issue.archived]
    return f"{ARCHIVE_HEAD}\n{_entries(issues)}"


def _entries(issues: Iterable[KnownIssue]) -> str:
    parts = []
    for section, found in groupby(issues, key=lambda issue: issue.section):
        parts += [f"## {section}\n", *map(_entry, found)]
    return "\n".join(parts)


def _entry(issue: KnownIssue) -> str:
    sources = " ".join(f"<{source}>" for source in issue.sources)
    points = {
        "Symptom": issue.symptom,
        "Check": issue.check,
        "Fix": issue.fix,
        "Versions": versions(issue.versions),
        "Source and date": f"{sources} ({issue.looked})",
        "Also described as": issue.also,
    }
    return "\n".join(
        [
            f"### {issue.heading}\n",
            *(f"**{name}:** {text}\n" for name, text in points.items() if text),
        ]
    )


def versions(found: Versions) -> str:
    """Return the bounds and the note in words, such as "ROCm 7.2 to 7.2.4. Seen with 7.2.3.". The
    text is empty if all versions have the issue, or if no source states which.
    """
    spans = {
        (True, True, False): (
            f"{found.since} to {found.last}" if found.since != found.last else found.since
        ),
        (True, False, True): f"since {found.since}, fixed in {found.until}",
        (True, False, False): f"{found.since} and newer",
        (False, True, False): f"up to {found.last}",
        (False, False, True): f"before {found.until}",
    }
    span = spans.get((bool(found.since), bool(found.last), bool(found.until)))
    if span:
        return ". ".join(filter(None, [f"{found.tool} {span}", _sentence(found.note)])) + "."
    if found.note in ("", "all", "not stated"):
        return ""
    if found.note.startswith("all"):
        return f"{_sentence(found.note)}."
    return f"{found.tool}, {found.note}."


def _sentence(text: str) -> str:
    """Return the text with a capital letter, unless it starts with a lower-case name."""
    return text if text.startswith(_NAMES) else text[:1].upper() + text[1:]


_NAMES = ("torch", "rocprof", "vLLM", "omnistat", "gfx")


if __name__ == "__main__":
    command, arguments = "python -m tools.issue_page", sys.argv[1:]
    raise SystemExit(
        write_or_check(PAGE, page(), command, arguments)
        or write_or_check(ARCHIVE, archive(), command, arguments)
    )
