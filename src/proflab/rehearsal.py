"""Run the learners' notebooks the day before, with the software installed here."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from proflab.display import Table
from proflab.errors import CourseError
from proflab.lessons import Lesson, lesson, lessons, lessons_folder
from proflab.tapes.path import append_to_path

CELL_TIMEOUT_S = 900
"""Longest time for one cell in seconds, the same as in the tests."""

_COLORS = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Rehearsed:
    """The result of one lesson. `problem` is "", or the last line of the first failing cell's
    error.
    """

    lesson: Lesson
    seconds: float
    problem: str = ""


def rehearse(numbers: Sequence[str]) -> Iterator[Rehearsed]:
    """Run lessons (without numbers, all of them) as a learner gets them, in a temporary folder.

    Raises CourseError for an unknown number, and if a notebook is not here.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    for one in [lesson(number) for number in numbers] or lessons().values():
        path = lessons_folder().parent / "notebooks" / f"{one.folder.name}.ipynb"
        if not path.is_file():
            raise CourseError(f"{path}: no such notebook; rehearse in a clone of the course")
        begin, problem = time.monotonic(), ""
        # The learner's progress and cached results in this folder stay untouched.
        with tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
            client = NotebookClient(
                nbformat.read(path, 4),
                timeout=CELL_TIMEOUT_S,
                resources={"metadata": {"path": folder}},
            )
            try:
                client.execute()
            except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                problem = _COLORS.sub("", str(error)).strip().splitlines()[-1]
        yield Rehearsed(one, time.monotonic() - begin, problem)


def rehearsal_table(done: Sequence[Rehearsed]) -> Table:
    """Return a row for each lesson: its result, its time, and which of its tools are real here."""
    kinds = append_to_path()
    rows = []
    for one in done:
        tools = [
            f"{tool}: {kinds.get(tool) or ('real' if shutil.which(tool) else 'missing')}"
            for tool in one.lesson.tools
        ]
        result = one.problem or "fine"
        rows.append((one.lesson.number, result, f"{one.seconds:.0f}", ", ".join(tools)))
    columns = ("lesson", "result", "seconds", "tools here")
    return Table("Rehearsal", columns, rows, flush_right=("seconds",))
