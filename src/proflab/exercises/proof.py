"""The proof that the exercises of a lesson work: tests call it, and the lessons themselves where they are tested."""

from __future__ import annotations

from typing import Any

from proflab.exercises.model import PROVEN, Exercise
from proflab.exercises.registry import all_exercises, find


def all_proven(lesson: str) -> None:
    """Assert that every exercise of a lesson was passed and proven in this notebook."""
    missing = [item.id for item in all_exercises() if item.id.startswith(lesson) and item.id not in PROVEN]
    if missing:
        raise AssertionError(f"not passed in this notebook: {', '.join(missing)}")


def selftest(exercise: Exercise | str, data: Any = None, mistakes: bool = True) -> None:
    """What `Question.prove` asserts, for an exercise or its id on some data."""
    (find(exercise) if isinstance(exercise, str) else exercise).on(data).prove(mistakes)
