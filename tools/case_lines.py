"""Check the shipped lines of the findings log against a run of the lessons without a GPU.

python -m tools.case_lines [--write]

The lessons write their lines to build/combined. Without `--write`, the tool checks that they match
the shipped lines and that each lesson's evidence asks for the next lesson. Otherwise, the exit code
is 1. `make lessons` runs this tool.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from proflab import case
from proflab.lessons import lessons

FOUND = Path("build/combined/runs") / case.FILE
SHIPPED = Path("lessons") / case.SHIPPED
LIVE = "measured"
"""Prefix of a live measurement's origin.

Live values differ from run to run, so they don't ship.
"""


def build_parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.case_lines", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--write", action="store_true", help=f"write {SHIPPED}")
    return parser


def problems(found: Sequence[case.Line], shipped: Sequence[case.Line]) -> Iterator[str]:
    """Yield problems in the lines that a run of all core lessons produced."""
    core = [number for number, lesson in lessons().items() if lesson.core]
    lines = {line.lesson: line for line in found}
    yield from (
        f"lesson {number} doesn't add a line to the findings log"
        for number in core
        if number not in lines
    )
    for number, after in pairwise([*core, ""]):
        if number in lines and lines[number].next != after:
            asked = lines[number].next or "nothing"
            yield (
                f"lesson {number}: its evidence asks for {asked}, but the course continues with"
                f" {after or 'nothing'}"
            )
    for line in found:
        if line.origin.startswith(LIVE):
            yield (
                f"lesson {line.lesson}: its evidence is {line.origin}, but a shipped line must"
                " not depend on the machine"
            )
        if "\n" in line.evidence:
            yield (
                f"lesson {line.lesson}: its evidence contains a line break, like a printed table"
                " or row"
            )
    if list(found) != list(shipped):
        yield (
            f"{SHIPPED} doesn't match what the lessons find. After `make lessons`, run"
            " `python -m tools.case_lines --write`"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare or write the lines. Return 0, or 1 if there is a problem."""
    options = build_parser().parse_args(arguments)
    found = sorted(case.read_lines(FOUND), key=lambda line: line.lesson)
    if options.write:
        text = "".join(json.dumps(asdict(line), ensure_ascii=False) + "\n" for line in found)
        SHIPPED.write_text(text, encoding="utf-8")
    wrong = list(problems(found, case.shipped()))
    print(
        "\n".join(wrong) or "the findings log matches what the lessons find",
        file=sys.stderr if wrong else sys.stdout,
    )
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
