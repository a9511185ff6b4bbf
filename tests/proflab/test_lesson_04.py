"""What is left in Python of lesson 04: checks on tables made by hand, AMD's tables, the steady part of a run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import exercises_of, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts.clinic_runs import modelled, plain_step
from proflab.parts.steady_part import mean_steps, own_run, steady_part
from proflab.recordings import recording
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
    (written,) = (recording("modelled-resnet").path / "rocprofv3").glob("*kernel_trace.csv.gz")
    assert own_run(written).origin.kind == "modelled"
    (tmp_path / written.name).write_bytes(written.read_bytes())
    assert own_run(tmp_path / written.name).origin.kind == "measured"


@pytest.mark.parametrize("run", ["one GPU", "parallel"])
def test_published_rows_agree_with_each_other(published: pd.DataFrame, run: str) -> None:
    table = published[published["run"] == run]
    # Percentages are printed with two digits behind the point, or with four significant ones.
    everything_ns = table["total_ns"].iloc[0] / table["percent"].iloc[0] * 100
    assert (100 * table["total_ns"] / everything_ns).tolist() == pytest.approx(table["percent"].tolist(), abs=0.006)
    assert (table["total_ns"] / table["calls"]).between(table["min_ns"], table["max_ns"]).all()
    assert table["total_ns"].is_monotonic_decreasing
    norms = table[table["name"].str.startswith("MIOpenBatchNorm")]
    assert (norms["calls"] == 53 * {"one GPU": 21, "parallel": 20}[run]).all()


def test_a_step_too_early_or_too_late_is_told_apart() -> None:
    begins = range(0, 7 * MS, MS)
    functions = {"Function": "data", "Start_Timestamp": begins, "End_Timestamp": [begin + 100 for begin in begins]}
    starts = [begin + late for begin in begins for late in (50, 500)]
    trace = pd.DataFrame({"Start_Timestamp": starts, "ns": [10_000 + 100 * place for place in range(len(starts))]})
    selftest("04.1", (trace, pd.DataFrame(functions)))


def test_a_copy_belongs_to_the_range_that_launched_it() -> None:
    # Of two copies that are launched within `backward`, one runs after it.
    marks = pd.DataFrame({"Function": ["backward"] * 2, "Start_Timestamp": [0, 1000], "End_Timestamp": [100, 1100]})
    copies = pd.DataFrame({"launched": [10, 90, 500, 1010, 1090], "Start_Timestamp": [20, 120, 510, 1020, 1120]})
    assert lesson.copies_in_backward((copies, marks)) == 2
    selftest("04.2", (copies, marks))


def test_three_limits_and_none_of_them_everywhere() -> None:
    rows = {
        "batch 32": {"compute_ns": 3, "launch_bound_ns": 5, "data_wait_ns": 2},
        "batch 512": {"compute_ns": 5, "launch_bound_ns": 3, "data_wait_ns": 2},
        "batch 1024": {"compute_ns": 4, "launch_bound_ns": 1, "data_wait_ns": 5},
    }
    budgets = pd.DataFrame([{"step": name, **dict.fromkeys(lesson.PARTS, 0), **row} for name, row in rows.items()])
    selftest("04.4", budgets.assign(duration_ns=10))


def test_a_mean_of_ratios_is_refused() -> None:
    rows = [(f"{lesson.KERNEL}.kd", 1000, 10), (f"{lesson.KERNEL}.kd", 30, 1), ("another", 7, 7)]
    selftest("04.5", pd.DataFrame(rows, columns=["Kernel_Name", "SQ_INSTS_VALU", "SQ_WAVES"]))


def test_the_loader_is_the_limit_of_a_larger_batch() -> None:
    step = plain_step("--num-workers 2 --batch-size 1024")
    parts = {name: value for name, value in step.items() if name != "step_ms"}
    assert sum(parts.values()) == pytest.approx(step["step_ms"], rel=0.001)
    assert max(parts, key=parts.get) == "data_wait_ms"
    case, answer = modelled("--num-workers 2", repeats=1), f"--batch-size {lesson.BATCH} --num-workers"
    assert "waits for data" in str(lesson.options_problem(f"{answer} 2 --fused-optimizer", case))
    assert lesson.options_problem(f"{answer} {lesson.FEWEST}", case) is None
    too_many = f"enough, and {lesson.FEWEST} loaders would give"
    assert too_many in str(lesson.options_problem(f"{answer} {lesson.FEWEST + 1}", case))
