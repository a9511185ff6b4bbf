"""The exercises of lesson 04 on what the lesson's own commands write, and the modules that only it needs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts.kernel_sizes import LIMITS_NS, kernel_sizes, share_below, sizes_figure
from proflab.parts.published_kernels import STEPS, all_kernels_ns, published_kernels
from proflab.parts.steady_part import SteadyPart, mean_steps, own_run, steady_part
from proflab.standins.__main__ import main
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

lesson = exercises_of("04")

TRACES = "--kernel-trace --marker-trace --hip-runtime-trace"
TRAINER = "-m cifar_train --roctx --max-steps 4 --batch-size"
"""Fewer steps than in the lesson; the trainer counts one of them as warm-up."""

ORIGIN = Origin("modelled", "by hand")
MS = 1_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What rocprofv3's stand-in writes for commands such as the lesson's, with fewer images and steps."""
    path = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SLURM_PROCID", "RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PROFLAB_RUN_WORKLOAD"):
            patch.delenv(name, raising=False)
        patch.chdir(path)
        for command in (
            f"--output-format csv json rocpd --stats -d small -o gpu -- python {TRAINER} 32",
            f"--output-format rocpd -d large -o gpu -- python {TRAINER} 512",
            f"--output-format csv -d ranks -o rank%env{{RANK}}%_pid%pid% -- torchrun --nproc-per-node 4 {TRAINER} 32",
        ):
            assert main(["rocprofv3", *shlex.split(f"{TRACES} {command}")]) == 0
    return path


@pytest.fixture(scope="module")
def steady(folder: Path) -> SteadyPart:
    return steady_part(own_run(folder / "small" / "gpu_results.db"))


@pytest.fixture(scope="module")
def budgets(folder: Path, steady: SteadyPart) -> pd.DataFrame:
    large = steady_part(own_run(folder / "large" / "gpu_results.db"))
    parts = {"batch 32": steady, "batch 512": large}
    return mean_steps({name: tidyprof.step_budget(part.profile) for name, part in parts.items()})


def profile_of(*rows: tuple) -> Profile:
    """Rows of rank, kind, name, start and end in ns."""
    filled = []
    for rank, kind, name, start, end in rows:
        device = {"device": rank, "stream": 0} if kind in tidyprof.DEVICE_KINDS else {}
        times = {"start_ns": start, "duration_ns": end - start}
        filled.append({"rank": rank, "kind": kind, "name": name, "short_name": name, **device, **times})
    events = pd.DataFrame(filled, columns=list(EVENT_DTYPES)).astype(EVENT_DTYPES)
    return Profile(events.sort_values("start_ns", kind="stable").reset_index(drop=True), meta={"origin": ORIGIN})


def kernels_of(durations_ns: list[int]) -> Profile:
    """Kernels of these durations, one after the other."""
    ends = np.cumsum(durations_ns)
    return profile_of(
        *((0, "kernel", "k", int(end - own), int(end)) for own, end in zip(durations_ns, ends, strict=True))
    )


def test_right_and_wrong_answers_on_the_lessons_own_run(steady: SteadyPart, budgets: pd.DataFrame) -> None:
    table = tidyprof.kernels(steady.profile, include=tidyprof.DEVICE_KINDS)
    for number, data in {"04.1": steady, "04.2": table, "04.3": steady, "04.4": budgets}.items():
        selftest(number, data)


def test_right_and_wrong_answers_on_amds_tables() -> None:
    parallel = published_kernels("parallel")
    selftest("04.5", parallel)


def test_right_and_wrong_answers_for_the_command_line() -> None:
    selftest("04.6", None)


def test_every_exercise_is_tested_here() -> None:
    assert [exercise.id for exercise in lesson.EXERCISES] == [f"04.{number}" for number in range(1, 7)]


@pytest.mark.parametrize("number", ["04.1", "04.2", "04.3", "04.4", "04.5"])
def test_without_data_nothing_is_judged(number: str) -> None:
    assert find(number).on(None).evaluate(1).outcome is Outcome.NOT_ATTEMPTED


def test_all_formats_of_one_run_give_one_table(folder: Path) -> None:
    files = {"csv": "gpu_kernel_trace.csv", "json": "gpu_results.json", "rocpd": "gpu_results.db"}
    same = tidyprof.reconcile({name: own_run(folder / "small" / file) for name, file in files.items()})
    assert set(same["reason"]) == {"agree"}


