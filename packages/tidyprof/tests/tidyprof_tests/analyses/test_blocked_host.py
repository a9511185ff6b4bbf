"""Hosts that wait inside a runtime call, and steps by another mark than the profiler's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidyprof import analyses, read
from tidyprof.analyses.budget import category_of_call
from tidyprof.tables.contract import Profile
from tidyprof_tests.analyses.test_analyses import event, host_step, profile_of

RESNET18 = Path("torch-mi300x-resnet18-train", "train_resnet18.json.gz")


@pytest.fixture(scope="module")
def resnet18(recordings) -> Profile:
    return read(recordings / RESNET18)


class TestTrainingOfResnet18:
    """No step is marked, and MIOpen allocates and frees memory around every convolution."""

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

    def test_the_calls_are_named(self, resnet18):
        table = analyses.blocking_calls(resnet18).set_index("name")
        columns = ["category", "calls", "total_ns", "blocked_ns"]
        assert table[columns].T.to_dict("list") == {
            "hipFree": ["allocation", 1360, 3_346_152_150, 2_999_131_887],
            "hipMalloc": ["allocation", 1460, 11_888_399, 9_747_284],
            "hipMemcpyWithStream": ["copy", 5, 127_989, 88_547],
            "hipHostMalloc": ["allocation", 1, 76_710, 76_710],
            "hipDeviceSynchronize": ["synchronization", 1, 16_980, 16_980],
        }


class TestBlockedHost:
    def test_by_hand(self):
        """0-100: hipMalloc 0-10, kernel 15-30, synchronization 20-40, kernel 45-50, hipFree 60-70
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
        assert row.compute_ns == 20, "a synchronization with a busy device costs nothing"
        assert row.blocked_host_ns == 10 + 10 + 10
        assert row.data_wait_ns == 10
        assert row.launch_bound_ns == 100 - 20 - 30 - 10
        calls = analyses.blocking_calls(profile)
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
        assert analyses.blocking_calls(profile)["rank"].tolist() == [1]

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
            ("hipEventSynchronize", "synchronization"),
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
