"""The shipped lines of the findings log, from a run of the lessons without a GPU.

    python -m tools.case_lines [--write]

Without `--write` it says whether the lines that the lessons found in build/combined are those that
ship, and whether each lesson's evidence asks for the next lesson (exit code 1 if not). `make
lessons` calls it.
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
"""Beginning of a live measurement's origin: such a value differs from run to run, so it does not
ship.
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.case_lines", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--write", action="store_true", help=f"write {SHIPPED}")
    return parser


def problems(found: Sequence[case.Line], shipped: Sequence[case.Line]) -> Iterator[str]:
    """Faults in the lines that a run of all lessons of the core found."""
    core = [number for number, lesson in lessons().items() if lesson.core]
    lines = {line.lesson: line for line in found}
    yield from (
        f"lesson {number} adds no line to the case" for number in core if number not in lines
    )
    for number, after in pairwise([*core, ""]):
        if number in lines and lines[number].next != after:
            asked = lines[number].next or "nothing"
            yield (
                f"lesson {number}: its evidence asks for {asked}, and the course goes on with"
                f" {after or 'nothing'}"
            )
    for line in found:
        if line.origin.startswith(LIVE):
            yield (
                f"lesson {line.lesson}: its evidence is {line.origin}; a shipped line must not"
                " depend on the machine"
            )
        if "\n" in line.evidence:
            yield (
                f"lesson {line.lesson}: its evidence has a line break, as a printed table or row"
                " does"
            )
    if list(found) != list(shipped):
        yield (
            f"{SHIPPED} is not what the lessons find; run `python -m tools.case_lines --write`"
            " after `make lessons`"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare or write. Returns 0, or 1 if there is a fault."""
    options = build_parser().parse_args(arguments)
    found = sorted(case.read_lines(FOUND), key=lambda line: line.lesson)
    if options.write:
        text = "".join(json.dumps(asdict(line), ensure_ascii=False) + "\n" for line in found)
        SHIPPED.write_text(text, encoding="utf-8")
    wrong = list(problems(found, case.shipped()))
    print(
        "\n".join(wrong) or "the findings log is what the lessons find",
        file=sys.stderr if wrong else sys.stdout,
    )
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
