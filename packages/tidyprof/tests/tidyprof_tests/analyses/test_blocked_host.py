"""Hosts that wait inside a runtime call, and steps by another mark than the profiler's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidyprof import analyses, read
from tidyprof.analyses.budget import category_of_call
from tidyprof.tables.contract import Profile

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


class TestBlockedHost:
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
