"""A small trace of torch.profiler on a GPU, with the ranges that it writes on the device again and
without them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tidyprof_tests.chrome_writer import TraceEvent, call, kernel, write_trace

STEP_NS = 1_000_000
STEPS = (5, 6, 7)

RANGES = (
    ("ProfilerStep#{}", 0, 900_000),
    ("data", 10_000, 180_000),
    ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 20_000, 100_000),
    ("forward", 200_000, 250_000),
    ("FSDP::all_gather (0)", 205_000, 150_000),
    ("loss", 452_000, 6_000),
    ("backward", 460_000, 200_000),
    ("optimizer", 670_000, 200_000),
    ("Optimizer.step#SGD.step", 680_000, 150_000),
)
"""Name, start in the step and length in ns of each range of the host."""

OPERATORS = (
    ("entire_frame_compile", 201_000, 2_000, 1000),
    ("Torch-Compiled Region: 0/0", 204_000, 240_000, 1000),
    ("aten::flip", 30_000, 20_000, 1000),
    ("aten::copy_", 130_000, 30_000, 1000),
    ("aten::conv2d", 210_000, 100_000, 1000),
    ("aten::convolution", 215_000, 80_000, 1000),
    ("aten::nll_loss", 453_000, 4_000, 1000),
    ("aten::convolution_backward", 480_000, 120_000, 1001),
    ("aten::add_", 700_000, 60_000, 1000),
)
"""Name, start in the step, length and thread of each operator."""

WORK = (
    ("Memcpy HtoD (Host -> Device)", 60_000, 90_000, 20_000, None),
    ("Memcpy HtoD (Host -> Device)", 140_000, 175_000, 45_000, "aten::copy_"),
    ("convolve", 230_000, 300_000, 150_000, "aten::convolution"),
    ("subtract", 454_000, 470_000, 10_000, "aten::nll_loss"),
    ("convolve_backward", 500_000, 560_000, 180_000, "aten::convolution_backward"),
    ("ncclDevKernel_AllReduce", 610_000, 750_000, 100_000, None),
    ("add", 710_000, 900_000, 60_000, "aten::add_"),
)
"""Name of each event on the device, when it was launched, its start and length, and its
operator.
"""

SHAPES = [[16, 3, 32, 32], [32, 3, 3, 3]]

MESSAGE = {
    "Collective name": "allreduce",
    "Process Group Ranks": "[0, 1]",
    "Group size": 2,
    "In msg nelems": 1_000_000,
    "Out msg nelems": 1_000_000,
    "dtype": "Float",
}


MEMORY = ((150_000, 2048), (300_000, 1024), (860_000, -2048))
"""When in the step how many bytes were taken, or given back."""

LATE_NS = 10_000
"""By how much rank 1 enters its collectives later; both leave them together."""


def _host(number: int, begin: int, marked: bool) -> Iterator[TraceEvent]:
    for place, (name, start, length) in enumerate(RANGES):
        if marked or not name.startswith("ProfilerStep"):
            arguments = {"External id": 100 * number + place}
            yield TraceEvent(
                "user_annotation", name.format(number), begin + start, length, arguments=arguments
            )
    for place, (name, start, length, thread) in enumerate(OPERATORS):
        arguments = {"External id": 100 * number + 50 + place, "Input Dims": SHAPES}
        yield TraceEvent("cpu_op", name, begin + start, length, tid=thread, arguments=arguments)
    yield call("hipFree", begin + 880_000, 15_000, 100 * number + 90)
    for name, start, length in (
        ("train.py(1): step", 0, 900_000),
        ("nn.Module: Conv2d_0", 206_000, 120_000),
    ):
        yield TraceEvent("python_function", name, begin + start, length)


def _device(number: int, begin: int, late_ns: int) -> Iterator[TraceEvent]:
    """The work of a step with the calls that launched it."""
    names, threads = (
        [name for name, *_ in OPERATORS],
        {name: thread for name, *_, thread in OPERATORS},
    )
    for place, (name, launch, start, length, operator) in enumerate(WORK):
        link = {"External id": 100 * number + 50 + names.index(operator)} if operator else {}
        if name.startswith("nccl"):
            link, start, length = MESSAGE, start + late_ns, length - late_ns
        is_copy, correlation = name.startswith("Memcpy"), 100 * number + place
        launching = call(
            "hipMemcpyAsync" if is_copy else "hipLaunchKernel", begin + launch, 3_000, correlation
        )
        yield replace(launching, tid=threads.get(operator, 1000))
        category, link = ("gpu_memcpy", link | {"bytes": 4096}) if is_copy else ("kernel", link)
        yield replace(kernel(name, begin + start, length, correlation, **link), category=category)


def _memory() -> Iterator[str]:
    """The events of the host's allocator, as `profile_memory=True` records them."""
    total = 0
    for place, _ in enumerate(STEPS, 1):
        for time, change in MEMORY:
            total += change
            arguments = {
                "Bytes": change,
                "Total Allocated": total,
                "Device Id": -1,
                "Device Type": 0,
            }
            event = {
                "ph": "i",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "pid": 1000,
                "tid": 1000,
            }
            yield json.dumps(
                event | {"ts": (place * STEP_NS + time) / 1000, "s": "t", "args": arguments}
            )


def _mirrored(events: Iterable[TraceEvent]) -> list[TraceEvent]:
    """The ranges on the device: for each of the host the time from the begin of the first work that
    was launched in it to the end of the last. Torch leaves some of them out; here each has its own,
    so that no sum can miss it.
    """
    events = list(events)
    launched = {
        one.arguments["correlation"]: one.start_ns
        for one in events
        if one.category == "cuda_runtime"
    }
    work = [one for one in events if one.category in ("kernel", "gpu_memcpy")]
    found = []
    for one in events:
        own = [
            done
            for done in work
            if 0 <= launched[done.arguments["correlation"]] - one.start_ns < one.duration_ns
        ]
        if one.category == "user_annotation" and own:
            begin, end = (
                min(done.start_ns for done in own),
                max(done.start_ns + done.duration_ns for done in own),
            )
            found.append(
                TraceEvent("gpu_user_annotation", one.name, begin, end - begin, 2, 0, one.arguments)
            )
    return found


def write_both(folder: Path, rank: int = 0, marked: bool = True) -> tuple[Path, Path]:
    """The trace of a rank without ranges on the device, and with them; marked -- whether there is
    ProfilerStep.
    """
    events = [
        event
        for place, number in enumerate(STEPS, 1)
        for event in (
            *_host(number, place * STEP_NS, marked),
            *_device(number, place * STEP_NS, rank * LATE_NS),
        )
    ]
    paths = [folder / name / f"trace_rank{rank}.json.gz" for name in ("plain", "mirrored")]
    for path, written in zip(paths, (events, [*events, *_mirrored(events)]), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_trace(path, [*sorted(written, key=lambda event: event.start_ns), *_memory()])
    return paths[0], paths[1]
