"""Exercises that check an answer against the learner's data, with hints and solutions.

The module `exercises.py` in a lesson's folder lists the lesson's exercises as EXERCISES:

    EXERCISES = (
        Exercise(
            id="02.3",
            answer=Number(busy_share, unit="fraction", relative=0.01),
            mistakes=(
                Mistake(summed_share, "Streams overlap. Merge the intervals before you add them."),
                Mistake(idle_share, "This is the idle share."),
            ),
            hints=("Look at `busy()`.", "The union is in the column `busy_ns`."),
        ),
    )

Each function in this list receives the learner's data from `exercise("02.3", data)`. The
lesson's cell with this call contains the question and its solution.
"""

from __future__ import annotations

from proflab.exercises.answers import Number, Property, Text
from proflab.exercises.model import Exercise, ExerciseNotPassed, Mistake, Outcome, Question, Result
from proflab.exercises.registry import all_exercises, exercise, exercises_of, find, selftest

__all__ = [
    "Exercise",
    "ExerciseNotPassed",
    "Mistake",
    "Number",
    "Outcome",
    "Property",
    "Question",
    "Result",
    "Text",
    "all_exercises",
    "exercise",
    "exercises_of",
    "find",
    "selftest",
]