def test_a_larger_batch_leaves_the_gpu_less_idle(budgets: pd.DataFrame) -> None:
    assert lesson.lost_idle(budgets) > 5
    assert budgets["compute_ns"].is_monotonic_increasing
    assert str(budgets.attrs["origin"]).startswith("modelled")


def test_the_rank_that_comes_last_spends_the_least_time_in_collectives(folder: Path) -> None:
    ranks = steady_part(own_run(folder / "ranks"))
    table = tidyprof.ranks(ranks.profile)
    assert (ranks.steps, len(table)) == (3, 4)
    assert (table["compared"] == table["collectives"]).all()
    assert table["communication_ns"].idxmin() == table["came_last"].idxmax()


def test_answers_by_hand() -> None:
    # Two steps of 10 ms without warm-up (a third of two steps is none): 3 ms of a, 1 ms of b, 0.5 ms of copies.
    profile = profile_of(
        *((0, "annotation", f"ProfilerStep#{step}", 10 * step * MS, 10 * (step + 1) * MS) for step in range(2)),
        *((0, "kernel", "a", start * MS, (start + 1) * MS) for start in (1, 4, 12)),
        (0, "kernel", "b", 15 * MS, 16 * MS),
        (0, "copy", "c", 17 * MS, 17 * MS + MS // 2),
    )
    steady = steady_part(profile)
    assert (steady.steps, steady.duration_ns, steady.step_ns) == (2, 20 * MS, 10 * MS)
    assert lesson.dispatches_per_step(steady) == 2.5
    assert lesson.kernels_alone_per_step(steady) == 2
    assert lesson.share_of_step(steady) == pytest.approx(100 * 3 / 20)
    # 3 of 4.5 ms are 67 %, 4 of 4.5 ms are 89 %; of five calls it also takes a and one more for 80 %.
    assert lesson.names_for_most(lesson.steady_table(steady)) == 2


def test_idle_shares_by_hand() -> None:
    rows = [{"duration_ns": 100, "launch_bound_ns": 45, "data_wait_ns": 5, "other_ns": 5, "compute_ns": 40}]
    rows += [{"duration_ns": 200, "launch_bound_ns": 18, "data_wait_ns": 10, "other_ns": 10, "compute_ns": 160}]
    rows = [{**row, "blocked_host_ns": blocked} for row, blocked in zip(rows, (5, 2), strict=True)]
    assert lesson.lost_idle(pd.DataFrame(rows)) == pytest.approx(60 - 20)


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
        steady_part(kernels_of([1000]))


def test_what_a_stand_in_wrote_is_modelled_and_anything_else_measured(folder: Path, tmp_path: Path) -> None:
    written = folder / "small" / "gpu_kernel_trace.csv"
    assert own_run(written).origin.kind == "modelled"
    (tmp_path / written.name).write_bytes(written.read_bytes())
    assert own_run(tmp_path / written.name).origin.kind == "measured"


def test_sizes_by_hand() -> None:
    # 1.5 µs, twice 3 µs, 5 µs exactly, which belongs to the next class, and 12.5 µs: 25 µs in five calls.
    table = kernel_sizes(kernels_of([1_500, 3_000, 3_000, 5_000, 12_500]))
    assert table["size"].tolist() == ["under 2 µs", "2 to 5 µs", "5 to 10 µs", "10 to 20 µs"]
    assert table["calls"].tolist() == [1, 2, 1, 1]
    assert table["time_percent"].tolist() == pytest.approx([6, 24, 20, 50])
    assert share_below(table, 5_000) == pytest.approx(60)
    assert share_below(table, 10_000, "time_percent") == pytest.approx(50)


def test_the_longest_calls_have_a_class_without_an_end() -> None:
    table = kernel_sizes(kernels_of([1_000_000, 5_000_000_000]))
    assert table["size"].tolist() == ["1 ms or more"]
    assert table["to_ns"].isna().all()


def test_a_share_is_only_told_between_two_classes() -> None:
    with pytest.raises(ValueError, match="no limit between two classes"):
        share_below(kernel_sizes(kernels_of([1_000])), 7_000)


def test_no_kernels_are_an_error_with_a_next_step() -> None:
    with pytest.raises(ValueError, match="--kernel-trace"):
        kernel_sizes(profile_of((0, "annotation", "forward", 0, 10)))


@settings(max_examples=40)
@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60))
def test_every_call_is_in_exactly_one_class(durations: list[int]) -> None:
    table = kernel_sizes(kernels_of(durations))
    assert table["calls"].sum() == len(durations)
    assert table["total_ns"].sum() == sum(durations)
    assert table[["calls_percent", "time_percent"]].sum().tolist() == pytest.approx([100, 100])
    for limit in LIMITS_NS:
        below = 100 * sum(duration < limit for duration in durations) / len(durations)
        assert share_below(table, limit) == pytest.approx(below)


