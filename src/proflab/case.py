"""The example run of lessons 00 to 08 and its findings log.

Each lesson adds a line to `runs/case.jsonl`. If you skip a lesson, the log shows the line
shipped with the course.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from proflab import journal
from proflab.display import Table, show
from proflab.errors import CourseError
from proflab.lessons import lessons, lessons_folder
from proflab.sources import brief, errors, stated

if TYPE_CHECKING:
    import pandas as pd


FILE = "case.jsonl"
SHIPPED = "case_lines.jsonl"
MEASURED = "h200_case.csv"
MEASURED_ON = "NVIDIA H200"
LAST = "08"
"""Last lesson about the example run. Later lessons are electives."""

SHIPPED_NOTE = (
    "Shipped: you haven't run the lesson's last cell, so this is its result without a GPU."
)

COLUMNS = {"lesson": 9, "evidence": 53, "rules out": 19, "next": 19}
"""Width of each findings log column in percent."""

IN_VIEW = 1
"""Number of findings log rows that a notebook shows. The notebook folds earlier rows."""


@dataclass(frozen=True)
class Stage:
    """Trainer options in the example run, starting with `lesson`."""

    lesson: str
    options: str


@dataclass(frozen=True)
class Line:
    """Finding of one lesson. `next` is the lesson that follows from the evidence, or "" after the
    last one.
    """

    lesson: str
    evidence: str
    origin: str
    rules_out: str
    because: str
    next: str


@cache
def stages() -> tuple[str, tuple[Stage, ...]]:
    """Return the program of the example run and its stages in order.

    The function reads both from lessons/case.toml.
    """
    data = tomllib.loads((lessons_folder() / "case.toml").read_text(encoding="utf-8"))
    return data["program"], tuple(Stage(**stage) for stage in data["stage"])


def options(lesson: str) -> str:
    """Return the trainer options of the example run at the start of `lesson`."""
    return [stage for stage in stages()[1] if stage.lesson <= lesson][-1].options


def command(lesson: str) -> str:
    """Return the example run's command at the start of `lesson`, which `%%bash` cells use as
    `$EXAMPLE`.
    """
    return f"{stages()[0]} {options(lesson)}"


def conclude(
    lesson: str,
    evidence: str,
    *,
    rules_out: str,
    because: str,
    next: str,
    origin: object,
) -> Line:
    """Add a lesson's line to the findings log and show it.

    - evidence: a sentence with numbers.
    - because: the reason for continuing with lesson `next`. In the last lesson, `next` is "".
    - origin: the source of the numbers, as a string, an Origin, or an object that has an Origin.

    Raises CourseError for a line without evidence or origin, and for an unknown lesson.
    """
    if next and next not in lessons():
        raise CourseError(f"there is no lesson {next!r} to continue with.")
    if not (evidence.strip() and stated(origin)):
        raise CourseError(
            "a line of the findings log needs evidence and the origin of its numbers."
        )
    line = Line(lesson, evidence, stated(origin), rules_out, because, next)
    journal.append(FILE, asdict(line))
    show(table(lesson))
    return line


def lines(until: str = LAST) -> list[tuple[Line, bool]]:
    """Return one pair per lesson up to `until`: the lesson's last line, and True for a line of your
    own.

    The second value is False for a line shipped with the course.
    """
    here = {line.lesson: line for line in _read(journal.runs_folder() / FILE)}
    known = {line.lesson: line for line in shipped()} | here
    return [(known[number], number in here) for number in sorted(known) if number <= until]


def shipped() -> list[Line]:
    """Return the findings of lessons that run without a GPU and without live measurements."""
    return _read(lessons_folder() / SHIPPED)


def table(until: str = LAST) -> Table:
    """Return the findings log up to and including a lesson.

    A note lists each origin. If there are several origins, letters link the evidence to the
    origins.
    """
    found = lines(until)
    origins = list(dict.fromkeys(line.origin for line, _ in found))
    # If there is only one origin, it applies to all lines and doesn't need a letter.
    several = len(origins) > 1
    marks = {
        origin: f" [{_kinds(origin)}, {chr(ord('a') + place)}]" if several else ""
        for place, origin in enumerate(origins)
    }
    rows = [
        (
            line.lesson if here else f"{line.lesson} (shipped)",
            f"{line.evidence}{marks[line.origin]}",
            line.rules_out,
            f"{line.because} Lesson {line.next}." if line.next else line.because,
        )
        for line, here in found
    ]
    notes = [
        f"{f'[{mark[-2:]} ' if several else ''}{brief(origin)}" for origin, mark in marks.items()
    ]
    notes += [f"The model's {error}" for error in errors("; ".join(origins))]
    if not all(here for _, here in found):
        notes.append(SHIPPED_NOTE)
    return Table(
        f"Findings log: why is `{command('00')}` slow?",
        tuple(COLUMNS),
        rows,
        "\n".join(notes),
        widths=tuple(COLUMNS.values()),
        earlier=max(0, len(rows) - IN_VIEW),
    )


def _kinds(origin: str) -> str:
    """Return an origin's kinds, such as `recorded and modeled`."""
    return " and ".join(dict.fromkeys(part.partition(":")[0] for part in origin.split("; ")))


def read_lines(path: Path) -> list[Line]:
    """Return the last line of each lesson in a case.jsonl."""
    return list({line.lesson: line for line in _read(path)}.values())


def measured() -> pd.DataFrame:
    """Return one row per step of each run on a real GPU, with the origin in `attrs`.

    - run, options: name of the run and its trainer options
    - traced: True if torch.profiler recorded some steps of the run
    - profiled: True if torch.profiler recorded this step
    - step, images: step number and number of images in the step
    - part: `warmup` or `steady`
    - duration_ns: step time in ns, from GPU events
    """
    import pandas as pd

    from tidyprof.tables.contract import Origin

    table = pd.read_csv(lessons_folder() / MEASURED, comment="#")
    table.attrs["origin"] = Origin("recorded", MEASURED_ON)
    return table


def put_into_environment(lesson: str) -> None:
    """Set the environment variable EXAMPLE for `%%bash` cells, unless the learner has set it."""
    program, known = stages()
    ours = {f"{program} {stage.options}" for stage in known}
    if os.environ.get("EXAMPLE", "") in {"", *ours}:
        os.environ["EXAMPLE"] = command(lesson)


def _read(path: Path) -> list[Line]:
    found = []
    for entry in journal.read(path):
        try:
            found.append(msgspec.convert(entry, Line))
        except msgspec.ValidationError:
            # An earlier course version wrote this line, or someone edited it.
            continue
    return found
