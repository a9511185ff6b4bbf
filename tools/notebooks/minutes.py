"""The time that a lesson takes, by one rule for all lessons.

`python -m tools.notebooks minutes` prints it for each section. Words are read at 140 per minute,
including the questions about earlier lessons with all their answers, and comments in code. Lines of
code are read at 7 per minute. A long statement counts as the lines of 100 characters that it would
fill, no matter how it is wrapped. An exercise takes the minutes in its heading, and `waiting` in
lesson.toml is the waiting time for commands (on two cores). Snippets are for later use and don't
count. The rates come from a new learner in the nine core lessons, who took 631 minutes. For these
lessons, the rule gave 625.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from proflab.recall import questions

if TYPE_CHECKING:
    from tools.notebooks import Built, Source

WORDS_A_MINUTE = 140
LINES_A_MINUTE = 7
LINE = 105
"""Characters of a line at this rate: 100, and those that wrapping adds, such as quotes."""

ROUNDED_TO = 5
RESERVE = 1.1
"""Factor on the time from the rates. One new learner took 473 minutes for 430 minutes of the
core.
"""

RECALL = "lesson.recall()"
"""The call that shows questions about earlier lessons."""

CORE_AT_MOST, ALL_AT_MOST = 7 * 60, 14 * 60
"""Maximum minutes of lessons 00 to 08 together (seven hours), and of all lessons (fourteen
hours).
"""

_MAGIC = re.compile(r"^(\s*)[%!].*$")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_STATED = re.compile(r"^### Exercise \d\d\.\d+ \((\d+) minute", re.MULTILINE)


def needed(source: Source) -> int:
    """Return the minutes for a lesson with the reserve, rounded up to a multiple of five."""
    read = sum(minutes for _, minutes in sections(source))
    return rounded(RESERVE * (read + source.lesson.waiting))


def rounded(minutes: float) -> int:
    """Return the minutes without hundredths, rounded up to a multiple of five."""
    return ROUNDED_TO * math.ceil(round(minutes, 1) / ROUNDED_TO)


def sections(source: Source) -> list[tuple[str, float]]:
    """Return the sections of the learner's lesson, each with its minutes without waiting."""
    from tools.notebooks import learner_cells

    found: list[tuple[str, list[Built]]] = [("", [])]
    for cell in learner_cells(source):
        heading = re.search(r"^##? (.+)$", cell[1], re.MULTILINE) if cell[0] == "markdown" else None
        if heading:
            found.append((heading[1], []))
        found[-1][1].append(cell)
    asked = sum(one.words for one in questions(source.lesson)) / WORDS_A_MINUTE
    return [
        (heading, cells_take(cells) + asked * _asks(cells)) for heading, cells in found if cells
    ]


def _asks(cells: Iterable[Built]) -> bool:
    return any(kind == "code" and RECALL in text for kind, text, _ in cells)


def cells_take(cells: Iterable[Built]) -> float:
    """Return the minutes for some cells."""
    minutes = 0.0
    for kind, text, _ in cells:
        if kind == "code":
            minutes += lines_of(text) / LINES_A_MINUTE + comment_words(text) / WORDS_A_MINUTE
            continue
        stated = _STATED.search(text)
        # The minutes of an exercise include reading its question.
        minutes += int(stated[1]) if stated else len(_FENCE.sub("", text).split()) / WORDS_A_MINUTE
    return minutes


def comment_words(text: str) -> int:
    """Return the number of words in a cell's comments, which are read like text."""
    lines = [line.strip() for line in text.splitlines()]
    return sum(len(line[1:].split()) for line in lines if line.startswith("#"))


def lines_of(text: str) -> int:
    """Return the number of lines in a code cell without comments.

    A statement or a shell command counts by its length, no matter how it is wrapped.
    """
    lines = [line for line in text.splitlines() if not re.match(r"\s*(#|%%|$)", line)]
    if text.startswith("%%bash"):
        commands = re.sub(r"\s*\\\n\s*|(?<=[|&])\n\s*", " ", "\n".join(lines)).splitlines()
        return sum(math.ceil(len(command) / LINE) for command in commands)
    plain = "\n".join(_MAGIC.sub(r"\1pass", line) for line in lines)
    # The unparsed text has one line for each statement.
    statements = ast.unparse(ast.parse(plain)).splitlines()
    return sum(math.ceil(len(statement.strip()) / LINE) for statement in statements)
