"""The snippets of lesson 02: a loop that is profiled, and traces written by hand and by that
loop.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import tidyprof
from proflab.recordings import recording
from tests.snippets.conftest import Run

KERNELS = [("first", 0, 10, 1), ("second", 5, 15, 2), ("first", 40, 20, 3)]
"""Name, start and duration in us, correlation: of 60 us the device is busy from 0 to 20 and from 40
to 60.
"""


def event(category: str, name: str, start: float, duration: float, **args: object) -> dict:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "ts": start,
        "dur": duration,
        "pid": 1,
        "tid": 1,
        "args": args,
    }


def test_a_loop_leaves_one_trace_a_rank_and_prints_its_tables(bare: Run, tmp_path: Path) -> None:
    done = bare("python", "snippets/02_profile_a_loop.py", "traces", RANK="0")
    assert "aten::addmm" in done.stdout
    assert "[64, 512]" in done.stdout
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["trace_rank0.json.gz"]
    assert (
        "aten::" not in bare("python", "snippets/02_profile_a_loop.py", "traces", RANK="3").stdout
    )
    assert (tmp_path / "traces/trace_rank3.json.gz").is_file()
    read = bare("python", "snippets/02_trace_to_table.py", "traces/trace_rank0.json.gz").stdout
    assert "0 on a device, 3 steps" in read
    assert "ProfilerStep#5" in read
    trace = gzip.decompress((tmp_path / "traces/trace_rank0.json.gz").read_bytes()).decode()
    assert "DataLoaderIter.__next__" in trace
    assert "aten::addmm" in read


def test_tables_of_a_trace_with_two_streams(bare: Run, tmp_path: Path) -> None:
    events = [
        event("kernel", name, start, length, device=0, correlation=id)
        for name, start, length, id in KERNELS
    ]
    events += [
        event("cuda_runtime", "hipLaunchKernel", start - 30, 2, correlation=id)
        for _, start, _, id in KERNELS
    ]
    events += [
        event("cuda_runtime", "hipFree", 21, 18),
        event("cuda_runtime", "hipMemcpyAsync", 1, 1),
    ]
    events += [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    done = bare("python", "snippets/02_trace_to_table.py", "trace.json").stdout
    assert "8 events, 3 on a device, 0 steps" in done
    assert "device 0: busy 66.7 % of 0.06 ms" in done
    assert "(durations add up to 75.0 %" in done
    assert "idle in 1 gaps" in done
    assert "0.020 ms  first" in done
    assert "start: 30.0 us (median)" in done
    assert "hipFree" in done
    assert "hipMemcpyAsync" not in done


@pytest.mark.parametrize("name", ["torch-mi300x-resnet-ddp-rank0", "torch-h200-resnet50"])
def test_the_budget_by_hand_is_that_of_tidyprof(bare: Run, name: str) -> None:
    path = recording(name).path
    lines = bare("python", "snippets/02_step_budget.py", str(path)).stdout.splitlines()
    budget = tidyprof.step_budget(tidyprof.read(path))
    names = [
        "compute",
        "exposed_communication",
        "exposed_copy",
        "blocked_host",
        "data_wait",
        "launch_bound",
        "other",
    ]
    for row, (_, step) in zip(lines[1:], budget.iterrows(), strict=False):
        by_hand = [float(text) for text in row.split()[1:]]
        assert by_hand == pytest.approx(
            [step[f"{part}_ns"] / 1e6 for part in [*names, "duration"]], abs=0.005 * by_hand[-1]
        )
    assert len(lines) >= 1 + len(budget)
    if (untraced := budget.attrs["untraced_ns"]) is not None:
        assert lines[-1].startswith(
            f"Without the profiler a step takes {untraced / 1e6:.2f} ms, of these"
        )
        asked = bare("python", "snippets/02_step_budget.py", str(path), "1").stdout.splitlines()[-1]
        assert (
            asked
            == "Without the profiler a step takes 1.00 ms, of these for want of launches 0.00 at"
            " most."
        )


def test_the_budget_by_hand_says_that_there_is_no_gpu(bare: Run, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text(
        json.dumps({"traceEvents": [event("cpu_op", "aten::mul", 0, 5)]})
    )
    done = bare("python", "snippets/02_step_budget.py", "trace.json", check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("this trace has no work of a GPU")
