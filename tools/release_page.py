"""The page docs/releases.md, from the table of releases: `python -m tools.release_page [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from proflab.releases import Change, Release, changes, releases, shown, sources
from tools.generated_page import write_or_check

PAGE = Path("docs/releases.md")

SHOWN = shown()
"""Releases with a column of their own."""

HEAD = f"""\
# Which ROCm has what

What changed for the tools of this course from ROCm {SHOWN[0]} to {SHOWN[-1]}, and what to write so that it works on
all of them. The course's own commands keep to the last column. Where a tool is missing, its stand-in follows the ROCm
that is there, else the newest production release, or the one that `PROFLAB_ROCM` names.

7.9 to 7.13 were previews of how ROCm is built since 7.14; there is no 7.15, 8 or 9. What is called a preview may still
change. The table behind it is `src/proflab/releases.toml`; add what is missing there.
"""


def page() -> str:
    """The whole page."""
    tools = dict.fromkeys(change.tool for change in changes())
    parts = [HEAD, "## Versions\n", _versions(releases())]
    for tool in tools:
        parts += [f"## {tool}\n", _changes([change for change in changes() if change.tool == tool])]
    return "\n".join([*parts, "## Sources\n", *(f"- {name}: {text}" for name, text in sources().items())]) + "\n"


def _versions(known: Sequence[Release]) -> str:
    tools = list(known[0].versions)
    rows = []
    for one in known:
        name = f"{one.rocm} (preview)" if one.preview else one.rocm
        rows.append((name, one.date, *(one.versions[tool] or "not stated" for tool in tools)))
    return _table(("ROCm", "month", *tools), rows)


def _changes(found: Iterable[Change]) -> str:
    rows = [(_code(change.option), *_cells(change), _remarks(change), change.source) for change in found]
    return _table(("what", *SHOWN, "what to know", "source"), rows)


def _cells(change: Change) -> Iterator[str]:
    """Whether each release has it, and where it does something else than in the one before."""
    before = None
    for rocm in SHOWN:
        default = change.default_in(rocm)
        is_new = before is not None and default not in (None, before)
        yield "changed" if is_new else "yes" if change.is_in(rocm) else "–"
        before = default


def _remarks(change: Change) -> str:
    parts = [change.note] if change.note else []
    parts += ["; ".join(f"from {rocm} on: {text}" for rocm, text in change.default.items())] if change.default else []
    parts += [f"it says: ``{change.message}``"] if change.message else []
    parts += [f"**on all:** {change.always}"] if change.always else []
    return ". ".join(parts).replace("|", "\\|")


def _code(option: str) -> str:
    plain = " " in option and not option.startswith("-")
    return option if plain else f"`{option}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(write_or_check(PAGE, page(), "python -m tools.release_page", sys.argv[1:]))
