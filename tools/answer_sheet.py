"""Exercises for the instructor: the question, one solution, and the replies to mistakes."""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache

from proflab.exercises import exercises_of
from proflab.exercises.model import Exercise, Message, exercise_cell
from proflab.lessons import lessons, lessons_folder, source_of
from tidyprof.errors import UserError

SPECIFICATION = re.compile(r"[<>^+,]*\d*,?(\.\d+)?[a-z%]?|,")
"""Format of a number. A function's constants contain such strings in addition to its messages."""


def sheet(asked: Sequence[str]) -> Iterator[str]:
    """Yield lines of Markdown about these exercises or all exercises of these lessons. An empty
    sequence selects every exercise.

    Raises UserError for a name that is neither a lesson nor an exercise.
    """
    titles = _titles()
    exercises = [one for number in titles for one in exercises_of(number).EXERCISES]
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
            yield f"\n## {number} {titles[number]}"
        yield from _exercise(one)


def _titles() -> dict[str, str]:
    """Return the titles of all lessons and then of all workshops, by number."""
    workshops = {
        path.parent.name[:2]: tomllib.loads(path.read_text(encoding="utf-8"))["question"]
        for path in sorted(lessons_folder().glob("*/workshop.toml"))
    }
    return {number: one.question for number, one in lessons().items()} | workshops


def _exercise(exercise: Exercise) -> Iterator[str]:
    cell = exercise_cell(exercise.id)
    yield f"\n**{exercise.id}**, {cell.question}\n\n```python\n{cell.solution}\n```\n"
    known = replies(exercise.id[:2])
    for mistake in exercise.mistakes:
        yield f"- {spoken(mistake.message, known)}"


@cache
def replies(number: str) -> tuple[str, ...]:
    """Return all strings in the exercises of a lesson or workshop, with dots for computed parts."""
    tree = ast.parse(source_of(number).with_name("exercises.py").read_text(encoding="utf-8"))
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    # The pieces of an f-string are also constants. Skip them.
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
    """Return the reply to a mistake. If the reply is computed, three dots replace the parts that
    depend on a learner's data. If the message is only a part of the reply, return the shortest
    string in `known` that contains it.
    """
    if isinstance(message, str):
        whole = [text for text in known if message in text]
        return min(whole, key=lambda text: (text == message, len(text)), default=message)
    code = getattr(message, "__code__", None)
    texts = [text for text in code.co_consts if isinstance(text, str)] if code else []
    words = [text.strip() for text in texts if not SPECIFICATION.fullmatch(text)]
    return " ... ".join(words) or "(a reply with numbers from the learner's data)"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.answer_sheet", description=__doc__)
    parser.add_argument(
        "asked",
        nargs="*",
        metavar="LESSON|EXERCISE",
        help="for example 02 or 02.2 (default: all exercises)",
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
