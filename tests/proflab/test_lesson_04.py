"""What is left in Python of lesson 04: checks on tables made by hand, AMD's tables, the steady part of a run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find
from proflab.lessons import lesson as lesson_of
from proflab.parts.steady_part import mean_steps, own_run, steady_part
from tests.tidyprof.analyses.test_analyses import ORIGIN, event, host_step, profile_of

lesson = exercises_of("04")

MS = 1_000_000


@pytest.fixture
def published() -> pd.DataFrame:
    return pd.read_csv(lesson_of("04").folder / "amd_kernel_tables.csv", comment="#")


def test_the_warm_up_is_left_out_on_each_rank_by_its_own_steps() -> None:
    # Three steps of 10 ms, the first is warm-up. Rank 1 is 4 ms late, so its last kernel runs after rank 0's last step.
    rows = []
    for rank, late in ((0, 0), (1, 4 * MS)):
        for step in range(3):
            begin = late + 10 * step * MS
            rows.append(host_step(step, begin, begin + 10 * MS, rank=rank))
            rows.append(event("kernel", f"k{step}", begin + 8 * MS, begin + 9 * MS, rank=rank, device=rank))
    part = steady_part(profile_of(*rows))
    assert (part.steps, part.duration_ns) == (2, 20 * MS)
    assert part.dispatches.groupby("rank")["name"].apply(list).to_dict() == {0: ["k1", "k2"], 1: ["k1", "k2"]}


def test_a_recording_without_steps_says_how_to_get_them() -> None:
    with pytest.raises(ValueError, match="--roctx and rocprofv3 with --marker-trace"):
        steady_part(profile_of(event("kernel", "k", 0, 1000)))


def test_mean_steps_are_named_by_their_run_and_keep_the_origin() -> None:
    steps = [host_step(step, 10 * step, 10 * (step + 1)) for step in range(2)]
    profile = profile_of(*steps, event("kernel", "k", 2, 5), event("kernel", "k", 12, 17))
    means = mean_steps({"small": tidyprof.step_budget(profile)})
    assert means[["step", "duration_ns", "compute_ns"]].to_numpy().tolist() == [["small", 10, 4]]
    assert means.attrs["origin"] == str(ORIGIN)


def test_what_a_stand_in_wrote_is_modelled_and_anything_else_measured(tmp_path: Path) -> None:
    from proflab import recording

    (written,) = (recording("modelled-resnet").path / "rocprofv3").glob("*kernel_trace.csv.gz")
    assert own_run(written).origin.kind == "modelled"
    (tmp_path / written.name).write_bytes(written.read_bytes())
    assert own_run(tmp_path / written.name).origin.kind == "measured"


@pytest.mark.parametrize("run", ["one GPU", "parallel"])
def test_published_rows_agree_with_each_other(published: pd.DataFrame, run: str) -> None:
    table = published[published["run"] == run]
    # Percentages are printed with two digits behind the point, or with four significant ones.
    shares = 100 * table["total_ns"] / lesson.everything_ns(table)
    assert shares.tolist() == pytest.approx(table["percent"].tolist(), abs=0.006)
    assert (table["total_ns"] / table["calls"]).between(table["min_ns"], table["max_ns"]).all()
    assert table["total_ns"].is_monotonic_decreasing
    norms = table[table["name"].str.startswith("MIOpenBatchNorm")]
    assert (norms["calls"] == lesson.NORMS * lesson.steps_of(table)).all()
    assert lesson.steps_of(table) == {"one GPU": 21, "parallel": 20}[run]


def test_published_runs_compute_for_about_as_long(published: pd.DataFrame) -> None:
    single, parallel = (published[published["run"] == run] for run in ("one GPU", "parallel"))
    # 205.6 ms in 21 steps; 916.5 / 0.8274 = 1107.7 ms less 916.5 ms in 20 steps.
    assert lesson.everything_ns(single) / lesson.steps_of(single) / 1e6 == pytest.approx(9.79, abs=0.01)
    assert lesson.work_per_step_ms(parallel) == pytest.approx(9.56, abs=0.01)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_the_total_of_all_kernels_may_come_from_any_of_the_first_rows(published: pd.DataFrame, row: int) -> None:
    parallel = published[published["run"] == "parallel"].reset_index(drop=True)
    everything = parallel["total_ns"].iloc[row] / parallel["percent"].iloc[row] * 100
    answer = (everything - parallel["total_ns"].iloc[0]) / lesson.steps_of(parallel) / 1e6
    assert find("04.6").on(parallel).evaluate(answer).outcome is Outcome.PASSED
