"""Every command that the course shows, read by the tools' own tables of options, so that none is wrong.

`shell` finds the commands in a shell text, `places` the texts, `reading` says whether a tool would understand one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.course_commands import places
from tools.course_commands.reading import read_command
from tools.course_commands.shell import Command
from tools.course_commands.words import OPAQUE

if TYPE_CHECKING:
    from nbformat import NotebookNode

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
EXERCISES = "lessons/*/exercises.py"
JOB_SCRIPTS = ("scripts/slurm/*.sh", "scripts/slurm/mpi/*.sh")


@dataclass(frozen=True)
class Use:
    """A command where it stands: its tools from the outside in, and what is wrong with it."""

    path: Path
    line: int
    text: str
    tools: tuple[str, ...]
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {'; '.join(self.problems)}: {self.text}"


def uses_in_cell(cell: NotebookNode, path: Path) -> Iterator[Use]:
    """Commands in one cell; lines count from the cell's first."""
    yield from _uses(path, places.of_cell(cell))


def uses_in_documents(course: Path) -> Iterator[Use]:
    """Commands in the README and in docs, and in the texts of exercises."""
    for path in sorted(found for pattern in DOCUMENTS for found in course.glob(pattern)):
        yield from _uses(path, places.of_markdown(path.read_text(encoding="utf-8")), course=course)
    for path in sorted(course.glob(EXERCISES)):
        yield from _uses(path, places.of_python(path.read_text(encoding="utf-8")), course=course)


def uses_in_job_scripts(course: Path) -> Iterator[Use]:
    """Commands in the job scripts, with the variables and functions that they source."""
    variables, functions = places.shared_variables(course / "scripts/slurm")
    for path in sorted(found for pattern in JOB_SCRIPTS for found in course.glob(pattern)):
        script, commands = places.of_job_script(path, variables)
        yield from _uses(path, commands, functions | script.functions, course)


def _uses(
    path: Path, commands: Iterable[Command], defined: frozenset[str] = frozenset(), course: Path | None = None
) -> Iterator[Use]:
    try:
        for command in commands:
            reading = read_command(command, defined, course)
            text = " ".join(command.words).replace(OPAQUE, "…")
            yield Use(path, command.line, text, tuple(reading.tools), tuple(reading.problems))
    except ValueError as error:
        yield Use(path, 0, "", (), (f"a shell can't read this: {error}",))
