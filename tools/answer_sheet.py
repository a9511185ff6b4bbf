"""Print the exercises for an instructor, each with its question, one solution and known
mistakes.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache

from proflab.exercises import all_exercises
from proflab.exercises.model import Exercise, Message, exercise_cell
from proflab.lessons import lesson
from tidyprof.errors import UserError

SPECIFICATION = re.compile(r"[<>^+,]*\d*,?(\.\d+)?[a-z%]?|,")
"""Format specifications of numbers.

They appear among a function's constants, next to its messages.
"""


def sheet(asked: Sequence[str]) -> Iterator[str]:
    """Yield Markdown lines for the requested exercises or for all exercises of the requested
    lessons.

    If nothing is requested, yield all exercises. Raises UserError for a name that is neither a
    lesson nor an exercise.
    """
    exercises = all_exercises()
    names = {name for one in exercises for name in (one.id, one.id[:2])}
    if unknown := [name for name in asked if name not in names]:
        raise UserError(
            f"{unknown[0]} is neither a lesson, such as 02, nor an exercise, such as 02.2"
        )
    yield "# Exercises, solutions and known mistakes"
    shown = ""
    for one in exercises:
        number = one.id[:2]
        if asked and not {one.id, number} & {*asked}:
            continue
        if number != shown:
            shown = number
            yield f"\n## {number} {lesson(number).question}"
        yield from _exercise(one)


def _exercise(exercise: Exercise) -> Iterator[str]:
    cell = exercise_cell(exercise.id)
    yield f"\n**{exercise.id}**, {cell.question}\n\n```python\n{cell.solution}\n```\n"
    known = replies(exercise.id[:2])
    for mistake in exercise.mistakes:
        yield f"- {spoken(mistake.message, known)}"


@cache
def replies(number: str) -> tuple[str, ...]:
    """Return all strings in a lesson's exercises, with dots instead of computed parts."""
    tree = ast.parse((lesson(number).folder / "exercises.py").read_text(encoding="utf-8"))
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    # Pieces of f-strings are also constants, which would otherwise be listed separately.
    pieces = {id(part) for node in joined for part in node.values}
    plain = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces
    ]
    return tuple(plain + ["".join(map(_piece, node.values)) for node in joined])


def _piece(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "..."


def spoken(message: Message, known: Sequence[str] = ()) -> str:
    """Return the message that a learner sees after a mistake.

    If the message is computed, three dots replace the parts that come from a learner's data. For an
    open question, the tests know only a piece of the reply. The full reply is the shortest string
    in `known` that contains the piece.
    """
    if isinstance(message, str):
        whole = [text for text in known if message in text]
        return min(whole, key=lambda text: (text == message, len(text)), default=message)
    code = getattr(message, "__code__", None)
    texts = [text for text in code.co_consts if isinstance(text, str)] if code else []
    words = [text.strip() for text in texts if not SPECIFICATION.fullmatch(text)]
    return " ... ".join(words) or "(a message with numbers from the learner's data)"


def build_parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(prog="python -m tools.answer_sheet", description=__doc__)
    parser.add_argument(
        "asked",
        nargs="*",
        metavar="LESSON|EXERCISE",
        help="print these, such as 02 or 02.2 (default: all)",
    )
    return parser


def main() -> int:
    """Print the sheet. Return 0, or 2 for a name that is neither a lesson nor an exercise."""
    try:
        print("\n".join(sheet(build_parser().parse_args().asked)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
