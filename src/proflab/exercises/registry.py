"""Lookup of exercises by id, and self-tests of exercises.

The module `exercises.py` of a lesson is imported when one of its exercises is first needed.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

from proflab.display import near
from proflab.errors import CourseError
from proflab.exercises.model import PROVEN, Exercise, Question
from proflab.lessons import lessons, source_of


def exercise(id: str, data: Any = None) -> Question:
    """Return the question with this id (such as "02.3") and the learner's data.

    Raises CourseError for an unknown id.
    """
    return find(id).on(data)


def find(id: str) -> Exercise:
    """Return the exercise with this id. Raises CourseError for an unknown id."""
    number = str(id).partition(".")[0]
    try:
        source_of(number)
    except CourseError as error:
        raise CourseError(f"there is no exercise {id!r}: {error}") from None
    exercises = _by_id(number)
    if id not in exercises:
        raise CourseError(f"there is no exercise {id!r}: {near(id, exercises)}")
    return exercises[id]


def all_exercises() -> list[Exercise]:
    """Return all exercises of all lessons in order."""
    return [exercise for number in lessons() for exercise in _by_id(number).values()]


def exercises_of(number: str) -> ModuleType:
    """Return the module that contains a lesson's EXERCISES. Raises CourseError for an unknown
    lesson.
    """
    path = source_of(number).with_name("exercises.py")
    name = f"lesson_{number}_exercises"
    if getattr(sys.modules.get(name), "__file__", None) != str(path):
        # Import statements don't support folder names that start with a digit, so load by path.
        specification = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = module = importlib.util.module_from_spec(specification)
        try:
            specification.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _by_id(number: str) -> dict[str, Exercise]:
    found: dict[str, Exercise] = {}
    for exercise in exercises_of(number).EXERCISES:
        if exercise.id in found or not exercise.id.startswith(f"{number}."):
            raise ValueError(
                f"lesson {number}: exercise {exercise.id} is defined twice or belongs to another"
                " lesson"
            )
        found[exercise.id] = exercise
    return found


def all_proven(*asked: str) -> None:
    """Assert that these exercises passed their checks and self-tests in this notebook.

    `asked` contains exercise ids, or lesson numbers that represent all exercises of a lesson.
    Raises AssertionError if an exercise hasn't passed.
    """
    wanted = [
        item.id
        for number in asked
        for item in ([find(number)] if "." in number else _by_id(number).values())
    ]
    missing = [id for id in wanted if id not in PROVEN]
    if missing:
        raise AssertionError(
            f"these exercises weren't passed in this notebook: {', '.join(missing)}"
        )


def selftest(exercise: Exercise | str, data: Any = None, mistakes: bool = True) -> None:
    """Run `Question.prove` for an exercise or its id. Raises AssertionError on failure."""
    (find(exercise) if isinstance(exercise, str) else exercise).on(data).prove(mistakes)
