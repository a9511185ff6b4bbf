"""The exercises on paper, for whoever gives the course: question, one solution, known mistakes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from proflab.exercises import all_exercises
from proflab.exercises.model import Exercise, Message, exercise_cell
from proflab.lessons import lesson

SPECIFICATION = re.compile(r"[<>^+,]*\d*,?(\.\d+)?[a-z%]?|,")
"""How a number is formatted, which stands among the constants of a function as its texts do."""


def sheet(lessons: list[str]) -> Iterator[str]:
    """Lines of Markdown on the exercises of these lessons; of all without one."""
    yield "# Exercises, solutions and known mistakes"
    shown = ""
    for one in all_exercises():
        number = one.id[:2]
        if lessons and number not in lessons:
            continue
        if number != shown:
            shown = number
            yield f"\n## {number} {lesson(number).question}"
        yield from _exercise(one)


def _exercise(exercise: Exercise) -> Iterator[str]:
    cell = exercise_cell(exercise.id)
    yield f"\n**{exercise.id}**, {cell.question}\n\n```python\n{cell.solution}\n```\n"
    for mistake in exercise.mistakes:
        yield f"- {spoken(mistake.message)}"


def spoken(message: Message) -> str:
    """What is said to who makes a mistake. Where it is computed, three dots stand for what comes
    from a learner's data.
    """
    if isinstance(message, str):
        return message
    code = getattr(message, "__code__", None)
    texts = [text for text in code.co_consts if isinstance(text, str)] if code else []
    words = [text.strip() for text in texts if not SPECIFICATION.fullmatch(text)]
    return " ... ".join(words) or "(said with numbers from the learner's data)"


def build_parser() -> argparse.ArgumentParser:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m tools.answer_sheet", description=__doc__)
    parser.add_argument("lessons", nargs="*", metavar="LESSON", help="such as 02; all without one")
    return parser


def main() -> None:
    """Print the sheet."""
    print("\n".join(sheet(build_parser().parse_args().lessons)))


if __name__ == "__main__":
    main()
