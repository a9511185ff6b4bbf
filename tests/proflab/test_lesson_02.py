"""Lesson 02: its exercises on synthetic budgets, on the example run and on traces."""

from __future__ import annotations

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find
from proflab.recordings import recording
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

lesson = exercises_of("02")


@pytest.fixture(scope="module")
def gpu() -> Profile:
    """The example run on the H200, as the lesson shows it without a GPU."""
    return tidyprof.read(recording("torch-h200-case-plain").path)


def test_budget_accepts_any_division_that_adds_up(gpu: Profile) -> None:
    parts = lesson.second_step_parts(gpu)
    question = find("02.2").on(gpu)
    assert question.evaluate(pd.Series(parts)).outcome is Outcome.PASSED
    half, other = parts["copy"] // 2, parts["copy"] - parts["copy"] // 2
    assert question.evaluate({**parts, "copy": half, "rest": other}).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda parts: sum(parts.values()), "dictionary"),
        (
            lambda parts: parts | {"idle": Intervals.window(0, parts["idle"])},
            lesson.NOT_NUMBERS,
        ),
        (lambda parts: parts | {"idle": "much"}, lesson.NOT_NUMBERS),
        (lambda parts: {**parts, "idle": -1, "more": parts["idle"] + 1}, "negative"),
        (
            lambda parts: {**parts, "compute": 0, "idle": parts["idle"] + parts["compute"]},
            lesson.WRONG_PART["compute"],
        ),
        (
            lambda parts: {**parts, "data_wait": 0, "idle": parts["idle"] + parts["data_wait"]},
            lesson.WRONG_PART["data_wait"],
        ),
        (
            lambda parts: {**parts, "more": 5_000_000},
            "outside `whole_step`",
        ),
        (lambda parts: {"kernels": 1, "copies": 2, "idle": 3}, lesson.missing_part("compute")),
        (lambda parts: {**parts, "idle": 0, "rest": parts["idle"]}, lesson.WRONG_PART["idle"]),
    ],
)
def test_budget_names_what_is_wrong(change, words: str, gpu: Profile) -> None:
    result = find("02.2").on(gpu).evaluate(change(lesson.second_step_parts(gpu)))
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_the_example_run_on_a_gpu_shows_what_the_lesson_says(gpu: Profile) -> None:
    budget = tidyprof.step_budget(gpu, timeline="device")
    parts = {part: budget[f"{part}_ns"].mean() for part in tidyprof.analyses.budget_parts(budget)}
    assert sorted(parts, key=parts.get)[-2:] == ["launch_bound", "data_wait"]
    untraced, added = (
        budget.attrs["unprofiled_step_ns"],
        budget["duration_ns"].mean() - budget.attrs["unprofiled_step_ns"],
    )
    assert added > 0.5 * untraced
    assert parts["data_wait"] - added > 0.7 * untraced, (
        "the verdict holds if all that the profiler adds is in it"
    )
    work = gpu.device_events
    assert (work["start_ns"] - work["launch_ns"]).median() < 100_000
    assert (gpu.events["name"] == "aten::item").sum() > 1000


def test_the_manual_calculations_of_the_lesson_agree_with_the_library(gpu: Profile) -> None:
    rank = tidyprof.read(recording("torch-mi300x-resnet-ddp-rank0").path)
    events = rank.device_events
    events = events[events["kind"].isin(["kernel", "collective"])].sort_values("start_ns")
    end = events["start_ns"] + events["duration_ns"]
    seen_until = end.cummax().shift(fill_value=0)
    added = (end - events["start_ns"].clip(lower=seen_until)).clip(lower=0)
    assert added.sum() == tidyprof.busy(rank, ["kernel", "collective"])["busy_ns"].sum()
    ranges = gpu.events.query("kind == 'annotation' and device.isna()")
    sums = ranges.groupby("name", observed=True)["duration_ns"].sum()
    phases = tidyprof.phases(gpu)
    assert sums[phases["phase"].unique()].sum() == phases["duration_ns"].sum()


def test_a_difference_of_sums_is_not_taken_for_the_share_of_the_span() -> None:
    rank = tidyprof.read(recording("torch-mi300x-resnet-ddp-rank0").path)
    answer = lesson.share(rank, "sum of collective", "sum of kernel", "sum of collective")
    result = find("02.1").on(rank).evaluate(answer)
    assert result.outcome is Outcome.WRONG
    assert "span" not in result.message
