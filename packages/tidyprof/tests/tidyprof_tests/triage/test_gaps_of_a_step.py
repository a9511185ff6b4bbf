"""Each way for a device to be idle has its own part of the step, and a longer gap a larger one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tidyprof
from tidyprof_tests.chrome_writer import TraceEvent, call, kernel, operator, write_trace
from tidyprof_tests.triage.test_on_a_gpu import MS, NEXT, TO_DEVICE, TO_HOST, Step, triaged


def computing(step: Step, at: float) -> None:
    step.operator("aten::mm", at, 0.2 * MS)
    step.launch(at + 10, 10 * MS)


def silent(step: Step, gap: float) -> None:
    computing(step, 0)
    computing(step, 10 * MS + gap)


def loading(step: Step, gap: float) -> None:
    step.part(NEXT, 0, gap)
    computing(step, gap)


def launching(step: Step, gap: float) -> None:
    """Ten operators, each of which takes a tenth of the gap to launch its kernel."""
    for place in range(10):
        begin = place * (1 * MS + gap / 10)
        step.operator("aten::add", begin, gap / 10)
        step.launch(begin + gap / 10 - 6, 1 * MS)


def waiting(step: Step, gap: float) -> None:
    computing(step, 0)
    step.call("cudaDeviceSynchronize", 0.5 * MS, 10 * MS + gap)
    computing(step, 10.5 * MS + gap)


def allocating(step: Step, gap: float) -> None:
    computing(step, 0)
    for place in range(4):
        step.call(("cudaMalloc", "cudaFree")[place % 2], 10 * MS + place * gap / 4, gap / 4)
    computing(step, 10 * MS + gap)


def copying(step: Step, gap: float) -> None:
    step.copy(TO_DEVICE, 0, gap)
    computing(step, gap)


def fetching(step: Step, gap: float) -> None:
    step.copy(TO_HOST, 0, gap)
    computing(step, gap)


def communicating(step: Step, gap: float) -> None:
    step.launch(0, gap, "ncclDevKernel_AllReduce")
    computing(step, gap)


@pytest.mark.parametrize(
    ("fill", "part"),
    [
        (silent, "silent"),
        (loading, "data_wait"),
        (launching, "launch_bound"),
        (waiting, "blocked_host"),
        (allocating, "allocation"),
        (copying, "exposed_copy"),
        (fetching, "fetching"),
        (communicating, "exposed_communication"),
    ],
)
def test_a_longer_gap_never_lowers_the_share_of_its_own_cause(
    fill: Callable[[Step, float], None], part: str, tmp_path: Path
) -> None:
    found = []
    for gap in (2, 4, 8, 16, 32):
        shares = triaged(tmp_path, (21 + gap) * MS, lambda step, gap=gap: fill(step, gap * MS))
        found.append(shares.signs.shares)
        assert sum(found[-1].values()) == pytest.approx(1)
    own = [shares[part] for shares in found]
    assert own == sorted(own), own
    assert own[-1] > 0.4
    assert own[-1] == max(value for name, value in found[-1].items() if name != "compute")


def made_step(number: int) -> list[TraceEvent]:
    """A step of 20 ms with one stretch of each way to be idle that few recordings hold."""
    begin, ids = 20_000_000 * number, iter(range(10 * number, 10 * number + 10))

    def copied(way: str, called: int, took: int, started: int, lasted: int) -> list[TraceEvent]:
        known = {"device": 2, "stream": 0, "correlation": next(ids)}
        return [
            call("hipMemcpyAsync", begin + called, took, known["correlation"]),
            TraceEvent("gpu_memcpy", f"Memcpy {way}", begin + started, lasted, 2, 0, known),
        ]

    def computed(called: int, started: int, lasted: int) -> list[TraceEvent]:
        own = next(ids)
        return [operator("aten::mm", begin + called - 1_000, 20_000, own),
                call("hipLaunchKernel", begin + called, 5_000, own),
                kernel("gemm", begin + started, lasted, own)]  # fmt: skip

    return [
        TraceEvent("user_annotation", f"ProfilerStep#{number}", begin, 20_000_000),
        *computed(100_000, 150_000, 1_850_000),
        TraceEvent("user_annotation", "gloo:all_reduce", begin + 2_000_000, 3_000_000, tid=1001),
        *copied("HtoD", 5_000_000, 1_000_000, 5_100_000, 200_000),  # it returns late
        *copied("DtoH", 6_400_000, 10_000, 6_500_000, 100_000),
        *copied("DtoH", 6_800_000, 10_000, 6_900_000, 100_000),
        *computed(7_500_000, 7_600_000, 400_000),
        operator("aten::item", begin + 8_100_000, 6_800_000, next(ids)),  # it makes no call
        *computed(15_000_000, 15_100_000, 4_800_000),
    ]


def test_each_way_to_be_idle_has_its_part(tmp_path: Path) -> None:
    events = [event for step in (1, 2, 3) for event in made_step(step)]
    path = write_trace(tmp_path / "trace.json", events)
    shares = tidyprof.diagnose(tidyprof.read(path)).signs.shares
    # Behind the late copy 0.4 ms to the launch and 0.1 to its copy, between copies 0.3, of 20.
    assert shares["stalled"] == pytest.approx(0.8 / 20)
    assert shares["exposed_communication"] == pytest.approx(3 / 20)
    assert shares["silent"] == pytest.approx(6.999 / 20)
    assert shares["launch_bound"] == pytest.approx(1.751 / 20)


LATER = {
    "torch-mi300x-sglang-decode": "earlier work",
    "torch-mi300x-sglang-prefilldecode": "earlier work",
    "torch-mi300x-vllm-decode-hipgraph/graph_execution.json.gz": "queued",
    "torch-mi300x-vllm-piecewise": "queued",
}
"""Recording -> what its longest gap is. Earlier work is not in the file: what ends the gap was
launched a while before.
"""


@pytest.mark.parametrize("name", LATER)
def test_an_idle_interval_has_one_name_everywhere(name: str, recordings: Path) -> None:
    profile = tidyprof.read(recordings / name)
    gap = tidyprof.gaps(profile, minimum_ns=0).iloc[0]
    assert gap["cause"] == LATER[name]
    (budget,) = tidyprof.step_budget(profile).to_dict("records")
    assert budget["other_ns"] >= 0.99 * gap["duration_ns"]
    if LATER[name] == "earlier work":
        assert budget["launch_bound_ns"] + budget["blocked_host_ns"] < 0.2 * gap["duration_ns"]
