"""The machine of exercises on one tiny lesson: outcomes, hints, solution, strict mode, self-test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from proflab import exercise, journal, lessons
from proflab.errors import CourseError
from proflab.exercises import (
    Exercise,
    ExerciseNotPassed,
    Mistake,
    Number,
    Outcome,
    Property,
    Text,
    all_exercises,
    find,
    model,
    registry,
    selftest,
)
from tests.proflab.test_notebook_build import write_lesson
from tidyprof.tables.contract import Origin

LESSON = '''
"""A lesson of one exercise: the busy share of overlapping (start, end) intervals."""

from proflab.exercises import Exercise, Mistake, Number


def busy_share(intervals):
    covered = {tick for start, end in intervals for tick in range(start, end)}
    return len(covered) / span(intervals)


def summed_share(intervals):
    return sum(end - start for start, end in intervals) / span(intervals)


def span(intervals):
    return max(end for _, end in intervals) - min(start for start, _ in intervals)


EXERCISES = (
    Exercise(
        id="99.1",
        answer=Number(busy_share, unit="fraction"),
        mistakes=(
            Mistake(summed_share, lambda data: f"The {len(data)} intervals overlap: merge them first."),
            Mistake(lambda data: 1 - busy_share(data), "This is the idle share."),
        ),
        hints=("Look for overlaps.", "Use the union, `busy()`."),
        insight="A sum over streams may exceed the span.",
    ),
)
'''

SOURCE = """# %% [markdown]
# # Intervals

