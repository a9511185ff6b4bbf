"""Writes small outputs the way rocprofv3 does, as CSV and as JSON, from records whose truth is
known.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).parent / "readers/samples/rocprofv3_results.json"
START_NS = 1_550_151_853_000_000
HANDLE_OF_AGENT = 37944
DOMAINS = (
    "NONE",
    "HIP_RUNTIME_API_EXT",
    "MARKER_CORE_RANGE_API",
    "MEMORY_COPY",
    "KERNEL_DISPATCH",
    "KFD_QUEUE",
)
COPIES = {
    "HOST_TO_DEVICE": (0, 4),
    "DEVICE_TO_HOST": (4, 0),
    "DEVICE_TO_DEVICE": (4, 5),
    "HOST_TO_HOST": (0, 1),
}

KERNEL_HEADER = [
    "Kind",
    "Agent_Id",
    "Queue_Id",
    "Stream_Id",
    "Thread_Id",
    "Dispatch_Id",
    "Kernel_Id",
    "Kernel_Name",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
    "LDS_Block_Size",
    "Scratch_Size",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "SGPR_Count",
    "Workgroup_Size_X",
    "Workgroup_Size_Y",
    "Workgroup_Size_Z",
    "Grid_Size_X",
    "Grid_Size_Y",
    "Grid_Size_Z",
]
CALL_HEADER = [
    "Domain",
    "Function",
    "Process_Id",
    "Thread_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
]
COPY_HEADER = [
    "Kind",
    "Direction",
    "Stream_Id",
    "Source_Agent_Id",
    "Destination_Agent_Id",
    "Correlation_Id",
    "Start_Timestamp",
    "End_Timestamp",
]
STATISTICS_HEADER = [
    "Name",
    "Calls",
    "TotalDurationNs",
    "AverageNs",
    "Percentage",
    "MinNs",
    "MaxNs",
    "StdDev",
]


@dataclass(frozen=True)
class Kernel:
    """A dispatch; times in ns after START_NS."""

    name: str
    start: int
    duration: int
    dispatch: int
    correlation: int = 0
    agent: int = 4
    stream: int = 1
    queue: int = 1
    thread: int = 300
    grid: tuple[int, int, int] = (1024, 2, 1)
    block: tuple[int, int, int] = (256, 1, 1)

    def cells(self) -> list[Any]:
        return [
            "KERNEL_DISPATCH",
            f"Agent {self.agent}",
            self.queue,
            self.stream,
            self.thread,
            self.dispatch,
            7,
            self.name,
            self.correlation,
            START_NS + self.start,
            START_NS + self.start + self.duration,
            512,
            16,
            32,
            4,
            48,
            *self.block,
            *self.grid,
        ]

    def json(self, kernel_id: int) -> dict[str, Any]:
        return {
            "size": 184,
            "kind": DOMAINS.index("KERNEL_DISPATCH"),
            "operation": 0,
            "thread_id": self.thread,
            "correlation_id": {"internal": self.correlation, "external": 0},
            "start_timestamp": START_NS + self.start,
            "end_timestamp": START_NS + self.start + self.duration,
            "dispatch_info": self.dispatch_info(kernel_id),
            "stream_id": {"handle": self.stream},
        }

    def dispatch_info(self, kernel_id: int) -> dict[str, Any]:
        return {
            "size": 72,
            "agent_id": {"handle": HANDLE_OF_AGENT + self.agent},
            "queue_id": {"handle": self.queue},
            "kernel_id": kernel_id,
            "dispatch_id": self.dispatch,
            "private_segment_size": 16,
            "group_segment_size": 512,
            "workgroup_size": dict(zip("xyz", self.block, strict=True)),
            "grid_size": dict(zip("xyz", self.grid, strict=True)),
        }


@dataclass(frozen=True)
class Call:
    """A call of the HIP library, or a range of the user with `domain` MARKER_CORE_RANGE_API."""

    name: str
    start: int
    duration: int
    correlation: int
    thread: int = 300
    process: int = 300
    domain: str = "HIP_RUNTIME_API_EXT"

    def cells(self) -> list[Any]:
        end = START_NS + self.start + self.duration
        return [
            self.domain,
            self.name,
            self.process,
            self.thread,
            self.correlation,
            START_NS + self.start,
            end,
        ]

    def json(self, operation: int) -> dict[str, Any]:
        return {
            "size": 64,
            "kind": DOMAINS.index(self.domain),
            "operation": operation,
            "correlation_id": {"internal": self.correlation, "external": 0},
            "thread_id": self.thread,
            "start_timestamp": START_NS + self.start,
            "end_timestamp": START_NS + self.start + self.duration,
            "args": {"stream": "0x0"},
            "retval": {"hipError_t_retval": 0},
        }


@dataclass(frozen=True)
class Copy:
    """A copy between agents; the CSV file does not say how many bytes."""

    direction: str
    start: int
    duration: int
    correlation: int
    size: int = 4096
    stream: int = 0

    def cells(self) -> list[Any]:
        source, target = (f"Agent {agent}" for agent in COPIES[self.direction])
        times = [START_NS + self.start, START_NS + self.start + self.duration]
        return [
            "MEMORY_COPY",
            f"MEMORY_COPY_{self.direction}",
            self.stream,
            source,
            target,
            self.correlation,
            *times,
        ]

    def json(self) -> dict[str, Any]:
        source, target = (HANDLE_OF_AGENT + agent for agent in COPIES[self.direction])
        return {
            "size": 72,
            "kind": DOMAINS.index("MEMORY_COPY"),
            "operation": list(COPIES).index(self.direction),
            "thread_id": 300,
            "correlation_id": {"internal": self.correlation, "external": 0},
            "start_timestamp": START_NS + self.start,
            "end_timestamp": START_NS + self.start + self.duration,
            "dst_agent_id": {"handle": target},
            "src_agent_id": {"handle": source},
            "bytes": self.size,
            "stream_id": {"handle": self.stream},
        }


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Texts in quotes that are not doubled, numbers without, as csv_encoder in rocprofiler-sdk
    writes.
    """
    lines = [
        ",".join(f'"{cell}"' if isinstance(cell, str) else str(cell) for cell in row)
        for row in rows
    ]
    return "\n".join([",".join(f'"{name}"' for name in header), *lines]) + "\n"


