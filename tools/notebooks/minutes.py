"""The time that a lesson takes, by one rule for all: `python -m tools.notebooks minutes` prints it,
section by section.

Words are read at 140 a minute, including the questions about earlier lessons with all their
answers. Lines of code are read at 7 a minute; a statement that is longer than a cell is wide counts
as the lines that it would fill, however it is wrapped. An exercise takes the minutes in its
heading, and waiting for commands is `waiting` in lesson.toml (on two cores). Snippets are to take
home, and count nothing. The rates are those of a new learner in the nine lessons of the core: 631
minutes, for which this rule gave 625.
"""

from __future__ import annotations

import io
import math
import re
import tokenize
from collections.abc import Iterable
from typing import TYPE_CHECKING

from proflab.recall import questions
from tools.notebooks import COLUMNS

if TYPE_CHECKING:
    from tools.notebooks import Built, Source

WORDS_A_MINUTE = 140
LINES_A_MINUTE = 7
ROUNDED_TO = 5
RESERVE = 1.1
"""Factor on the time that the rates give: one new learner took 473 minutes for 430 of the core."""

RECALL = "lesson.recall()"
"""The call that shows the questions about earlier lessons."""

CORE_AT_MOST, ALL_AT_MOST = 7 * 60, 14 * 60
"""Most minutes of lessons 00 to 08 together, and of all lessons: seven hours, and fourteen."""

_MAGIC = re.compile(r"^(\s*)[%!].*$")
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_STATED = re.compile(r"^### Exercise \d\d\.\d+ \((\d+) minute", re.MULTILINE)


def needed(source: Source) -> int:
    """Minutes for a lesson with the reserve, rounded up to five."""
    read = sum(minutes for _, minutes in sections(source))
    return rounded(RESERVE * (read + source.lesson.waiting))


def rounded(minutes: float) -> int:
    """Return the minutes, without hundredths, rounded up to five."""
    return ROUNDED_TO * math.ceil(round(minutes, 1) / ROUNDED_TO)


def sections(source: Source) -> list[tuple[str, float]]:
    """The sections of a lesson as the learner gets it, each with its minutes without waiting."""
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
    """Minutes for some cells."""
    minutes = 0.0
    for kind, text, _ in cells:
        if kind == "code":
            minutes += lines_of(text) / LINES_A_MINUTE
            continue
        stated = _STATED.search(text)
        # The question of an exercise is read within its own minutes.
        minutes += int(stated[1]) if stated else len(_FENCE.sub("", text).split()) / WORDS_A_MINUTE
    return minutes


def lines_of(text: str) -> int:
    """Lines of a cell of code: comments and statements by their length, lines of a shell as they
    are.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if text.startswith("%%"):
        return len(lines)
    plain = [_MAGIC.sub(r"\1pass", line) for line in lines]
    begin, count = 0, 0
    # Only tokens tell where a statement ends.
    for token in tokenize.generate_tokens(io.StringIO("\n".join(plain)).readline):
        if token.type == tokenize.NEWLINE:
            length = sum(len(line.strip()) for line in plain[begin : token.start[0]])
            count += math.ceil(length / COLUMNS)
            begin = token.start[0]
        elif (
            token.type == tokenize.COMMENT
            and token.start[0] == begin + 1
            and plain[begin].lstrip().startswith("#")
        ):
            count, begin = count + 1, begin + 1
    return count
