"""The proof that an exercise works on some data; tests call it for every exercise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proflab.exercises.answers import Text
from proflab.exercises.model import Exercise, Outcome, Question
from proflab.exercises.registry import find


def selftest(exercise: Exercise | str, data: Any = None, names: Mapping[str, Any] | None = None) -> None:
    """Assert that the right answer passes, each known mistake gets its message, and `...` is not attempted.

    With `names` (what the notebook has defined at that point) the solution's code is run too and must
    leave a right `answer`. Raises AssertionError that names the exercise and what failed.
    """
    question = (find(exercise) if isinstance(exercise, str) else exercise).on(data)
    _expect(question, "untouched", ..., Outcome.NOT_ATTEMPTED)
    _expect(question, "the right answer", _right(question), Outcome.PASSED)
    for place, mistake in enumerate(question.exercise.mistakes, start=1):
        message = mistake.message if isinstance(mistake.message, str) else mistake.message(data)
        if not message:
            raise AssertionError(f"exercise {question.exercise.id}, mistake {place}: its message is empty")
        _expect(question, f"mistake {place}", mistake.answer(data), Outcome.WRONG, message)
    if names is not None:
        namespace = dict(names)
        exec(compile(question.exercise.solution, f"solution of {question.exercise.id}", "exec"), namespace)
        _expect(question, "the solution", namespace.get("answer", ...), Outcome.PASSED)


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
