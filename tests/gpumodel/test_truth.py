"""The truth about a run against hand-worked steps and against the tables themselves."""

from __future__ import annotations

import pytest

from cifar_train.config import TrainConfig
from gpumodel import Run, Training, simulate
from gpumodel.truth import profile_of
from tests.gpumodel.handmade import RankBuilder, run_of
from tidyprof.analyses.budget import DEVICE_PARTS, step_budget
from tidyprof.analyses.collectives import collectives


@pytest.fixture(scope="module")
def run() -> Run:
    return simulate(Training(TrainConfig(max_steps=3, pathology="rank-skew"), ranks=2))


def by_hand() -> Run:
    """One rank and one step of 1000 us: a wait for data, a kernel, a gap, a collective, a copy."""
    rank = RankBuilder(0, ranks=1)
    rank.annotation("ProfilerStep#0", 0, 1_000_000, step=0)
    rank.annotation("data", 0, 100_000, step=0)
    rank.annotation("forward", 100_000, 900_000, step=0)
    first = rank.call("hipLaunchKernel", 110_000, 5_000)
    rank.work("kernel", "first", first, 120_000, 80_000, step=0)
    second = rank.call("hipExtLaunchKernel", 300_000, 5_000)
    rank.work(
        "collective", "rccl", second, 310_000, 200_000, step=0, stream=1, collective="allreduce"
    )
    third = rank.call("hipMemcpyAsync", 305_000, 5_000)
    rank.work("copy", "Memcpy", third, 520_000, 30_000, step=0, copy_direction="DeviceToDevice")
    return run_of(Training(TrainConfig(max_steps=1)), (rank.finish(),), 1_000_000)


def test_the_parts_of_a_hand_made_step_are_those_worked_out_by_hand():
    (row,) = step_budget(profile_of(by_hand())).to_dict("records")
    found = {part: row[f"{part}_ns"] for part in DEVICE_PARTS}
    assert found == {
        "compute": 80_000,
        "exposed_communication": 200_000,
        "exposed_copy": 30_000,
        "data_wait": 100_000,
        # 100 to 120 and 200 to 310 us before launches that came late, and from 550 us on nothing is
        # launched.
        "launch_bound": 20_000 + 110_000 + 450_000,
        "blocked_host": 0,
        # 510 to 520 us: the copy had been launched long before.
        "other": 10_000,
    }


def test_a_host_that_reads_numbers_back_is_blocked_and_one_with_small_kernels_is_not():
    def part(pathology: str | None, part: str) -> int:
        run = simulate(Training(TrainConfig(max_steps=2, pathology=pathology)))
        return int(step_budget(profile_of(run))[f"{part}_ns"].iloc[-1])

    healthy = part(None, "blocked_host")
    assert part("sync-every-step", "blocked_host") > 1_000_000 > 10 * healthy
    assert part("many-small-kernels", "blocked_host") < 2 * healthy
    assert part("many-small-kernels", "launch_bound") > part(None, "launch_bound")


def test_the_parts_of_every_step_add_up_to_it_exactly(run):
    budget = step_budget(profile_of(run))
    assert list(zip(budget["rank"], budget["step"], strict=True)) == [
        (r, s) for r in range(2) for s in range(3)
    ]
    parts = budget[[f"{part}_ns" for part in DEVICE_PARTS]]
    assert (parts.sum(axis=1) == budget["duration_ns"]).all()
    assert (parts >= 0).all(axis=None)


def test_steps_are_as_long_as_their_annotations(run):
    budget = step_budget(profile_of(run))
    for own in run.ranks:
        marked = own.annotations[own.annotations["name"].str.startswith("ProfilerStep")]
        assert (
            marked["duration_ns"].tolist()
            == budget.loc[budget["rank"] == own.rank, "duration_ns"].tolist()
        )


def test_the_rank_that_sleeps_is_last_in_most_all_reduces(run):
    found = collectives(profile_of(run))
    reduced = found[found["name"] == "allreduce"]
    assert len(reduced) == 3 * 5
    assert reduced["last_rank"].mode()[0] == 1
    assert found["order_possible"].all()


def test_waiting_is_what_a_reader_of_all_ranks_finds(run):
    found = collectives(profile_of(run), per_rank=True)
    for rank, own in found.groupby("rank")["wait_ns"].sum().items():
        # The reader cannot see that the root of 6 broadcasts was only sending when the other rank
        # came.
        assert own == pytest.approx(
            sum(step.waited[rank].sum() for step in run.steps), abs=6 * 30_000
        )


def test_the_origin_names_the_device_and_the_error(run):
    assert str(profile_of(run).origin) == f"modelled: MI300X, {run.error}"
