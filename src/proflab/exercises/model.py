"""Exercises, and questions that learners work on with check, hint and solution."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from proflab import journal
from proflab.display import Notice, inline_html, show
from proflab.exercises.answers import Text
from proflab.lessons import source_of

PROGRESS_FILE = "progress.jsonl"

PROVEN: set[str] = set()
"""Ids of the exercises that this process has passed and proven, if PROFLAB_STRICT=1."""

Message = str | Callable[[Any], str]
"""String, or a function that computes a string from the data."""


class Outcome(Enum):
    """Outcome of a check."""

    PASSED = "passed"
    WRONG = "wrong"
    NOT_ATTEMPTED = "not attempted"


class ExerciseNotPassed(AssertionError):  # noqa: N818 - an outcome, not an error
    """Error for a solved lesson that fails its own exercise under PROFLAB_STRICT=1."""


@dataclass(frozen=True)
class Mistake:
    """Plausible wrong answer as a function of the data, and the reply to this answer."""

    answer: Callable[[Any], Any]
    message: Message


@dataclass(frozen=True)
class Exercise:
    """One exercise. `id` has the form lesson.number. Every function receives the learner's data.

    - answer: a Number, a Text, a Property, or another object with the same methods.
    - mistakes: two or more plausible wrong answers, recognized by their values.
    - hints: hints in order of increasing help, for example where to look, which column to use,
      and the formula.
    - insight: text shown after a correct answer.
    - needs_data: False for an exercise without data.
    - measured: True for data that the lesson measures on this machine.

    The question and the solution are only in the lesson's cell. Raises ValueError if an exercise
    breaks these rules.
    """

    id: str
    answer: Any
    mistakes: Sequence[Mistake]
    hints: Sequence[str]
    insight: Message = ""
    needs_data: bool = True
    measured: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\d\d\.\d+", self.id):
            raise ValueError(f"an exercise id must look like 02.3, but this id is {self.id!r}")
        if len(self.mistakes) < 2:
            raise ValueError(f"exercise {self.id} needs at least two plausible wrong answers")
        if not self.hints:
            raise ValueError(f"exercise {self.id} needs at least one hint")

    def on(self, data: Any = None) -> Question:
        """Return this exercise as a question about `data`."""
        return Question(self, data)


@dataclass(frozen=True)
class Result:
    """Outcome of one check and the message to the learner.

    - cause: the error that prevented the check, or None.
    - mistake: the index of the known mistake, or None for any other answer.
    """

    outcome: Outcome
    message: str
    cause: Exception | None = None
    mistake: int | None = None

    @property
    def notice(self) -> Notice:
        """Result as a notice for the notebook."""
        heading, tone = {
            Outcome.PASSED: ("Passed", "passed"),
            Outcome.WRONG: ("Not yet right", "wrong"),
            Outcome.NOT_ATTEMPTED: ("Not attempted", "open"),
        }[self.outcome]
        return Notice(heading, self.message, tone)


@dataclass(frozen=True, repr=False)
class Question:
    """Exercise with the learner's data. The methods of a question show their results and return
    None.
    """

    exercise: Exercise
    data: Any = None

    def on(self, data: Any) -> Question:
        """Return the same question with other data, such as the learner's own run."""
        return Question(self.exercise, data)

    def check(self, answer: Any = ...) -> None:
        """Show whether the answer is right. A wrong answer doesn't raise an error.

        With PROFLAB_STRICT=1, a wrong answer raises ExerciseNotPassed. A right answer starts the
        exercise's self-test with this data.
        """
        result = self.evaluate(answer)
        known = (
            {} if result.mistake is None else {"mistake": result.mistake, "said": result.message}
        )
        self._note("check", outcome=result.outcome.value, **known)
        show(result.notice)
        if os.environ.get("PROFLAB_STRICT") != "1" or untouched(answer):
            return
        if result.outcome is not Outcome.PASSED:
            message = f"exercise {self.exercise.id}: {result.outcome.value}: {result.message}"
            raise ExerciseNotPassed(message) from result.cause
        # On a noisy machine, a usually wrong answer can be right for freshly measured data.
        origin = getattr(self.data, "origin", None)
        self.prove(
            mistakes=not self.exercise.measured and getattr(origin, "kind", None) != "measured"
        )
        PROVEN.add(self.exercise.id)

    def evaluate(self, answer: Any) -> Result:
        """Return the result for an answer without showing or logging it."""
        if untouched(answer):
            text = "Replace the `...` with your answer and run the cell again."
            return Result(Outcome.NOT_ATTEMPTED, text)
        if self.data is None and self.exercise.needs_data:
            text = "There is no data for this check because the trace is missing."
            return Result(Outcome.NOT_ATTEMPTED, text)
        # Turn errors into messages because a learner's cell must never show a traceback from the
        # course.
        try:
            right = self.exercise.answer.right(self.data)
        except Exception as error:
            text = f"The check failed with this data: {_describe(error)}"
            return Result(Outcome.NOT_ATTEMPTED, text, error)
        try:
            return self._judge(answer, right)
        except Exception as error:
            text = f"The check failed with this answer: {_describe(error)}"
            return Result(Outcome.WRONG, text, error)

    def prove(self, mistakes: bool = True) -> None:
        """Assert that the exercise works with this data.

        The right answer must pass, each known mistake must receive its reply, and `...` must
        count as not attempted. Raises AssertionError with the exercise id and the failure.
        """
        right = self.exercise.answer.right(self.data)
        # Text accepts several answers, but a learner enters only one.
        right = right[0] if isinstance(self.exercise.answer, Text) else right
        expected: list[tuple[Any, Outcome, str]] = [
            (..., Outcome.NOT_ATTEMPTED, ""),
            (right, Outcome.PASSED, ""),
        ]
        # Compute each answer once, and compare it with all other answers.
        known = [
            replace(one, answer=_constant(one.answer(self.data)))
            for one in (self.exercise.mistakes if mistakes else ())
        ]
        for mistake in known:
            message = _text(mistake.message, self.data)
            expected.append((mistake.answer(self.data), Outcome.WRONG, message or "a message"))
        question = Question(replace(self.exercise, mistakes=known or self.exercise.mistakes))
        question = question.on(self.data)
        for answer, outcome, message in expected:
            result = question.evaluate(answer)
            # If a passing result has a cause, its insight couldn't be computed, so the test fails.
            failed = outcome is Outcome.PASSED and result.cause is not None
            if result.outcome is not outcome or failed or message not in result.message:
                raise AssertionError(
                    f"exercise {self.exercise.id}: expected {outcome.value} and {message!r} for"
                    f" {answer!r}, but got {result.outcome.value}: {result.message or result.cause}"
                ) from result.cause

    def hint(self, number: int = 1) -> None:
        """Show a hint. Hint numbers start at 1, and higher numbers help more."""
        hints = self.exercise.hints
        self._note("hint", number=number)
        if not isinstance(number, int) or not 1 <= number <= len(hints):
            text = f"Available hints: 1 to {len(hints)}. For the solution, run `q.solution()`."
            show(Notice("No such hint", text, "open"))
            return
        more = f"`q.hint({number + 1})`" if number < len(hints) else "`q.solution()`"
        text = f"{hints[number - 1]} (Next: {more})"
        show(Notice(f"Hint {number} of {len(hints)}", text, "info"))

    def solution(self) -> None:
        """Show one solution."""
        self._note("solution")
        show(Notice("One solution", tone="info", code=exercise_cell(self.exercise.id).solution))

    def __repr__(self) -> str:
        return f"Exercise {self.exercise.id}, {exercise_cell(self.exercise.id).question}"

    def _repr_html_(self) -> str:
        return f"<p>{inline_html(repr(self))}</p>"

    def _judge(self, answer: Any, right: Any) -> Result:
        # Check the right answer first because a known mistake may have the same value.
        problem = self.exercise.answer.judge(answer, right, self.data)
        if problem is None:
            return self._passed()
        for place, mistake in enumerate(self.exercise.mistakes):
            if self._is(answer, mistake):
                return Result(Outcome.WRONG, _text(mistake.message, self.data), mistake=place)
        return Result(Outcome.WRONG, f"{problem} For help, run `q.hint()`.")

    def _passed(self) -> Result:
        try:
            return Result(Outcome.PASSED, _text(self.exercise.insight, self.data))
        except Exception as error:  # the answer is still right, but the self-test checks the cause
            return Result(Outcome.PASSED, "", error)

    def _is(self, answer: Any, mistake: Mistake) -> bool:
        try:
            return self.exercise.answer.same(answer, mistake.answer(self.data))
        except Exception:  # this data doesn't allow the mistake
            return False

    def _note(self, event: str, **details: Any) -> None:
        journal.append(PROGRESS_FILE, {"exercise": self.exercise.id, "event": event, **details})