def kernel_csv(kernels: Iterable[Kernel]) -> str:
    return csv_text(KERNEL_HEADER, [kernel.cells() for kernel in kernels])


def call_csv(calls: Iterable[Call]) -> str:
    return csv_text(CALL_HEADER, [call.cells() for call in calls])


def copy_csv(copies: Iterable[Copy]) -> str:
    return csv_text(COPY_HEADER, [copy.cells() for copy in copies])


def statistics_csv(rows: Iterable[tuple[str, Sequence[int]]]) -> str:
    """A table of statistics from the durations of each name."""
    rows = list(rows)
    whole = sum(sum(durations) for _, durations in rows)
    cells = []
    for name, durations in rows:
        deviation = statistics.stdev(durations) if len(durations) > 1 else 0.0
        share = 100 * sum(durations) / whole
        cells.append(
            [
                name,
                len(durations),
                sum(durations),
                statistics.mean(durations),
                share,
                min(durations),
                max(durations),
                deviation,
            ]
        )
    return csv_text(STATISTICS_HEADER, cells)


def results(
    kernels: Sequence[Kernel] = (),
    calls: Sequence[Call] = (),
    copies: Sequence[Copy] = (),
    process: int = 300,
    **members: Any,
) -> dict[str, Any]:
    """The content of a *_results.json, with the agents of the sample; `members` replace whole
    members of the process.
    """
    (tool,) = json.loads(SAMPLE.read_text())["rocprofiler-sdk-tool"]
    names = list(dict.fromkeys(kernel.name for kernel in kernels))
    ranges = [call for call in calls if call.domain == "MARKER_CORE_RANGE_API"]
    others = [call for call in calls if call not in ranges]
    functions = list(dict.fromkeys(call.name for call in others))
    domains = {domain["kind"]: domain for domain in tool["strings"]["buffer_records"]}
    domains["HIP_RUNTIME_API_EXT"]["operations"] = functions
    tool["strings"]["marker_api"] = [
        {"key": call.correlation, "value": call.name} for call in ranges
    ]
    tool["metadata"]["pid"] = process
    del tool["callback_records"]
    tool["kernel_symbols"] = [
        tool["kernel_symbols"][0] | {"kernel_id": 7 + place, "formatted_kernel_name": name}
        for place, name in enumerate(names)
    ]
    tool["buffer_records"] = {
        "kernel_dispatch": [kernel.json(7 + names.index(kernel.name)) for kernel in kernels],
        "hip_api": [call.json(functions.index(call.name)) for call in others],
        "marker_api": [call.json(1) for call in ranges],
        "memory_copy": [copy.json() for copy in copies],
    }
    return {"rocprofiler-sdk-tool": [tool | members]}


def write_results(path: Path, *args: Any, **options: Any) -> Path:
    path.write_text(json.dumps(results(*args, **options)))
    return path


def small_run() -> tuple[list[Kernel], list[Call], list[Copy]]:
    """A copy, two kernels on two streams that overlap, their launches, a range around them, and a
    copy back.
    """
    kernels = [
        Kernel("void gemm<float>(float*, int)", 2_000, 1_500, 1, correlation=2),
        Kernel(
            "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
            3_000,
            2_000,
            2,
            correlation=3,
            stream=2,
        ),
        Kernel("__amd_rocclr_fillBufferAligned", 6_000, 300, 3, correlation=4),
    ]
    calls = [
        Call("hipMemcpyAsync", 100, 50, 1),
        Call("hipLaunchKernel", 200, 40, 2),
        Call("hipLaunchKernel", 300, 40, 3, thread=301),
        Call("hipMemsetAsync", 400, 40, 4),
        Call("step 1", 50, 7_000, 90, domain="MARKER_CORE_RANGE_API"),
    ]
    copies = [Copy("HOST_TO_DEVICE", 1_000, 500, 1), Copy("DEVICE_TO_HOST", 7_000, 250, 5, size=64)]
    return kernels, calls, copies


def write_small_run(folder: Path, prefix: str = "300") -> Path:
    kernels, calls, copies = small_run()
    ranges = [call for call in calls if call.domain.startswith("MARKER")]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{prefix}_kernel_trace.csv").write_text(kernel_csv(kernels))
    (folder / f"{prefix}_hip_api_trace.csv").write_text(
        call_csv(call for call in calls if call not in ranges)
    )
    (folder / f"{prefix}_marker_api_trace.csv").write_text(call_csv(ranges))
    (folder / f"{prefix}_memory_copy_trace.csv").write_text(copy_csv(copies))
    return folder
