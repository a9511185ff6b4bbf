"""The truth about a run against hand-worked steps and against the tables themselves."""

from __future__ import annotations

import numpy as np
import pytest

from cifar_train.config import TrainConfig
from gpumodel import Run, Training, simulate, truth
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
    rank.work("collective", "rccl", second, 310_000, 200_000, step=0, stream=1, collective="allreduce")
    third = rank.call("hipMemcpyAsync", 305_000, 5_000)
    rank.work("copy", "Memcpy", third, 520_000, 30_000, step=0, copy_direction="DeviceToDevice")
    return run_of(Training(TrainConfig(max_steps=1)), (rank.finish(),), 1_000_000)


def test_the_parts_of_a_hand_made_step_are_those_worked_out_by_hand():
    (row,) = step_budget(truth.profile_of(by_hand())).to_dict("records")
    found = {part: row[f"{part}_ns"] for part in DEVICE_PARTS}
    assert found == {
        "compute": 80_000,
        "exposed_communication": 200_000,
        "exposed_copy": 30_000,
        "data_wait": 100_000,
        # 100 to 120 and 200 to 310 us before launches that came late, and from 550 us on nothing is launched.
        "launch_bound": 20_000 + 110_000 + 450_000,
        "blocked_host": 0,
        # 510 to 520 us: the copy had been launched long before.
        "other": 10_000,
    }


def test_a_host_that_reads_numbers_back_is_blocked_and_one_with_small_kernels_is_not():
    def part(pathology: str | None, part: str) -> int:
        run = simulate(Training(TrainConfig(max_steps=2, pathology=pathology)))
        return run.truth["steps"][-1][f"{part}_ns"]

    healthy = part(None, "blocked_host")
    assert part("sync-every-step", "blocked_host") > 1_000_000 > 10 * healthy
    assert part("many-small-kernels", "blocked_host") < 2 * healthy
    assert part("many-small-kernels", "launch_bound") > part(None, "launch_bound")


def test_the_parts_of_every_step_add_up_to_it_exactly(run):
    assert [(row["rank"], row["step"]) for row in run.truth["steps"]] == [(r, s) for r in range(2) for s in range(3)]
    for row in run.truth["steps"]:
        assert sum(row[f"{part}_ns"] for part in DEVICE_PARTS) == row["duration_ns"]
        assert all(row[f"{part}_ns"] >= 0 for part in DEVICE_PARTS)


def test_steps_are_as_long_as_their_annotations(run):
    for own in run.ranks:
        marked = own.annotations[own.annotations["name"].str.startswith("ProfilerStep")]
        assert marked["duration_ns"].tolist() == [
            row["duration_ns"] for row in run.truth["steps"] if row["rank"] == own.rank
        ]


def test_categories_hold_all_time_of_kernels_and_collectives(run):
    for own in run.ranks:
        work = own.device_work[own.device_work["kind"].isin(["kernel", "collective"])]
        found = run.truth["kernel_ns_by_category"][own.rank]
        assert sum(found.values()) == work["duration_ns"].sum()
        assert {"convolution", "normalisation", "collective", "optimizer"} <= set(found)


def test_memory_bound_kernels_are_those_bound_by_memory_most_of_their_time(run):
    work = run.ranks[0].device_work
    names = run.truth["memory_bound_kernels"]
    assert names
    for name, own in work[work["kind"] == "kernel"].groupby("name"):
        share = own.loc[own["bound_by"] == "memory", "duration_ns"].sum() / own["duration_ns"].sum()
        assert (name in names) == (share > 0.5)


def test_the_straggler_is_the_rank_that_a_reader_finds_last_in_most_all_reduces(run):
    found = collectives(truth.profile_of(run))
    reduced = found[found["name"] == "allreduce"]
    assert len(reduced) == 3 * 5
    assert run.truth["straggler"] == reduced["last_rank"].mode()[0] == 1
    assert found["order_possible"].all()


def test_waiting_is_what_a_reader_of_all_ranks_finds(run):
    found = collectives(truth.profile_of(run), per_rank=True)
    for rank, own in found.groupby("rank")["wait_ns"].sum().items():
        # The reader cannot see that the root of 6 broadcasts was only sending when the other rank came.
        assert own == pytest.approx(run.truth["collective_wait_ns"][rank], abs=6 * 30_000)


def test_shares_of_a_rank_follow_from_its_steps(run):
    for rank in range(2):
        rows = [row for row in run.truth["steps"] if row["rank"] == rank]
        total = sum(row["duration_ns"] for row in rows)
        idle = sum(row["launch_bound_ns"] for row in rows)
        assert run.truth["launch_bound_percent"][rank] == pytest.approx(100 * idle / total)
        exposed = sum(row["exposed_communication_ns"] for row in rows)
        assert run.truth["exposed_communication_ns"][rank] == exposed


def test_the_fault_is_named(run):
    assert run.truth["pathology"] == "rank-skew"
    assert np.unique([row["loader_wait_ns"] for row in run.truth["steps"]]).min() >= 0
