"""The exercises on paper, for whoever gives the course: question, one solution, known mistakes."""

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
"""How a number is formatted: such texts are among a function's constants, beside its messages."""


def sheet(asked: Sequence[str]) -> Iterator[str]:
    """Lines of Markdown on these exercises, or on all exercises of these lessons; on all exercises
    if none are asked for.

    Raises UserError for a name that is neither a lesson nor an exercise.
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
    """All texts in a lesson's exercises as the file has them, with dots in place of computed
    parts.
    """
    tree = ast.parse((lesson(number).folder / "exercises.py").read_text(encoding="utf-8"))
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    # Pieces of f-strings are constants, too, and would stand alone.
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
    """The message to whoever makes a mistake. If it is computed, three dots stand for the parts
    that come from a learner's data. Of an open question the tests know a piece of the reply, and
    the whole is the shortest text of `known` that holds the piece.
    """
    if isinstance(message, str):
        whole = [text for text in known if message in text]
        return min(whole, key=lambda text: (text == message, len(text)), default=message)
    code = getattr(message, "__code__", None)
    texts = [text for text in code.co_consts if isinstance(text, str)] if code else []
    words = [text.strip() for text in texts if not SPECIFICATION.fullmatch(text)]
    return " ... ".join(words) or "(said with numbers from the learner's data)"


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.answer_sheet", description=__doc__)
    parser.add_argument(
        "asked", nargs="*", metavar="LESSON|EXERCISE", help="such as 02 or 02.2; all without one"
    )
    return parser


def main() -> int:
    """Print the sheet. Returns 0, or 2 for a name that is neither a lesson nor an exercise."""
    try:
        print("\n".join(sheet(build_parser().parse_args().asked)))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
