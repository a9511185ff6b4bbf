"""The cell of a lesson in which an exercise stands: its question and its solution are written there alone."""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

from proflab.lessons import lesson

BEGIN, END = "# solution", "# end solution"
"""Lines around what is cut out for the learner; without the second one it ends with the cell."""


class ExerciseCell(NamedTuple):
    """What the comment above an exercise asks, such as "5 minutes: which share ...?", and the code that solves it."""

    question: str
    solution: str


def exercise_cell(id: str) -> ExerciseCell:
    """What stands in the lesson about an exercise; raises ValueError unless it has one cell, with both parts."""
    source = lesson(id[:2]).source
    cells = re.split(r"^# %%.*\n", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
    own = [cell for cell in cells if f'exercise("{id}"' in cell]
    if len(own) != 1:
        raise ValueError(f"{source}: exercise {id} stands in {len(own)} cells; it needs one")
    before, _, after = own[0].partition(f"{BEGIN}\n")
    solution = textwrap.dedent(after.partition(END)[0]).strip("\n")
    question = " ".join(line[2:] for line in before.splitlines() if line.startswith("# "))
    if not question or not solution:
        raise ValueError(f"{source}: exercise {id} needs a question as comment above it, and `{BEGIN}`")
    return ExerciseCell(question, solution)
