"""The exercises machine on one tiny lesson: three outcomes, hints, solution, strict mode,
self-test, registry.
"""

from __future__ import annotations

import dataclasses
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
from proflab.exercises.model import exercise_cell
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
def lesson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lesson(tmp_path / "99_busy", SOURCE)
    (tmp_path / "99_busy" / "exercises.py").write_text(LESSON)
    monkeypatch.setattr(lessons, "lessons_folder", lambda: tmp_path)


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.strip()


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


def test_right_wrong_and_untouched(capsys: pytest.CaptureFixture[str]) -> None:
    q = exercise("99.1", INTERVALS)
    assert q.check(BUSY) is None
    assert shown(capsys) == "Passed: A sum over streams may exceed the span."
    q.check(SUMMED)
    assert shown(capsys) == "Not yet right: The 3 intervals overlap: merge them first."
    q.check(IDLE)
    assert shown(capsys) == "Not yet right: This is the idle share."
    q.check(90)
    assert shown(capsys).startswith(
        "Not yet right: This is a hundred times too big. This looks like percent;"
    )
    for untouched in ((), (...,), ((0.9, ...),), ({"busy": ...},)):
        q.check(*untouched)
        assert shown(capsys).startswith("Not attempted")


def test_answer_follows_the_data_at_hand() -> None:
    q = exercise("99.1").on([(0, 5), (5, 10)])
    assert q.evaluate(1.0).outcome is Outcome.PASSED
    assert q.evaluate(BUSY).outcome is Outcome.WRONG
    # On one stream the sum is right: the known mistake must not stand in its way.
    assert exercise("99.1", INTERVALS).on([(0, 10)]).evaluate(1.0).outcome is Outcome.PASSED


def test_without_data_nothing_is_judged() -> None:
    result = exercise("99.1").evaluate(BUSY)
    assert result.outcome is Outcome.NOT_ATTEMPTED
    assert "no data" in result.message
    alone = simple(answer=Number(lambda data: 4), needs_data=False)
    assert alone.on().evaluate(4).outcome is Outcome.PASSED


class Hostile:
    """An object that raises at every turn."""

    shape = (1,)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    __hash__ = None

    def __repr__(self) -> str:
        return "Hostile()"


@pytest.mark.parametrize(
    "answer", [None, "text", [1, 2], {}, Hostile, object(), b"x", float("nan")]
)
def test_check_never_raises_whatever_the_answer(
    answer: object, capsys: pytest.CaptureFixture[str]
) -> None:
    exercise("99.1", INTERVALS).check(answer)
    assert shown(capsys).startswith("Not yet right")


