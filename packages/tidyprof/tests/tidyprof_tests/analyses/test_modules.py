"""Modules and shapes of a torch trace: by hand, and on a recording against its raw
JSON.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidyprof import Profile, modules, read_torch_trace
from tidyprof_tests.chrome_writer import TraceEvent, call, kernel, small_step, write_trace

RECORDING = "torch-mi300x-resnet18-train/train_resnet18.json.gz"


def function(name: str, start: int, duration: int, thread: int = 1000) -> TraceEvent:
    return TraceEvent("python_function", name, start, duration, tid=thread)


def operator(
    name: str, start: int, duration: int, shapes: list | None = None, thread: int = 1000
) -> TraceEvent:
    recorded = (
        {} if shapes is None else {"Input Dims": shapes, "Input type": ["float"] * len(shapes)}
    )
    return TraceEvent("cpu_op", name, start, duration, tid=thread, arguments=recorded)


@pytest.fixture
def forward_and_backward(tmp_path: Path) -> Profile:
    """A network of one layer whose two operators launch a kernel each, then the backward pass on
    another thread.
    """
    path = write_trace(
        tmp_path / "trace.json",
        [
            function("train.py(7): step", 1_000, 900),
            function("nn.Module: Net_0", 1_100, 700),
            function("nn.Module: Linear_0", 1_200, 400),
            function("torch/nn/functional.py(11): linear", 1_210, 380),
            operator("aten::linear", 1_250, 300, [[8, 4], [2, 4]]),
            operator("aten::addmm", 1_300, 200, [[8, 4], [4, 2]]),
            call("hipLaunchKernel", 1_350, 20, 1),
            kernel("gemm", 2_000, 5_000, 1),
            operator("aten::relu", 1_700, 50, [[8, 2]]),
            call("hipLaunchKernel", 1_710, 20, 2),
            kernel("clamp", 7_000, 3_000, 2),
            operator("aten::mm", 1_300, 200, [[2, 8], [8, 4]], thread=1001),
            TraceEvent(
                "cuda_runtime", "hipLaunchKernel", 1_400, 20, tid=1001, arguments={"correlation": 3}
            ),
            kernel("gemm_backward", 10_000, 4_000, 3),
        ],
    )
    return read_torch_trace(path, python_functions=True)


def test_modules_by_hand(forward_and_backward):
    assert modules(forward_and_backward).to_numpy().tolist() == [
        ["Net_0", 1, 700, 300, 8_000],
        ["Linear_0", 1, 400, 400, 5_000],
    ]


def test_shapes_by_hand(forward_and_backward):
    events = forward_and_backward.events.set_index("name")
    assert events.loc["aten::relu", ["input_shapes", "input_types"]].tolist() == [
        "[[8, 2]]",
        '["float"]',
    ]
    assert events.loc["gemm", ["input_shapes", "input_types"]].isna().all()


def test_traces_without_functions_and_shapes(tmp_path):
    profile = read_torch_trace(write_trace(tmp_path / "trace.json", small_step()))
    assert len(modules(profile)) == 0
