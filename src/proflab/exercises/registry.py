"""Find an exercise by its id; the lesson's module is imported when first asked for."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from typing import Any

from proflab.display import near
from proflab.errors import CourseError
from proflab.exercises.model import Exercise, Question


def exercise(id: str, data: Any = None) -> Question:
    """The question `id` (such as "02.3") put to `data`, ready for check, hint and solution.

    Raises CourseError for an unknown id.
    """
    return find(id).on(data)


def find(id: str) -> Exercise:
    """The exercise with this id; raises CourseError for an unknown one."""
    number = str(id).partition(".")[0]
    module = f"proflab.exercises.lesson_{number}"
    if not re.fullmatch(r"\d\d", number) or importlib.util.find_spec(module) is None:
        raise CourseError(f"there is no exercise {id!r}: {near(number, _lessons())} (lessons with exercises)")
    exercises = _of_lesson(module)
    if id not in exercises:
        raise CourseError(f"there is no exercise {id!r}: {near(id, exercises)}")
    return exercises[id]


def all_exercises() -> list[Exercise]:
    """Every exercise of every lesson, in order."""
    return [exercise for number in _lessons() for exercise in _of_lesson(f"proflab.exercises.lesson_{number}").values()]


def _lessons() -> list[str]:
    import proflab.exercises as package

    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return sorted(name.removeprefix("lesson_") for name in names if re.fullmatch(r"lesson_\d\d", name))


def _of_lesson(module: str) -> dict[str, Exercise]:
    found: dict[str, Exercise] = {}
    number = module.rpartition("_")[2]
    for exercise in importlib.import_module(module).EXERCISES:
        if exercise.id in found or not exercise.id.startswith(f"{number}."):
            raise ValueError(f"{module}: exercise {exercise.id} is there twice or belongs to another lesson")
        found[exercise.id] = exercise
    return found
