"""The exercise of the notebook for a talk, which belongs to no lesson."""

from __future__ import annotations

from proflab.exercises import selftest
from proflab.exercises.model import exercise_cell
from proflab.lessons import lessons_folder


def test_its_exercise_is_found_and_its_solution_fits_the_script() -> None:
    selftest("90.1", "the script")
    solution: dict = {}
    exec(exercise_cell("90.1").solution, solution)
    script = (lessons_folder() / "14_your_own_code/sort_letters.py").read_text()
    assert [script.count(old) for old in solution["FIX"]] == [1, 1]