def test_check_survives_an_object_that_raises_at_every_turn(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exercise("99.1", INTERVALS).check(Hostile())
    assert shown(capsys) == "Not yet right: The check can't work with this answer: RuntimeError: no"


def test_data_that_gives_no_answer_is_not_the_learners_fault(
    capsys: pytest.CaptureFixture[str],
) -> None:
    q = simple().on({})
    q.check(3)
    assert shown(capsys) == "Not attempted: It can't be checked on this data: KeyError: 'count'"


def test_mistake_that_cannot_be_made_on_this_data_is_ignored() -> None:
    result = simple().on({"count": 4}).evaluate(2)
    assert result.outcome is Outcome.WRONG
    assert result.message == "2 is too small. `q.hint()` helps."


def test_property_that_stumbles_is_a_wrong_answer() -> None:
    kind = Property(lambda answer, data: answer["parts"] > 0, example=lambda data: {"parts": 1})
    result = simple(answer=kind).on({"count": 1}).evaluate([1])
    assert result.outcome is Outcome.WRONG
    assert result.message.startswith("The check can't work with this answer: TypeError")


def test_failing_insight_does_not_spoil_a_pass() -> None:
    broken = simple(insight=lambda data: data["missing"])
    data = {"count": 4, "half": 2}
    assert broken.on(data).evaluate(4).outcome is Outcome.PASSED
    with pytest.raises(AssertionError, match="'missing'"):
        selftest(broken, data)


def test_hints_rise_and_lead_to_the_solution(capsys: pytest.CaptureFixture[str]) -> None:
    q = exercise("99.1", INTERVALS)
    q.hint()
    assert shown(capsys) == "Hint 1 of 2: Look for overlaps. (More: `q.hint(2)`)"
    q.hint(2)
    assert shown(capsys) == "Hint 2 of 2: Use the union, `busy()`. (More: `q.solution()`)"
    for beyond in (3, 0, "first"):
        q.hint(beyond)
        assert shown(capsys).startswith("No such hint: There are hints 1 to 2")
    q.solution()
    assert (
        shown(capsys).splitlines()[1].strip()
        == "answer = len({t for a, b in intervals for t in range(a, b)}) / 10"
    )


def test_question_and_solution_come_from_the_lesson(tmp_path: Path) -> None:
    asked = "4 minutes: which share of the span is the device busy? Count what overlaps once."
    assert repr(exercise("99.1", INTERVALS)) == f"Exercise 99.1, {asked}"
    for text, message in [
        (SOURCE.replace("# solution", "#"), "a question as comment above it"),
        (
            SOURCE.replace("# 4 minutes", "").replace("# Count", ""),
            "a question as comment above it",
        ),
        (SOURCE + SOURCE, "stands in 2 cells"),
    ]:
        write_lesson(tmp_path / "99_busy", text)
        with pytest.raises(ValueError, match=message):
            exercise_cell("99.1")


def test_strict_mode_raises_unless_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFLAB_STRICT", "1")
    q = exercise("99.1", INTERVALS)
    q.check(BUSY)
    q.check(...)  # a cell as shipped stops no run
    for answer in (SUMMED, None):
        with pytest.raises(ExerciseNotPassed, match=r"exercise 99\.1"):
            q.check(answer)
    with pytest.raises(ExerciseNotPassed) as caught:
        simple().on({}).check(4)
    assert isinstance(caught.value.__cause__, KeyError)


def test_strict_mode_proves_the_exercise_on_its_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that is right on this data is found, unless noise may have made it so."""
    monkeypatch.setenv("PROFLAB_STRICT", "1")
    monkeypatch.setattr(model, "PROVEN", set())
    data = SimpleNamespace(origin=Origin("modelled", "by hand"))
    shares = {
        "answer": Number(lambda data: 0.5, "fraction"),
        "mistakes": (Mistake(lambda data: 0.5, "no"),) * 2,
    }
    item = dataclasses.replace(find("99.1"), **shares)
    with pytest.raises(AssertionError, match=r"exercise 99\.1, mistake 1"):
        item.on(data).check(0.5)
    dataclasses.replace(item, measured=True).on(data).check(0.5)
    data.origin = Origin("measured", "here")
    item.on(data).check(0.5)
    assert {"99.1"} == model.PROVEN


def test_a_lesson_is_proven_when_all_its_exercises_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PROVEN", {"98.1"})
    with pytest.raises(AssertionError, match=r"not passed in this notebook: 99\.1"):
        registry.all_proven("99")
    with pytest.raises(AssertionError, match=r"not passed in this notebook: 99\.1"):
        registry.all_proven("98.1", "99.1")
    registry.all_proven("98.1")


def test_selftest_proves_a_good_exercise() -> None:
    selftest("99.1", INTERVALS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"mistakes": (Mistake(lambda data: 4, "Same."), Mistake(lambda data: 2, "Half."))},
            "mistake 1",
        ),
        (
            {"mistakes": (Mistake(lambda data: 3, "A."), Mistake(lambda data: 3, "B."))},
            "the message 'B.' expected",
        ),
        (
            {"mistakes": (Mistake(lambda data: 3, ""), Mistake(lambda data: 2, "B."))},
            "its message is empty",
        ),
        ({"answer": Number(lambda data: data["nothing"])}, "nothing"),
    ],
)
def test_selftest_finds_a_bad_exercise(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((AssertionError, KeyError), match=message):
        selftest(simple(**changes), {"count": 4, "half": 2})


def test_selftest_works_for_texts_with_several_right_answers() -> None:
    kind = Text(lambda data: ("rank 3", "3"))
    mistakes = (
        Mistake(lambda data: "rank 0", "It waits."),
        Mistake(lambda data: "rank 1", "It waits, too."),
    )
    selftest(simple(answer=kind, mistakes=mistakes), {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "2.3"}, "numbered like 02.3"),
        ({"mistakes": ()}, "two plausible wrong answers"),
        ({"hints": ()}, "needs a hint"),
    ],
)
def test_incomplete_exercise_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        simple(**changes)


def test_unknown_exercise_is_one_line() -> None:
    with pytest.raises(CourseError, match=r"there is no exercise '99\.2': did you mean 99\.1\?"):
        exercise("99.2")
    for unknown in ("98.1", "nonsense", "", "../99.1"):
        with pytest.raises(CourseError, match="lessons with exercises"):
            exercise(unknown)


def test_all_exercises_lists_the_lesson() -> None:
    assert "99.1" in [item.id for item in all_exercises()]


def test_exercise_of_another_lesson_is_refused(tmp_path: Path) -> None:
    (tmp_path / "99_busy" / "exercises.py").write_text(LESSON.replace("99.1", "98.1"))
    with pytest.raises(ValueError, match="belongs to another lesson"):
        exercise("99.1")


def test_what_comes_from_files_is_escaped_in_html() -> None:
    kind = Text(lambda data: "gemm")
    mistakes = simple().mistakes
    evil = "<script>alert('x')</script>"
    result = dataclasses.replace(simple(answer=kind, mistakes=mistakes)).on({}).evaluate(evil)
    html = result.notice._repr_html_()
    assert "<script>" not in html
    assert "<code>&lt;script&gt;" in html
    assert "Not yet right" in html
    assert evil in str(result.notice)


def test_progress_is_kept_in_a_local_file(bench: Path) -> None:
    q = exercise("99.1", INTERVALS)
    q.check(SUMMED)
    q.hint()
    q.check(BUSY)
    q.solution()
    records = journal.read(bench / "progress.jsonl")
    assert [(record["event"], record.get("outcome")) for record in records] == [
        ("check", "wrong"),
        ("hint", None),
        ("check", "passed"),
        ("solution", None),
    ]
    assert {record["exercise"] for record in records} == {"99.1"}
    assert records[0]["mistake"] == 0
    assert records[0]["said"].endswith("intervals overlap: merge them first.")
    assert "mistake" not in records[2]


def test_unwritable_progress_costs_the_note_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path / "file"))
    exercise("99.1", INTERVALS).check(BUSY)
    captured = capsys.readouterr()
    assert captured.out.startswith("Passed")
    assert "is not remembered" in captured.err
