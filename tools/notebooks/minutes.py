"""The time that a lesson takes, by one rule for all lessons.

`python -m tools.notebooks minutes` prints it for each section. Words are read at 140 per minute,
including the questions about earlier lessons with all their answers. Lines of code are read at 7
per minute. A statement that is longer than a cell is wide counts as the lines that it would fill,
no matter how it is wrapped. An exercise takes the minutes in its heading, and `waiting` in
lesson.toml is the waiting time for commands (on two cores). Snippets are for later use and don't
count. The rates come from a new learner in the nine core lessons, who took 631 minutes. For these
lessons, the rule gave 625.
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
            minutes += lines_of(text) / LINES_A_MINUTE
            continue
        stated = _STATED.search(text)
        # The minutes of an exercise include reading its question.
        minutes += int(stated[1]) if stated else len(_FENCE.sub("", text).split()) / WORDS_A_MINUTE
    return minutes


def lines_of(text: str) -> int:
    """Return the number of lines in a code cell.

    Comments and statements count by their length, and shell lines count as they are.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if text.startswith("%%"):
        return len(lines)
    plain = [_MAGIC.sub(r"\1pass", line) for line in lines]
    begin, count = 0, 0
    # Only tokens show where a statement ends.
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
