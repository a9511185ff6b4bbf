"""The proof that an exercise works on some data: tests call it, and the lessons themselves where they are tested."""

from __future__ import annotations

from typing import Any

from proflab.exercises.answers import Text
from proflab.exercises.model import Exercise, Outcome, Question
from proflab.exercises.registry import all_exercises, find

_proven: set[str] = set()


def prove(question: Question) -> None:
    """Assert what `selftest` does on the data in front of the learner, and keep in mind that it was done.

    Known mistakes are left out on what was measured here and now: a noisy machine can make a wrong answer right.
    """
    origin = getattr(question.data, "origin", None)
    selftest(question.exercise, question.data, mistakes=getattr(origin, "kind", None) != "measured")
    _proven.add(question.exercise.id)


def all_proven(lesson: str) -> None:
    """Assert that every exercise of a lesson was passed and proven in this notebook."""
    missing = [exercise.id for exercise in all_exercises() if exercise.id.startswith(lesson)]
    missing = [id for id in missing if id not in _proven]
    if missing:
        raise AssertionError(f"not passed in this notebook: {', '.join(missing)}")


def selftest(exercise: Exercise | str, data: Any = None, mistakes: bool = True) -> None:
    """Assert that the right answer passes, each known mistake gets its message, and `...` is not attempted.

    Raises AssertionError that names the exercise and what failed. That the solution in the lesson is right, the lesson
    itself shows.
    """
    question = (find(exercise) if isinstance(exercise, str) else exercise).on(data)
    _expect(question, "untouched", ..., Outcome.NOT_ATTEMPTED)
    _expect(question, "the right answer", _right(question), Outcome.PASSED)
    for place, mistake in enumerate(question.exercise.mistakes if mistakes else (), start=1):
        message = mistake.message if isinstance(mistake.message, str) else mistake.message(data)
        if not message:
            raise AssertionError(f"exercise {question.exercise.id}, mistake {place}: its message is empty")
        _expect(question, f"mistake {place}", mistake.answer(data), Outcome.WRONG, message)


def _right(question: Question) -> Any:
    right = question.exercise.answer.right(question.data)
    # A text may have several right answers; the first one stands for them.
    return right[0] if isinstance(question.exercise.answer, Text) else right


def _expect(question: Question, what: str, answer: Any, outcome: Outcome, message: str = "") -> None:
    result = question.evaluate(answer)
    place = f"exercise {question.exercise.id}, {what} ({answer!r})"
    if result.outcome is not outcome or (outcome is Outcome.PASSED and result.cause is not None):
        raise AssertionError(
            f"{place}: {outcome.value} expected, but {result.outcome.value}: {result.message or result.cause}"
        ) from result.cause
    if message not in result.message:
        raise AssertionError(f"{place}: the message {message!r} expected, but it was {result.message!r}")
