"""Run the learners' notebooks the day before, with the software installed here, and show the
results in one table.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from proflab.display import Table
from proflab.errors import CourseError
from proflab.lessons import Lesson, lesson, lessons, lessons_folder
from proflab.tapes.path import append_to_path

CELL_TIMEOUT_S = 900
"""Longest time for one cell in seconds, the same as in the tests."""

_COLOURS = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Rehearsed:
    """The result of one lesson. `problem` is "", or the last line of the first failing cell's
    error.
    """

    lesson: Lesson
    seconds: float
    problem: str = ""


def chosen(numbers: Sequence[str]) -> list[Lesson]:
    """The lessons with these two-digit numbers, all lessons if none are given; raises CourseError
    for an unknown one.
    """
    return [lesson(number) for number in numbers] or list(lessons().values())


def rehearse(which: Sequence[Lesson], keep: Path | None = None) -> Iterator[Rehearsed]:
    """Run each lesson as a learner gets it, in a folder of its own below `keep`, or in one that is
    removed afterwards.

    Raises CourseError if the notebooks or the program that runs them are not here.
    """
    try:
        import nbformat
        from nbclient import NotebookClient
        from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    except ModuleNotFoundError as error:
        raise CourseError(
            f"{error.name} is not installed, which runs notebooks: run `make setup`"
        ) from None
    for one in which:
        path = lessons_folder().parent / "notebooks" / f"{one.folder.name}.ipynb"
        if not path.is_file():
            raise CourseError(
                f"{path}: no such notebook; rehearse in a clone of the course, after `make"
                " notebooks`"
            )
        begin, problem = time.monotonic(), ""
        # The learner's progress and cached results in this folder stay untouched.
        with _folder(keep and keep / one.folder.name) as folder:
            resources = {"metadata": {"path": folder}}
            client = NotebookClient(
                nbformat.read(path, 4), timeout=CELL_TIMEOUT_S, resources=resources
            )
            try:
                client.execute()
            except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                problem = _COLOURS.sub("", str(error)).strip().splitlines()[-1]
        yield Rehearsed(one, time.monotonic() - begin, problem)


@contextmanager
def _folder(kept: Path | None) -> Iterator[str]:
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
            yield folder
    else:
        kept.mkdir(parents=True, exist_ok=True)
        yield str(kept)


def rehearsal_table(done: Sequence[Rehearsed]) -> Table:
    """A row for each lesson: its result, how long it ran, and which of its tools are real here."""
    kinds = {found.tool: found.kind for found in append_to_path()}
    rows = []
    for one in done:
        tools = [f"{tool}: {kinds.get(tool) or _kind(tool)}" for tool in one.lesson.tools]
        rows.append(
            (one.lesson.number, one.problem or "fine", f"{one.seconds:.0f}", ", ".join(tools))
        )
    failed = sum(bool(one.problem) for one in done)
    note = (
        f"{failed} of {len(done)} lessons failed."
        if failed
        else "Every lesson runs here as it is shipped."
    )
    return Table(
        "Rehearsal",
        ("lesson", "result", "seconds", "tools here"),
        rows,
        note,
        flush_right=("seconds",),
    )


def _kind(tool: str) -> str:
    return "real" if shutil.which(tool) else "missing"
