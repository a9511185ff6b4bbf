"""Each way for a device to be idle has its own part of the step, and a longer gap a larger one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidyprof.triage.rules import part_name
from tidyprof_tests.triage.traces import NEXT, TO_DEVICE, TO_HOST, Fill, Step, shares, triaged


def computing(step: Step, at: float) -> None:
    step.operator("aten::mm", at, 0.2)
    step.launch(at + 0.01, 10)


def silent(step: Step, gap: float) -> None:
    computing(step, 0)


def loading(step: Step, gap: float) -> None:
    step.part(NEXT, 0, gap)


def launching(step: Step, gap: float) -> None:
    """Ten operators, each of which takes a tenth of the gap to launch its kernel."""
    for place in range(10):
        begin = place * (1 + gap / 10)
        step.operator("aten::add", begin, gap / 10)
        step.launch(begin + gap / 10 - 0.006, 1)


def waiting(step: Step, gap: float) -> None:
    computing(step, 0)
    step.call("cudaDeviceSynchronize", 0.5, 10 + gap)


def allocating(step: Step, gap: float) -> None:
    computing(step, 0)
    for place in range(4):
        step.call(("cudaMalloc", "cudaFree")[place % 2], 10 + place * gap / 4, gap / 4)


def copying(step: Step, gap: float) -> None:
    step.copy(TO_DEVICE, 0, gap)


def fetching(step: Step, gap: float) -> None:
    step.copy(TO_HOST, 0, gap)


def communicating(step: Step, gap: float) -> None:
    step.launch(0, gap, "ncclDevKernel_AllReduce")


@pytest.mark.parametrize(
    ("fill", "before", "part"),
    [
        (silent, 10, "outside PyTorch"),
        (loading, 0, "data"),
        (launching, 10, "launching"),
        (waiting, 10.5, part_name("blocked_host")),
        (allocating, 10, "allocation"),
        (copying, 0, "copies"),
        (fetching, 0, part_name("blocked_host")),
        (communicating, 0, "communication"),
    ],
)
def test_a_longer_gap_has_a_larger_share(
    fill: Fill, before: float, part: str, tmp_path: Path
) -> None:
    """The gap ends where the step computes, and for ten ms more."""

    def filled(gap: float) -> Fill:
        def step_with(step: Step) -> None:
            fill(step, gap)
            if fill is not launching:
                computing(step, before + gap)

        return step_with

    found = [shares(triaged(tmp_path, 21 + gap, filled(gap))) for gap in (2, 4, 8, 16, 32)]
    own = [parts[part] for parts in found]
    assert own == sorted(own), own
    assert own[-1] > 0.4
    assert own[-1] == max(value for name, value in found[-1].items() if name != "compute")


def every_gap(step: Step) -> None:
    """A step of 20 ms with one stretch of each way to be idle that few recordings contain."""

    def computed(at: float, late: float, length: float) -> None:
        step.operator("aten::mm", at - 0.001, 0.02)
        step.launch(at, length, late=late)

    computed(0.1, 0.05, 1.85)
    step.part("gloo:all_reduce", 2, 3, thread=1001)
    step.copy(TO_DEVICE, 5, 1, lasts=0.2, late=0.1)  # it returns late
    step.copy(TO_HOST, 6.4, 0.01, lasts=0.1, late=0.1)
    step.copy(TO_HOST, 6.8, 0.01, lasts=0.1, late=0.1)
    computed(7.5, 0.1, 0.4)
    step.operator("aten::item", 8.1, 6.8)  # it makes no call
    computed(15, 0.1, 4.8)


def test_each_way_to_be_idle_has_its_part(tmp_path: Path) -> None:
    found = triaged(tmp_path, 20, every_gap)
    # After the late copy 0.4 ms to the launch and 0.1 to its copy, of 20.
    expected = {
        "exposed_communication": 3,
        "silent": 7,
        "stalled": 0.5 + 0.2,  # fetched in 0.2 ms, which has the same row
        "launch_bound": 2.05,
    }
    rows = {"launch_bound": "launching"}
    for part, length in expected.items():
        assert shares(found)[rows.get(part, part_name(part))] == pytest.approx(length / 20), part
