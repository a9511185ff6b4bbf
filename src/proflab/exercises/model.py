"""An exercise, and the question that a learner works on: check, hint, solution."""

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
"""Ids of the exercises that this process has passed and proven, under PROFLAB_STRICT=1."""

Message = str | Callable[[Any], str]
"""A string, or a function that computes one from the data."""


class Outcome(Enum):
    """Outcomes of a check."""

    PASSED = "passed"
    WRONG = "wrong"
    NOT_ATTEMPTED = "not attempted"


class ExerciseNotPassed(AssertionError):  # noqa: N818 - an outcome, not an error
    """A solved lesson failed its own exercise under PROFLAB_STRICT=1."""


@dataclass(frozen=True)
class Mistake:
    """A plausible wrong answer as a function of the data, and the reply to it."""

    answer: Callable[[Any], Any]
    message: Message


@dataclass(frozen=True)
class Exercise:
    """One exercise. `id` is lesson.number. Every function receives the learner's data.

    answer     -- judge: a Number, a Text, a Property, or an object with their methods.
    mistakes   -- two or more, recognized by their values.
    hints      -- each helps more than the previous one: where to look, which column, the formula.
    insight    -- text after a correct answer.
    needs_data -- False for an exercise without data.
    measured   -- True for data that the lesson measures on this machine.

    Only the lesson's cell contains the question and the solution. Raises ValueError if an exercise
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
            raise ValueError(f"an exercise number looks like 02.3, but this one is {self.id!r}")
        if len(self.mistakes) < 2:
            raise ValueError(f"exercise {self.id} needs at least two plausible wrong answers")
        if not self.hints:
            raise ValueError(f"exercise {self.id} needs a hint")

    def on(self, data: Any = None) -> Question:
        """Return this exercise as a question about `data`."""
        return Question(self, data)


@dataclass(frozen=True)
class Result:
    """Outcome of one check and the message to the learner.

    cause   -- error that prevented the check, or None.
    mistake -- index of the known mistake, or None for any other answer.
    """

    outcome: Outcome
    message: str
    cause: Exception | None = None
    mistake: int | None = None

    @property
    def notice(self) -> Notice:
        """Result as the notebook shows it."""
        heading, tone = {
            Outcome.PASSED: ("Passed", "passed"),
            Outcome.WRONG: ("Not yet right", "wrong"),
            Outcome.NOT_ATTEMPTED: ("Not attempted", "open"),
        }[self.outcome]
        return Notice(heading, self.message, tone)


@dataclass(frozen=True, repr=False)
class Question:
    """An exercise with the learner's data. Its methods show results and return None."""

    exercise: Exercise
    data: Any = None

    def on(self, data: Any) -> Question:
        """Return the same question about other data, such as the learner's own run."""
        return Question(self.exercise, data)

    def check(self, answer: Any = ...) -> None:
        """Show whether the answer is right, without raising.

        With PROFLAB_STRICT=1, a wrong answer raises ExerciseNotPassed, and a right answer triggers
        the exercise's self-test on this data.
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
        # On a noisy machine, a wrong answer can be right for the data that was just measured.
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
            text = "There is no data for this check because the trace isn't here."
            return Result(Outcome.NOT_ATTEMPTED, text)
        # Turn an error here into a message, because a learner's cell must never show a traceback
        # from the course.
        try:
            right = self.exercise.answer.right(self.data)
        except Exception as error:
            text = f"The check doesn't work with this data: {_describe(error)}"
            return Result(Outcome.NOT_ATTEMPTED, text, error)
        try:
            return self._judge(answer, right)
        except Exception as error:
            text = f"The check doesn't work with this answer: {_describe(error)}"
            return Result(Outcome.WRONG, text, error)

    def prove(self, mistakes: bool = True) -> None:
        """Assert that the exercise works on this data.

        The right answer must pass, each known mistake must get its reply, and `...` must count as
        not attempted. Raises AssertionError that describes the exercise and the failure.
        """
        right = self.exercise.answer.right(self.data)
        # Text accepts several answers, but a learner gives only one.
        right = right[0] if isinstance(self.exercise.answer, Text) else right
        expected: list[tuple[Any, Outcome, str]] = [
            (..., Outcome.NOT_ATTEMPTED, ""),
            (right, Outcome.PASSED, ""),
        ]
        # Compute each answer once and compare all others with it.
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
            # A pass with a cause is a failure here because its insight couldn't be computed.
            failed = outcome is Outcome.PASSED and result.cause is not None
            if result.outcome is not outcome or failed or message not in result.message:
                raise AssertionError(
                    f"exercise {self.exercise.id}: {outcome.value} and {message!r} expected for"
                    f" {answer!r}, but {result.outcome.value}: {result.message or result.cause}"
                ) from result.cause

    def hint(self, number: int = 1) -> None:
        """Show hint `number`, starting with 1. Later hints help more."""
        hints = self.exercise.hints
        self._note("hint", number=number)
        if not isinstance(number, int) or not 1 <= number <= len(hints):
            text = f"This exercise has hints 1 to {len(hints)}, then `q.solution()`."
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
        # Check the right answer first, because a known mistake may give the same value.
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
        except Exception as error:  # a right answer stays right, but the self-test checks the cause
            return Result(Outcome.PASSED, "", error)

    def _is(self, answer: Any, mistake: Mistake) -> bool:
        try:
            return self.exercise.answer.same(answer, mistake.answer(self.data))
        except Exception:  # this mistake isn't possible with this data
            return False

    def _note(self, event: str, **details: Any) -> None:
        journal.append(PROGRESS_FILE, {"exercise": self.exercise.id, "event": event, **details})


def untouched(answer: Any) -> bool:
    """Return True if the answer, or one of its items, is still the notebook's `...`."""
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
"""Lines around the part that learners don't see. Without END, this part extends to the cell's
end.
"""


class ExerciseCell(NamedTuple):
    """Question in the comment above an exercise, and the code that solves it."""

    question: str
    solution: str


def exercise_cell(id: str) -> ExerciseCell:
    """Return an exercise's cell. Raises ValueError unless there is exactly one with both parts."""
    # Read the lesson, which is the only place for the question and the solution.
    source = source_of(id[:2])
    cells = re.split(r"^# %%.*\n", source.read_text(encoding="utf-8"), flags=re.MULTILINE)
    own = [cell for cell in cells if f'exercise("{id}"' in cell]
    if len(own) != 1:
        raise ValueError(f"{source}: exercise {id} is in {len(own)} cells, but it must be in one")
    before, _, after = own[0].partition(f"{BEGIN}\n")
    solution = textwrap.dedent(after.partition(END)[0]).strip("\n")
    question = " ".join(line[2:] for line in before.splitlines() if line.startswith("# "))
    if not question or not solution:
        raise ValueError(
            f"{source}: exercise {id} needs a question in a comment above it and the line `{BEGIN}`"
        )
    return ExerciseCell(question, solution)
