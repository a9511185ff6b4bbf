"""Writes small outputs the way rocprofv3 does, as CSV and as JSON, from records whose truth is
known.
"""

from __future__ import annotations

import json
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
BLOCK, GRID = (256, 1, 1), (1024, 2, 1)

STATISTICS = """\
"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"
"b, with a comma",3,21,7.0,17.5,5,9,2.0
"a",1,99,99.0,82.5,99,99,0.0
"""


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

    def row(self) -> dict[str, Any]:
        return {
            "Kind": "KERNEL_DISPATCH",
            "Agent_Id": f"Agent {self.agent}",
            "Queue_Id": self.queue,
            "Stream_Id": self.stream,
            "Thread_Id": self.thread,
            "Dispatch_Id": self.dispatch,
            "Kernel_Id": 7,
            "Kernel_Name": self.name,
            "Correlation_Id": self.correlation,
            **_times(self, "Start_Timestamp", "End_Timestamp"),
            "LDS_Block_Size": 512,
            "Scratch_Size": 16,
            "VGPR_Count": 32,
            "Accum_VGPR_Count": 4,
            "SGPR_Count": 48,
            **{f"Workgroup_Size_{axis}": size for axis, size in zip("XYZ", BLOCK, strict=True)},
            **{f"Grid_Size_{axis}": size for axis, size in zip("XYZ", GRID, strict=True)},
        }

    def record(self, kernel_id: int) -> dict[str, Any]:
        return _record("KERNEL_DISPATCH", 0, self) | {
            "thread_id": self.thread,
            "stream_id": {"handle": self.stream},
            "dispatch_info": {
                "agent_id": {"handle": HANDLE_OF_AGENT + self.agent},
                "queue_id": {"handle": self.queue},
                "kernel_id": kernel_id,
                "dispatch_id": self.dispatch,
                "private_segment_size": 16,
                "group_segment_size": 512,
                "workgroup_size": dict(zip("xyz", BLOCK, strict=True)),
                "grid_size": dict(zip("xyz", GRID, strict=True)),
            },
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

    def row(self) -> dict[str, Any]:
        return {
            "Domain": self.domain,
            "Function": self.name,
            "Process_Id": self.process,
            "Thread_Id": self.thread,
            "Correlation_Id": self.correlation,
            **_times(self, "Start_Timestamp", "End_Timestamp"),
        }

    def record(self, operation: int) -> dict[str, Any]:
        return _record(self.domain, operation, self) | {"thread_id": self.thread, "args": {}}


@dataclass(frozen=True)
class Copy:
    """A copy between agents; the CSV file does not say how many bytes."""

    direction: str
    start: int
    duration: int
    correlation: int
    size: int = 4096

    def row(self) -> dict[str, Any]:
        source, target = (f"Agent {agent}" for agent in COPIES[self.direction])
        return {
            "Kind": "MEMORY_COPY",
            "Direction": f"MEMORY_COPY_{self.direction}",
            "Stream_Id": 0,
            "Source_Agent_Id": source,
            "Destination_Agent_Id": target,
            "Correlation_Id": self.correlation,
            **_times(self, "Start_Timestamp", "End_Timestamp"),
        }

    def record(self) -> dict[str, Any]:
        source, target = (HANDLE_OF_AGENT + agent for agent in COPIES[self.direction])
        return _record("MEMORY_COPY", [*COPIES].index(self.direction), self) | {
            "thread_id": 300,
            "src_agent_id": {"handle": source},
            "dst_agent_id": {"handle": target},
            "bytes": self.size,
            "stream_id": {"handle": 0},
        }


def _times(one: Kernel | Call | Copy, start: str, end: str) -> dict[str, int]:
    return {start: START_NS + one.start, end: START_NS + one.start + one.duration}


def _record(domain: str, operation: int, one: Kernel | Call | Copy) -> dict[str, Any]:
    return {
        "size": 64,
        "kind": DOMAINS.index(domain),
        "operation": operation,
        "correlation_id": {"internal": one.correlation, "external": 0},
        **_times(one, "start_timestamp", "end_timestamp"),
    }


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """Texts in quotes that are not doubled, numbers without, as csv_encoder in rocprofiler-sdk
    writes.
    """
    return "".join(
        ",".join(f'"{cell}"' if isinstance(cell, str) else str(cell) for cell in row) + "\n"
        for row in ([*rows[0]], *(row.values() for row in rows))
    )


def rows_csv(records: Iterable[Kernel | Call | Copy]) -> str:
    return csv_text([one.row() for one in records])


def write_results(
    path: Path,
    kernels: Sequence[Kernel] = (),
    calls: Sequence[Call] = (),
    copies: Sequence[Copy] = (),
) -> Path:
    """Write a *_results.json with the agents of the sample."""
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
    del tool["callback_records"]
    tool["kernel_symbols"] = [
        tool["kernel_symbols"][0] | {"kernel_id": 7 + place, "formatted_kernel_name": name}
        for place, name in enumerate(names)
    ]
    tool["buffer_records"] = {
        "kernel_dispatch": [kernel.record(7 + names.index(kernel.name)) for kernel in kernels],
        "hip_api": [call.record(functions.index(call.name)) for call in others],
        "marker_api": [call.record(1) for call in ranges],
        "memory_copy": [copy.record() for copy in copies],
    }
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [tool]}))
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
    tables = {
        "kernel": kernels,
        "hip_api": [call for call in calls if call.domain.startswith("HIP")],
        "marker_api": [call for call in calls if call.domain.startswith("MARKER")],
        "memory_copy": copies,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for subject, records in tables.items():
        (folder / f"{prefix}_{subject}_trace.csv").write_text(rows_csv(records))
    return folder
