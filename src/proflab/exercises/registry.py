"""Find an exercise by its id, and prove that it works: for the tests, and for the lessons while
they are tested.

The module `exercises.py` beside a lesson is imported when it is first asked for.
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
    """The question `id` (such as "02.3") put to `data`, ready for check, hint and solution.

    Raises CourseError for an unknown id.
    """
    return find(id).on(data)


def find(id: str) -> Exercise:
    """The exercise with this id; raises CourseError for an unknown one."""
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
    """Every exercise of every lesson, in order."""
    return [exercise for number in lessons() for exercise in _by_id(number).values()]


def exercises_of(number: str) -> ModuleType:
    """The module with a lesson's EXERCISES; raises CourseError for an unknown lesson."""
    path = source_of(number).with_name("exercises.py")
    name = f"lesson_{number}_exercises"
    if getattr(sys.modules.get(name), "__file__", None) != str(path):
        # By its path: the lesson's folder begins with a digit, so no import statement can name it.
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
                f"lesson {number}: exercise {exercise.id} is there twice or belongs to another"
                " lesson"
            )
        found[exercise.id] = exercise
    return found


def all_proven(*asked: str) -> None:
    """Assert that these exercises, or all exercises of these lessons, have passed and were proven
    in this notebook.

    Raises AssertionError.
    """
    wanted = [
        item.id
        for number in asked
        for item in ([find(number)] if "." in number else _by_id(number).values())
    ]
    missing = [id for id in wanted if id not in PROVEN]
    if missing:
        raise AssertionError(f"not passed in this notebook: {', '.join(missing)}")


def selftest(exercise: Exercise | str, data: Any = None, mistakes: bool = True) -> None:
    """Assert the same as `Question.prove`, for an exercise or its id on some data."""
    (find(exercise) if isinstance(exercise, str) else exercise).on(data).prove(mistakes)