# %%
# 4 minutes: which share of the span is the device busy?
# Count what overlaps once.
q = exercise("99.1", intervals)
# solution
answer = len({t for a, b in intervals for t in range(a, b)}) / 10
# end solution
q.check(answer)
"""

# Two streams over ten ticks: 0-6 and 4-8 cover eight ticks, their lengths sum to ten, and tick 9 to
# 10 ends the span.
INTERVALS = [(0, 6), (4, 8), (9, 10)]
BUSY, SUMMED, IDLE = 0.9, 1.1, 0.1


@pytest.fixture(autouse=True)
def lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_lesson(tmp_path / "99_busy", SOURCE)
    (tmp_path / "99_busy" / "exercises.py").write_text(LESSON)
    monkeypatch.setattr(lessons, "lessons_folder", lambda: tmp_path)
    return tmp_path / "99_busy"


def simple(**changes: Any) -> Exercise:
    plain = {
        "id": "99.7",
        "answer": Number(lambda data: data["count"], relative=0),
        "mistakes": (
            Mistake(lambda data: data["count"] + 1, "One too many."),
            Mistake(lambda data: data["half"], "Only half."),
        ),
        "hints": ("Count.",),
    }
    return Exercise(**{**plain, **changes})


class Hostile:
    """An object that raises at every turn."""

    shape = (1,)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("data", "answer", "outcome", "mistake", "words"),
    [
        (INTERVALS, BUSY, Outcome.PASSED, None, "may exceed the span"),
        (INTERVALS, SUMMED, Outcome.WRONG, 0, "The 3 intervals overlap"),
        (INTERVALS, IDLE, Outcome.WRONG, 1, "idle share"),
        (INTERVALS, 90, Outcome.WRONG, None, "percent"),
        (INTERVALS, "x", Outcome.WRONG, None, "x"),
        pytest.param(INTERVALS, Hostile(), Outcome.WRONG, None, "RuntimeError", id="hostile"),
        (INTERVALS, ..., Outcome.NOT_ATTEMPTED, None, "..."),
        (INTERVALS, (0.9, ...), Outcome.NOT_ATTEMPTED, None, "..."),
        (INTERVALS, {"busy": ...}, Outcome.NOT_ATTEMPTED, None, "..."),
        # On one stream the sum is right: the known mistake must not stand in its way.
        ([(0, 10)], 1.0, Outcome.PASSED, None, ""),
        (None, BUSY, Outcome.NOT_ATTEMPTED, None, "data"),
        ([], BUSY, Outcome.NOT_ATTEMPTED, None, "ValueError"),
        ("odd", BUSY, Outcome.NOT_ATTEMPTED, None, "ValueError"),
    ],
)
def test_each_outcome(
    data: Any, answer: Any, outcome: Outcome, mistake: int | None, words: str, bench: Path, capsys
) -> None:
    q = exercise("99.1", data)
    result = q.evaluate(answer)
    assert (result.outcome, result.mistake) == (outcome, mistake)
    assert words in result.message
    assert q.check(answer) is None
    assert result.message in capsys.readouterr().out
    (record,) = journal.read(bench / model.PROGRESS_FILE)
    assert (record["exercise"], record["outcome"]) == ("99.1", outcome.value)


def test_faults_of_an_exercise_do_not_hit_the_learner() -> None:
    broken = simple(
        mistakes=(Mistake(lambda data: data["none"], "a"), Mistake(lambda data: 1 / 0, "b")),
        insight=lambda data: data["none"],
    )
    assert broken.on({"count": 4}).evaluate(4).outcome is Outcome.PASSED
    assert broken.on({"count": 4}).evaluate(5).outcome is Outcome.WRONG
    stumbles = simple(answer=Property(lambda answer, data: answer[0], lambda data: "x"))
    assert stumbles.on({}).evaluate(3).outcome is Outcome.WRONG
    alone = simple(answer=Number(lambda data: 4), needs_data=False)
    assert alone.on().evaluate(4).outcome is Outcome.PASSED


def test_hints_rise_and_lead_to_the_solution(capsys: pytest.CaptureFixture[str]) -> None:
    q = exercise("99.1", INTERVALS)
    assert "which share of the span" in repr(q)
    for number, words in ((1, "q.hint(2)"), (2, "q.solution()"), (3, "1 to 2"), ("x", "1 to 2")):
        q.hint(number)
        assert words in capsys.readouterr().out
    q.solution()
    assert "answer = len({t for a, b" in capsys.readouterr().out


def test_strict_mode_raises_unless_passed_and_proves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFLAB_STRICT", "1")
    monkeypatch.setattr(model, "PROVEN", set())
    monkeypatch.setattr(registry, "PROVEN", model.PROVEN)
    q = exercise("99.1", INTERVALS)
    q.check(...)
    with pytest.raises(ExerciseNotPassed):
        q.check(IDLE)
    with pytest.raises(AssertionError):
        registry.all_proven("99")
    # On this data the sum is right, so that the mistake can't be told from the right answer.
    with pytest.raises(AssertionError):
        exercise("99.1", [(0, 5), (9, 10)]).check(0.6)
    q.check(BUSY)
    registry.all_proven("99", "99.1")
    measured = SimpleNamespace(origin=Origin("measured"), count=4, half=5)
    kind = Number(lambda data: data.count)
    mistakes = [Mistake(lambda data: 4, "a"), Mistake(lambda data: data.half, "b")]
    simple(answer=kind, mistakes=mistakes).on(measured).check(4)


@pytest.mark.parametrize(
    "changes",
    [
        {"mistakes": (Mistake(lambda data: 4, "Same."), Mistake(lambda data: 2, "Half."))},
        {"mistakes": (Mistake(lambda data: 3, "A."), Mistake(lambda data: 3, "B."))},
        {"mistakes": (Mistake(lambda data: 3, ""), Mistake(lambda data: 2, "Half."))},
        {"insight": lambda data: data["none"]},
    ],
)
def test_selftest_finds_a_bad_exercise(changes: dict[str, Any]) -> None:
    selftest(simple(), {"count": 4, "half": 2})
    with pytest.raises(AssertionError, match=r"99\.7"):
        selftest(simple(**changes), {"count": 4, "half": 2})


def test_selftest_works_for_texts_with_several_right_answers() -> None:
    mistakes = [Mistake(lambda data: "x", "no x"), Mistake(lambda data: "y", "no y")]
    selftest(simple(answer=Text(lambda data: ("a", "b")), mistakes=mistakes), {})


@pytest.mark.parametrize("changes", [{"id": "9.1"}, {"mistakes": ()}, {"hints": ()}])
def test_incomplete_exercise_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"9\.\d"):
        simple(**changes)


def test_exercises_are_found_by_their_id(lesson: Path) -> None:
    assert [one.id for one in all_exercises()] == ["99.1"]
    for id in ("98.1", "99.2", "x"):
        with pytest.raises(CourseError):
            find(id)
    registry.sys.modules.pop("lesson_99_exercises")
    (lesson / "exercises.py").write_text(LESSON.replace('"99.1"', '"98.1"') + "# changed\n")
    with pytest.raises(ValueError, match=r"98\.1"):
        all_exercises()


def test_unwritable_progress_costs_the_note_only(
    bench: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write_text("a file where the folder should be")
    exercise("99.1", INTERVALS).check(BUSY)
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.out
