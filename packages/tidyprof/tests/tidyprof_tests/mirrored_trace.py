"""A small trace of torch.profiler on a GPU, with the ranges that it writes on the device again and
without them.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tidyprof_tests.chrome_writer import TraceEvent, call, kernel, write_trace

STEP_NS = 1_000_000
STEPS = (5, 6, 7)

STEP = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""What happens in a step."""

LATE_NS = 10_000
"""By how much rank 1 enters its collectives later; both leave them together."""


def _host(number: int, begin: int, marked: bool) -> Iterator[TraceEvent]:
    for place, (name, start, length) in enumerate(STEP["ranges"]):
        if marked or not name.startswith("ProfilerStep"):
            arguments = {"External id": 100 * number + place}
            yield TraceEvent(
                "user_annotation", name.format(number), begin + start, length, arguments=arguments
            )
    for place, (name, start, length, thread) in enumerate(STEP["operators"]):
        arguments = {"External id": 100 * number + 50 + place, "Input Dims": STEP["shapes"]}
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
        [name for name, *_ in STEP["operators"]],
        {name: thread for name, *_, thread in STEP["operators"]},
    )
    for place, (name, launch, start, length, operator) in enumerate(STEP["work"]):
        link = {"External id": 100 * number + 50 + names.index(operator)} if operator else {}
        if name.startswith("nccl"):
            link, start, length = STEP["message"], start + late_ns, length - late_ns
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
        for time, change in STEP["memory"]:
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