def untouched(answer: Any) -> bool:
    """Return True if the answer or one of its items is still the notebook's `...`."""
    if isinstance(answer, dict):
        return any(untouched(part) for part in answer.values())
    if isinstance(answer, tuple | list):
        return any(untouched(part) for part in answer)
    return answer is ...


def _constant(value: Any) -> Callable[[Any], Any]:
    return lambda data: value


def _text(message: Message, data: Any) -> str:
    return message if isinstance(message, str) else message(data)


def _describe(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"


BEGIN, END = "# solution", "# end solution"
"""Comment lines that enclose the solution, which learners don't see.

Without END, the solution extends to the end of the cell.
"""


class ExerciseCell(NamedTuple):
    """Question in the comment above an exercise, and the code of its solution."""

    question: str
    solution: str


def exercise_cell(id: str) -> ExerciseCell:
    """Return an exercise's cell.

    Raises ValueError unless exactly one cell contains both the question and the solution.
    """
    # Only the lesson's source contains the question and the solution.
    source = source_of(id[:2])
    cells = re.split(r"^# %%.*\n", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
    own = [cell for cell in cells if f'exercise("{id}"' in cell]
    if len(own) != 1:
        raise ValueError(
            f"{source}: exercise {id} is in {len(own)} cells, but it must be in exactly one cell"
        )
    before, _, after = own[0].partition(f"{BEGIN}\n")
    solution = textwrap.dedent(after.partition(END)[0]).strip("\n")
    question = " ".join(line[2:] for line in before.splitlines() if line.startswith("# "))
    if not question or not solution:
        raise ValueError(
            f"{source}: exercise {id} needs a question in a comment above it and the line `{BEGIN}`"
        )
    return ExerciseCell(question, solution)
