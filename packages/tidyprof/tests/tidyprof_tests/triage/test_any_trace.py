"""triage on traces that nobody would think of: it ends, and the parts of a step add up to it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidyprof.triage.printers import as_json
from tidyprof_tests.chrome_writer import HEADER, TraceEvent, call, kernel, operator, write_trace
from tidyprof_tests.triage.traces import WITHOUT_A_GPU, check_laws, diagnosed

KERNELS = ("gemm", "ncclDevKernel", "void vllm::cross_device_reduce_1stage", "triton_x")
CALLS = (
    "hipLaunchKernel",
    "hipGraphLaunch",
    "hipDeviceSynchronize",
    "hipMemcpyWithStream",
    "hipFree",
    "hipModuleLoadData",
    "hipStreamBeginCapture",
    "hipStreamEndCapture",
    "hipEventQuery",
)
OPERATORS = ("aten::mm", "aten::item", "gloo:all_reduce", "c10d::allreduce_", "x (dynamo_timed)")
RANGES = (
    *("data", "forward", "validation", "gloo:all_reduce", "a", "b"),
    *(f"ProfilerStep#{step}" for step in range(4)),
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
)
FUNCTIONS = ("a.py(3): f", "torch/x.py(4): g", "nn.Module: Linear_2")


def any_event(draw: random.Random) -> TraceEvent:
    begin, length = (
        draw.randrange(1_000_000, 60_000_000),
        draw.choice((0, 1, 1000, 50_000, 2_000_000, 30_000_000)),
    )
    sort = draw.choices(("kernel", "call", "operator", "range", "function"), (6, 4, 5, 3, 2))[0]
    if sort == "kernel":
        return kernel(draw.choice(KERNELS), begin, length, draw.randrange(40))
    if sort == "call":
        return call(draw.choice(CALLS), begin, length, draw.randrange(40))
    if sort == "operator":
        return operator(draw.choice(OPERATORS), begin, length, draw.randrange(1000))
    category, names = (
        ("user_annotation", RANGES) if sort == "range" else ("python_function", FUNCTIONS)
    )
    return TraceEvent(category, draw.choice(names), begin, length)


@pytest.mark.parametrize("seed", range(40))
def test_the_parts_of_any_trace_add_up(seed: int, tmp_path: Path):
    draw = random.Random(seed)
    events = [any_event(draw) for _ in range(draw.choice((1, 5, 30, 120)))]
    path = write_trace(tmp_path / "trace.json", events, header=draw.choice((HEADER, WITHOUT_A_GPU)))
    found = diagnosed(path)
    assert as_json(found)
    check_laws(found)
