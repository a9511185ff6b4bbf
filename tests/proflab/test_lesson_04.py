"""What is left in Python of lesson 04: checks on tables made by hand, AMD's tables, the steady part of a run."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts.steady_part import mean_steps, own_run, steady_part
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

lesson = exercises_of("04")

ORIGIN = Origin("modelled", "by hand")
MS = 1_000_000


@pytest.fixture
def published() -> pd.DataFrame:
    return pd.read_csv(lesson_of("04").folder / "amd_kernel_tables.csv", comment="#")


def profile_of(*rows: tuple) -> Profile:
    """Rows of rank, kind, name, start and end in ns."""
    filled = []
    for rank, kind, name, start, end in rows:
        device = {"device": rank, "stream": 0} if kind in tidyprof.DEVICE_KINDS else {}
        times = {"start_ns": start, "duration_ns": end - start}
        filled.append({"rank": rank, "kind": kind, "name": name, "short_name": name, **device, **times})
    events = pd.DataFrame(filled, columns=list(EVENT_DTYPES)).astype(EVENT_DTYPES)
    return Profile(events.sort_values("start_ns", kind="stable").reset_index(drop=True), meta={"origin": ORIGIN})


def trace_of(*rows: tuple[str, int, int]) -> pd.DataFrame:
    """A kernel trace of name, start and end in ns."""
    trace = pd.DataFrame(rows, columns=["Kernel_Name", "Start_Timestamp", "End_Timestamp"])
    return trace.assign(ns=trace["End_Timestamp"] - trace["Start_Timestamp"])


def test_share_of_a_step_by_hand() -> None:
    # Two steps of 10 ms without warm-up (a third of two steps is none): 3 ms of a, 1 ms of b, 0.5 ms of copies.
    profile = profile_of(
        *((0, "annotation", f"ProfilerStep#{step}", 10 * step * MS, 10 * (step + 1) * MS) for step in range(2)),
        *((0, "kernel", "a", start * MS, (start + 1) * MS) for start in (1, 4, 12)),
        (0, "kernel", "b", 15 * MS, 16 * MS),
        (0, "copy", "c", 17 * MS, 17 * MS + MS // 2),
    )
    steady = steady_part(profile)
    assert (steady.steps, steady.duration_ns, steady.step_ns, len(steady.dispatches)) == (2, 20 * MS, 10 * MS, 5)
    assert lesson.share_of_step(steady) == pytest.approx(100 * 3 / 20)
    selftest("04.3", steady)


def test_dispatches_of_a_step_by_hand() -> None:
    marks = pd.DataFrame({"Function": ["data", "forward"] * 6, "Start_Timestamp": range(0, 120, 10)})
    marks["End_Timestamp"] = marks["Start_Timestamp"] + 10
    # Step 4 lasts from 80 to 100; the kernel at 100 is one of step 5. The rows are in no order.
    tables = trace_of(*(("k", start, start + 1) for start in (100, 99, 80, 85, 79, 3, 91))), marks.iloc[::-1]
    assert lesson.started_in_step(tables) == 4
    selftest("04.1", tables)


def test_names_for_most_of_the_time_by_hand() -> None:
    # 60 of 100 ns are a's; a and b have 80 %, which is where the line is; of ten calls c has eight.
    trace = trace_of(("a", 0, 60), ("b", 0, 20), *(("c", 0, 1) for _ in range(8)), ("d", 0, 7), ("e", 0, 5))
    assert lesson.names_for_most(trace) == 2
    assert lesson.names_for_most(trace, "size") == 3


def test_idle_shares_by_hand() -> None:
    rows = [{"duration_ns": 100, "launch_bound_ns": 45, "data_wait_ns": 5, "other_ns": 5, "compute_ns": 40}]
    rows += [{"duration_ns": 200, "launch_bound_ns": 18, "data_wait_ns": 10, "other_ns": 10, "compute_ns": 160}]
    rows = [{**row, "blocked_host_ns": blocked} for row, blocked in zip(rows, (5, 2), strict=True)]
    assert lesson.lost_idle(pd.DataFrame(rows)) == pytest.approx(60 - 20)


def test_instructions_of_a_wave_are_a_ratio_of_sums() -> None:
    rows = [("a", 100, 10), ("a", 500, 10), ("b", 50, 1), ("b", 40, 1)]
    wide = pd.DataFrame(rows, columns=["Kernel_Name", "SQ_INSTS_VALU", "SQ_WAVES"])
    assert lesson.instructions_per_wave(wide) == 600 / 20
    selftest("04.5", wide)


def test_collectives_alone_by_hand() -> None:
    # From 0 to 100: RCCL from 20 to 60, and others until 30 and from 50.
    trace = trace_of(("ncclDevKernel", 20, 60), ("a", 0, 30), ("b", 50, 70), ("b", 90, 100))
    assert lesson.collectives_share(trace) == 20
    assert lesson.collectives_share(trace, alone=False) == 40
    selftest("04.7", trace)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), min_size=1, max_size=20))
def test_the_union_is_every_moment_in_which_something_runs(kernels: list[tuple[int, int]]) -> None:
    moments = {moment for start, length in kernels for moment in range(start, start + length)}
    assert lesson.union_ns(trace_of(*(("k", start, start + length) for start, length in kernels))) == len(moments)


def test_the_warm_up_is_left_out_on_each_rank_by_its_own_steps() -> None:
    # Three steps of 10 ms, the first is warm-up. Rank 1 is 4 ms late, so its last kernel runs after rank 0's last step.
    rows = []
    for rank, late in ((0, 0), (1, 4 * MS)):
        for step in range(3):
            begin = late + 10 * step * MS
            rows.append((rank, "annotation", f"ProfilerStep#{step}", begin, begin + 10 * MS))
            rows.append((rank, "kernel", f"k{step}", begin + 8 * MS, begin + 9 * MS))
    part = steady_part(profile_of(*rows))
    assert (part.steps, part.duration_ns) == (2, 20 * MS)
    assert part.dispatches.groupby("rank")["name"].apply(list).to_dict() == {0: ["k1", "k2"], 1: ["k1", "k2"]}


def test_a_recording_without_steps_says_how_to_get_them() -> None:
    with pytest.raises(ValueError, match="--roctx and rocprofv3 with --marker-trace"):
        steady_part(profile_of((0, "kernel", "k", 0, 1000)))


def test_mean_steps_are_named_by_their_run_and_keep_the_origin() -> None:
    steps = [(0, "annotation", f"ProfilerStep#{step}", 10 * step, 10 * (step + 1)) for step in range(2)]
    profile = profile_of(*steps, (0, "kernel", "k", 2, 5), (0, "kernel", "k", 12, 17))
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


def test_the_published_samples_tell_waits_for_the_arrays_from_others() -> None:
    samples = pd.read_csv(lesson_of("04").folder / "amd_pc_samples.csv", comment="#")
    # Counted in AMD's file: 97 samples, 20 issued, 71 waits by s_waitcnt, of which 9 for scalar loads.
    assert len(samples) == 97
    assert lesson.share_waiting(samples) == pytest.approx(100 * 62 / 97)
    assert lesson.share_waiting(samples, "s_waitcnt") == pytest.approx(100 * 71 / 97)
    assert lesson.share_waiting(samples, "") == pytest.approx(100 * 77 / 97)
