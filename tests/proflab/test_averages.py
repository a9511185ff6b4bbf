"""Averages and spreads of step times, on a run small enough to work out by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proflab.parts.averages import WAYS, averages, spread_table, verdict
from proflab.training import TrainingRun, training_run
from tests.proflab.training_records import write_run


@pytest.fixture
def run(tmp_path: Path) -> TrainingRun:
    # Warm-up 900 and 200, steady 20, 22, 60; the last step is under the profiler.
    return training_run(write_run(tmp_path, [900, 200, 20, 22, 60, 500], warmup=2, profiled=[5]))


def test_three_ways_give_three_numbers(run: TrainingRun) -> None:
    table = averages(run.steps)
    assert table["way"].tolist() == list(WAYS)
    assert table["steps"].tolist() == [5, 3, 3]
    assert (table["step_ns"] / 1e6).tolist() == pytest.approx([1202 / 5, 102 / 3, 22])
    assert table["images_per_second"].tolist() == pytest.approx([40 / 1.202, 24 / 0.102, 8 / 0.022])
    assert table.attrs["origin"] == run.origin


def test_no_steady_step_is_refused(tmp_path: Path) -> None:
    run = training_run(write_run(tmp_path / "short", [900, 200, 30], warmup=2, profiled=[2]))
    with pytest.raises(ValueError, match="run more steps"):
        averages(run.steps)


def test_spread_has_quartiles_and_leaves_empty_groups_out(run: TrainingRun) -> None:
    table = spread_table({"steady": run.steady, "none": run.steady.head(0), "watched": run.watched})
    assert table["steps_of"].tolist() == ["steady", "watched"]
    assert (table[["lower_ns", "median_ns", "upper_ns"]].iloc[0] / 1e6).tolist() == [21, 22, 41]
    assert table["images_per_second"].iloc[0] == pytest.approx(8 / 0.022)
    assert table.attrs["origin"] == str(run.origin)


def steps(*durations_ms: int) -> pd.DataFrame:
    return pd.DataFrame({"duration_ns": [value * 10**6 for value in durations_ms], "images": 8})


def test_verdict_claims_a_difference_only_beyond_all_others() -> None:
    base, like_base, far = steps(10, 11, 12), steps(12, 13, 14), steps(90, 95, 99)
    slower = verdict("Watched steps", steps(30, 33, 36), {"first": base, "off": like_base})
    ratios = "Watched steps took 3.00 times as long as in first and 2.54 times as long as in off (medians)."
    assert slower.startswith(ratios)
    assert slower.endswith("they were slower.")
    assert verdict("They", base, {"first": steps(30, 31, 32), "far": far}).endswith("they were faster.")
    assert "can't tell" in verdict("They", steps(30, 33, 36), {"first": base, "far": far})
    assert "can't tell" in verdict("They", steps(10, 30, 50), {"first": steps(12, 13, 31)})


@given(st.lists(st.integers(1, 10**10), min_size=1, max_size=20))
def test_equal_steps_are_never_told_apart(durations: list[int]) -> None:
    table = pd.DataFrame({"duration_ns": durations, "images": 8})
    assert "1.00 times" in verdict("They", table, {"others": table})
    assert "can't tell" in verdict("They", table, {"others": table})