def test_the_figure_of_sizes_says_what_it_shows() -> None:
    figure = sizes_figure(kernel_sizes(kernels_of([3_000, 3_000, 40_000])))
    assert figure.origin == str(ORIGIN)
    assert "share of 3 calls" in figure.alternative_text
    assert "Most calls are in the class 2 to 5 µs (67 %), most time in 20 to 50 µs (87 %)." in figure.alternative_text
    lost = kernel_sizes(kernels_of([3_000]))
    lost.attrs.clear()
    with pytest.raises(ValueError, match="where its numbers come from"):
        sizes_figure(lost)


def test_sizes_of_a_real_recording(recordings: Path, manifest: dict) -> None:
    name = "rocprofv3-json-mi350x-torch-training"
    truth = manifest[name]["truth"]
    table = kernel_sizes(tidyprof.read(recordings / name / "908_results.json.gz"))
    assert table["calls"].sum() == truth["kernel_dispatches"]
    assert table["total_ns"].sum() == truth["kernel_total_ns"]


@pytest.mark.parametrize("run", list(STEPS))
def test_published_rows_agree_with_each_other(run: str) -> None:
    table = published_kernels(run)
    everything = all_kernels_ns(table)
    # Percentages are printed with two digits behind the point, or with four significant ones.
    assert (100 * table["total_ns"] / everything).tolist() == pytest.approx(table["percent"].tolist(), abs=0.006)
    assert table["mean_ns"].between(table["min_ns"], table["max_ns"]).all()
    assert table["total_ns"].is_monotonic_decreasing
    norms = table[table["category"] == "normalisation"]
    assert (norms["calls"] == 53 * STEPS[run]).all()


def test_published_runs_compute_for_about_as_long() -> None:
    # 205.6 ms in 21 steps; 916.5 / 0.8274 = 1107.7 ms less 916.5 ms in 20 steps.
    assert lesson.work_per_step_ms(published_kernels("one GPU"), 21) == pytest.approx(9.79, abs=0.01)
    assert lesson.work_per_step_ms(published_kernels("parallel")) == pytest.approx(9.56, abs=0.01)


@pytest.mark.parametrize("row", [0, 1, 2])
def test_the_total_of_all_kernels_may_come_from_any_of_the_first_rows(row: int) -> None:
    parallel = published_kernels("parallel")
    everything = parallel["total_ns"].iloc[row] / parallel["percent"].iloc[row] * 100
    answer = (everything - parallel["total_ns"].iloc[0]) / STEPS["parallel"] / 1e6
    assert find("04.5").on(parallel).evaluate(answer).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    "command",
    [
        "rocprofv3 -T -f CSV --stats --kernel-trace --marker-trace -- python train.py",
        "rocprofv3 --runtime-trace --stats --truncate-kernels --output-format rocpd csv -d out -- python train.py",
    ],
)
def test_other_spellings_of_the_command_pass(command: str) -> None:
    assert find("04.6").on().evaluate(command).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["rocprofv3"], "A command line is asked"),
        ("rocprofv3 'python", "A shell can't read this"),
        ("rocprof --stats -- python train.py", "begins with `rocprofv3`"),
        (f"{lesson.NEW_COMMAND} --stats", "Behind `--` stands the program"),
        ("rocprofv3 --stats --hip-trace -f csv -- python train.py", "other traces hold no kernels"),
        ("rocprofv3 --kernel-trace -f xml -- python train.py", "invalid choice: 'xml'"),
        ("rocprofv3 --help -- python train.py", "rocprofv3 does not start the program"),
    ],
)
def test_a_wrong_command_is_told_what_is_wrong(command: object, words: str) -> None:
    result = find("04.6").on().evaluate(command)
    assert result.outcome is Outcome.WRONG
    assert words in result.message
