"""Writes small Chrome traces the way torch.profiler's Kineto does, from events whose truth is
known.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidyprof.io.byte_stream import zstd

BASE_NS = 1_767_189_312_000_000_000
HEADER: dict[str, Any] = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X", "numSms": 304, "warpSize": 64}],
    "roctracer_version": 4.1,
    "hip_runtime_version": 60443483,
    "displayTimeUnit": "ms",
}


@dataclass(frozen=True)
class TraceEvent:
    """One complete event. Times in ns; start counts from the base time. pid and tid as the file has
    them.
    """

    category: str
    name: str
    start_ns: int
    duration_ns: int
    pid: int | str = 1000
    tid: int | str = 1000
    arguments: dict[str, Any] = field(default_factory=dict)

    def json(self, space: str = " ") -> str:
        members = {
            "ph": "X",
            "cat": self.category,
            "name": self.name,
            "pid": self.pid,
            "tid": self.tid,
        }
        text = json.dumps(members, separators=("," + space, ":" + space))
        times = f'"ts": {microseconds(self.start_ns)}, "dur": {microseconds(self.duration_ns)}'
        arguments = f', "args": {json.dumps(self.arguments)}' if self.arguments else ""
        return f"{text[:-1]},{space}{times}{arguments}}}"


def microseconds(nanoseconds: int) -> str:
    """A decimal with three places, as Kineto prints times."""
    sign = "-" if nanoseconds < 0 else ""
    return f"{sign}{abs(nanoseconds) // 1000}.{abs(nanoseconds) % 1000:03d}"


def kernel(
    name: str, start_ns: int, duration_ns: int, correlation: int, **arguments: Any
) -> TraceEvent:
    """A kernel on device 2, stream 0, as the roctracer back end numbers them."""
    known = {"device": 2, "stream": 0, "correlation": correlation, "kind": "Dispatch Kernel"}
    return TraceEvent("kernel", name, start_ns, duration_ns, 2, 0, known | arguments)


def call(
    name: str, start_ns: int, duration_ns: int, correlation: int, **arguments: Any
) -> TraceEvent:
    """A call of the HIP runtime on thread 1000."""
    return TraceEvent(
        "cuda_runtime",
        name,
        start_ns,
        duration_ns,
        arguments={"cid": 65, "correlation": correlation} | arguments,
    )


def operator(name: str, start_ns: int, duration_ns: int, external_id: int) -> TraceEvent:
    """A CPU operator on thread 1000."""
    return TraceEvent(
        "cpu_op", name, start_ns, duration_ns, arguments={"External id": external_id, "Ev Idx": 0}
    )


def trace_text(
    events: Iterable[TraceEvent | str],
    *,
    base_ns: int | None = BASE_NS,
    header: dict[str, Any] | None = None,
    members_first: bool = True,
    space: str = " ",
) -> str:
    """The JSON of a trace; an event may be given as text. Members stand before or after the event
    list.
    """
    members = dict(HEADER if header is None else header)
    if base_ns is not None:
        members["baseTimeNanoseconds"] = base_ns
    texts = [event if isinstance(event, str) else event.json(space) for event in events]
    event_list = f'"traceEvents": [\n{",".join(texts)}\n]'
    others = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in members.items()]
    parts = [*others, event_list] if members_first else [event_list, *others]
    return "\n{\n" + ",\n".join(parts) + "\n}\n"


def write_trace(path: Path, events: Iterable[TraceEvent | str], **options: Any) -> Path:
    """Write a trace; a name that ends in .gz or .zst is compressed accordingly. Options as of
    `trace_text`.
    """
    data = trace_text(events, **options).encode("utf-8", "surrogateescape")
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    elif path.suffix == ".zst":
        data = zstd.compress(data)
    path.write_bytes(data)
    return path


def small_step() -> list[TraceEvent]:
    """One step: an operator that launches a kernel, a copy, a fill and a collective on two
    streams.
    """
    return [
        TraceEvent(
            "user_annotation", "ProfilerStep#1", 1_000_000, 100_000, arguments={"External id": 1}
        ),
        operator("aten::mm", 1_010_000, 30_000, 2),
        call(
            "hipExtModuleLaunchKernel",
            1_015_000,
            5_000,
            11,
            **{"External id": 2},
            grid=[512, 1, 1],
            block=[256, 1, 1],
        ),
        kernel("Cijk_Ailk_Bljk_SB_MT64x64x32", 1_030_500, 20_001, 11, **{"External id": 2}),
        call("hipMemcpyAsync", 1_041_000, 2_000, 12, size="4096", kind="1"),
        TraceEvent(
            "gpu_memcpy",
            "Memcpy HtoD (Host -> Device)",
            1_055_000,
            3_000,
            2,
            0,
            {"device": 2, "stream": 0, "correlation": 12},
        ),
        TraceEvent(
            "gpu_memset",
            "Memset (Device)",
            1_059_000,
            1_000,
            2,
            0,
            {"device": 2, "stream": 0, "correlation": 13},
        ),
        kernel(
            "ncclDevKernel_Generic(int)",
            1_040_000,
            30_000,
            14,
            stream=4,
            **{"Collective name": "allreduce"},
        ),
        TraceEvent(
            "gpu_user_annotation", "ProfilerStep#1", 1_030_499, 39_503, 2, 0, {"External id": 1}
        ),
        TraceEvent(
            "python_function",
            "train.py(1): <module>",
            1_000_000,
            100_000,
            arguments={"Python id": 1},
        ),
    ]
