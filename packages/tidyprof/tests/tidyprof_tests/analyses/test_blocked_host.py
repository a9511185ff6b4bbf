"""Hosts that wait inside a runtime call, and steps by another mark than the profiler's, against
plain loops.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tidyprof import analyses, read
from tidyprof.analyses.budget import category_of_call
from tidyprof.tables.contract import Profile
from tidyprof_tests.analyses.test_analyses import event, host_step, profile_of

RESNET18 = Path("torch-mi300x-resnet18-train", "train_resnet18.json.gz")
SGLANG = Path("torch-mi300x-sglang-decode", "sglang_Qwen3-8B_decode.json.gz")


@pytest.fixture(scope="module")
def resnet18(recordings) -> Profile:
    return read(recordings / RESNET18)


@pytest.fixture(scope="module")
def sglang(recordings) -> Profile:
    return read(recordings / SGLANG)


def idle_with_an_empty_queue(profile: Profile) -> list[tuple[int, int]]:
    """Times between first and last event in which the device had nothing to do, and nothing was
    launched for it.
    """
    device = profile.device_events.sort_values(["start_ns", "launch_ns"])
    everything = (
        profile.events["start_ns"].min(),
        (profile.events["start_ns"] + profile.events["duration_ns"]).max(),
    )
    free, found = everything[0], []
    for row in device[device["duration_ns"] > 0].itertuples():
        if row.start_ns > free and row.launch_ns >= free:
            found.append((free, row.start_ns))
        free = max(free, row.start_ns + row.duration_ns)
    return [*found, (free, everything[1])]


def inside(idle: list[tuple[int, int]], calls: pd.DataFrame, begin: int, end: int) -> int:
    """Time in ns of the idle times in [begin, end) in which one of the calls ran; the calls follow
    each other.
    """
    first, last = (
        calls["start_ns"].to_numpy(),
        (calls["start_ns"] + calls["duration_ns"]).to_numpy(),
    )
    assert (first[1:] >= last[:-1]).all()
    total = 0
    for start, stop in idle:
        shared = np.minimum(last, min(stop, end)) - np.maximum(first, max(start, begin))
        total += int(np.maximum(shared, 0).sum())
    return total


class TestTrainingOfResnet18:
    """No step is marked, and MIOpen allocates and frees memory around every convolution."""

    WAITING = (
        "hipFree",
        "hipMalloc",
        "hipHostMalloc",
        "hipMemcpyWithStream",
        "hipDeviceSynchronize",
    )

    def test_steps_from_one_zero_grad_to_the_next(self, resnet18):
        marks = resnet18.events.query("name == 'Optimizer.zero_grad#SGD.zero_grad'")[
            "start_ns"
        ].tolist()
        table = analyses.steps(resnet18)
        assert len(marks) == 5
        assert table["start_ns"].tolist() == marks
        assert (table["start_ns"] + table["duration_ns"]).tolist()[:-1] == marks[1:]
        assert table["step"].tolist() == [0, 1, 2, 3, 4]
        last = resnet18.events.query("name == 'Optimizer.step#SGD.step' and device.isna()").iloc[-1]
        assert (
            table["start_ns"].iloc[-1] + table["duration_ns"].iloc[-1]
            == last.start_ns + last.duration_ns
        )
        assert table.attrs["mark"] == "Optimizer.zero_grad#SGD.zero_grad"
        assert "from each `Optimizer.zero_grad#SGD.zero_grad` to the next" in table.attrs["steps"]

    def test_the_budget_says_that_the_host_was_blocked(self, resnet18):
        table = analyses.step_budget(resnet18)
        calls = resnet18.events[resnet18.events["name"].isin(self.WAITING)]
        idle = idle_with_an_empty_queue(resnet18)
        ends = (table["start_ns"] + table["duration_ns"]).tolist()
        assert table["blocked_host_ns"].tolist() == [
            inside(idle, calls, begin, end)
            for begin, end in zip(table["start_ns"], ends, strict=True)
        ]
        total = table.sum(numeric_only=True)
        assert (
            total["blocked_host_ns"] > 0.88 * total["duration_ns"] > 50 * total["launch_bound_ns"]
        )
        parts = [f"{part}_ns" for part in analyses.parts_of(table)]
        assert (table[parts].sum(axis=1) == table["duration_ns"]).all()
        assert table.attrs["mark"] == "Optimizer.zero_grad#SGD.zero_grad"

    def test_the_calls_are_named(self, resnet18):
        table = analyses.blocked_calls(resnet18).set_index("name")
        idle = idle_with_an_empty_queue(resnet18)
        for name in self.WAITING:
            own = resnet18.events[resnet18.events["name"] == name]
            assert table.loc[name, ["calls", "total_ns"]].tolist() == [
                len(own),
                own["duration_ns"].sum(),
            ]
            assert table.loc[name, "blocked_ns"] == inside(idle, own, 0, 2**62)
        assert set(table.index) == set(self.WAITING)
        assert table.index[0] == "hipFree"
        assert table["category"].to_dict() == {
            "hipFree": "allocation",
            "hipMalloc": "allocation",
            "hipHostMalloc": "allocation",
            "hipMemcpyWithStream": "copy",
            "hipDeviceSynchronize": "synchronisation",
        }


class TestDecodingWithSglang:
    """One blocking copy takes most of the recording, and nothing in it repeats."""

    def test_the_whole_recording_is_one_step_and_says_so(self, sglang):
        assert not len(analyses.steps(sglang))
        table = analyses.step_budget(sglang)
        assert table["step"].isna().tolist() == [True]
        for found in (analyses.steps(sglang), table):
            assert found.attrs["mark"] is None
            assert "no steps are marked" in found.attrs["steps"]
            assert "mark=" in found.attrs["steps"]

    def test_the_copy_waits_for_what_is_not_in_the_file(self, sglang):
        """A kernel was launched into a stream of its own at the begin, and ran 463 ms later."""
        (row,) = analyses.step_budget(sglang).to_dict("records")
        first = sglang.device_events.sort_values("start_ns").iloc[1]
        waited = first["start_ns"] - first["launch_ns"]
        assert 0.999 < row["other_ns"] / waited < 1.001
        assert row["blocked_host_ns"] + row["launch_bound_ns"] < 0.002 * row["duration_ns"]
        (call,) = analyses.blocked_calls(sglang).to_dict("records")
        copy = sglang.events.query("name == 'hipMemcpyWithStream'")
        assert (call["name"], call["category"], call["calls"]) == ("hipMemcpyWithStream", "copy", 1)
        assert call["blocked_ns"] < 0.001 * call["total_ns"] == 0.001 * copy["duration_ns"].sum()
        assert analyses.gaps(sglang)["cause"].iloc[0] == "earlier work"


class TestBlockedHost:
    def test_by_hand(self):
        """0-100: hipMalloc 0-10, kernel 15-30, synchronisation 20-40, kernel 45-50, hipFree 60-70
        and data 65-80.
        """
        profile = profile_of(
            host_step(0, 0, 100),
            event("runtime", "hipMalloc", 0, 10),
            event("kernel", "a", 15, 30, launch_ns=12),
            event("runtime", "hipStreamSynchronize", 20, 40),
            event("kernel", "b", 45, 50, launch_ns=42),
            event("runtime", "hipFree", 60, 70),
            event("annotation", "data", 65, 80),
        )
        row = analyses.step_budget(profile).iloc[0]
        assert row.compute_ns == 20, "a synchronisation with a busy device costs nothing"
        assert row.blocked_host_ns == 10 + 10 + 10
        assert row.data_wait_ns == 10
        assert row.launch_bound_ns == 100 - 20 - 30 - 10
        calls = analyses.blocked_calls(profile)
        assert calls[["name", "calls", "total_ns", "blocked_ns"]].to_numpy().tolist() == [
            ["hipStreamSynchronize", 1, 20, 10], ["hipFree", 1, 10, 10], ["hipMalloc", 1, 10, 10]
        ]  # fmt: skip

    def test_a_queued_gap_is_not_the_hosts(self):
        profile = profile_of(
            host_step(0, 0, 40),
            event("kernel", "a", 0, 10, launch_ns=0),
            event("kernel", "b", 15, 40, launch_ns=1),
            event("runtime", "hipDeviceSynchronize", 5, 40),
        )
        row = analyses.step_budget(profile).iloc[0]
        assert (row.blocked_host_ns, row.other_ns) == (0, 5)

    def test_calls_of_another_rank_block_nobody_else(self):
        rows = [
            event("kernel", "k", 50, 60, launch_ns=45, rank=rank, device=rank) for rank in (0, 1)
        ]
        steps = [host_step(0, 0, 60, rank=rank) for rank in (0, 1)]
        profile = profile_of(*rows, *steps, event("runtime", "hipFree", 10, 40, rank=1))
        assert analyses.step_budget(profile).set_index("rank")["blocked_host_ns"].to_dict() == {
            0: 0,
            1: 30,
        }
        assert analyses.blocked_calls(profile)["rank"].tolist() == [1]

    @pytest.mark.parametrize(
        ("name", "category"),
        [
            ("hipMalloc", "allocation"),
            ("hipExtMallocWithFlags", "allocation"),
            ("hipHostFree", "allocation"),
            ("cuMemAlloc_v2", "allocation"),
            ("hipMallocAsync", None),
            ("hipMallocFromPoolAsync", None),
            ("hipMemcpyWithStream", "copy"),
            ("cudaMemcpy", "copy"),
            ("hipMemcpyDtoHAsync", None),
            ("hipMemcpyAsync_spt", None),
            ("hipEventSynchronize", "synchronisation"),
            ("hipStreamWaitEvent", None),
            ("hipLaunchKernel", None),
        ],
    )
    def test_which_calls_wait(self, name, category):
        assert category_of_call(name) == category


class TestMarks:
    def test_an_operator_as_mark(self):
        rows = [event("operator", "aten::embedding", begin, begin + 5) for begin in (10, 40, 70)]
        profile = profile_of(*rows, event("operator", "aten::mm", 80, 95))
        table = analyses.steps(profile, mark="aten::embedding")
        assert table[["step", "start_ns", "duration_ns"]].to_numpy().tolist() == [
            [0, 10, 30],
            [1, 40, 30],
            [2, 70, 25],
        ]
        assert table.attrs["mark"] == "aten::embedding"

    def test_a_mark_of_ones_own_wins(self):
        marks = [event("operator", "aten::embedding", begin, begin + 5) for begin in (10, 40)]
        profile = profile_of(host_step(7, 0, 100), *marks)
        assert analyses.steps(profile).attrs["mark"] == "ProfilerStep#N"
        for analysis in (analyses.steps, analyses.step_budget, analyses.phases):
            assert analysis(profile, mark="aten::embedding").attrs["mark"] == "aten::embedding"
        assert len(analyses.step_budget(profile, mark="aten::embedding")) == 2

    def test_an_unknown_mark_is_refused(self, two_marks):
        with pytest.raises(
            ValueError, match="no range, operator or call on the host is named 'zero'"
        ):
            analyses.steps(two_marks, mark="zero")

    def test_a_range_that_does_not_repeat_marks_nothing(self, two_marks):
        once = Profile(two_marks.events.iloc[:1], meta=dict(two_marks.meta))
        assert analyses.steps(two_marks).attrs["mark"] == "Optimizer.zero_grad#Adam.zero_grad"
        assert analyses.steps(once).attrs["mark"] is None


@pytest.fixture
def two_marks() -> Profile:
    return profile_of(
        *(event("annotation", "Optimizer.zero_grad#Adam.zero_grad", t, t + 2) for t in (0, 50))
    )
