"""Writes small outputs the way rocprofv3 does, as CSV and as JSON, from records whose truth is
known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_NS = 1_550_151_853_000_000
AGENTS = {0: "CPU", 1: "CPU", 4: "GPU", 5: "GPU"}
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
COUNTER_HEADER = [
    "Correlation_Id",
    "Dispatch_Id",
    "Agent_Id",
    "Queue_Id",
    "Process_Id",
    "Thread_Id",
    "Grid_Size",
    "Kernel_Id",
    "Kernel_Name",
    "Workgroup_Size",
    "LDS_Block_Size",
    "Scratch_Size",
    "VGPR_Count",
    "Accum_VGPR_Count",
    "SGPR_Count",
    "Counter_Name",
    "Counter_Value",
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


def counter_row(kernel: Kernel, counter: str, value: float, process: int = 300) -> list[Any]:
    size = [a * b * c for a, b, c in (kernel.grid, kernel.block)]
    return [
        kernel.correlation,
        kernel.dispatch,
        f"Agent {kernel.agent}",
        kernel.queue,
        process,
        kernel.thread,
        size[0],
        7,
        kernel.name,
        size[1],
        512,
        16,
        32,
        4,
        48,
        counter,
        value,
        START_NS + kernel.start,
        START_NS + kernel.start + kernel.duration,
    ]


def statistics_csv(rows: Iterable[tuple[str, Sequence[int]]]) -> str:
    """A table of statistics from the durations of each name."""
    import statistics

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
    counters: Sequence[tuple[Kernel, dict[str, list[float]]]] = (),
    process: int = 300,
    **members: Any,
) -> dict[str, Any]:
    """The content of a *_results.json; `members` replace whole members of the process."""
    names = list(
        dict.fromkeys(kernel.name for kernel in [*kernels, *(kernel for kernel, _ in counters)])
    )
    functions = list(
        dict.fromkeys(call.name for call in calls if call.domain != "MARKER_CORE_RANGE_API")
    )
    ranges = [call for call in calls if call.domain == "MARKER_CORE_RANGE_API"]
    operations = {
        "HIP_RUNTIME_API_EXT": functions,
        "MARKER_CORE_RANGE_API": ["roctxMarkA", "roctxThreadRangeA"],
        "MEMORY_COPY": [f"MEMORY_COPY_{direction}" for direction in COPIES],
        "KERNEL_DISPATCH": ["KERNEL_DISPATCH_COMPLETE"],
        "KFD_QUEUE": ["KFD_QUEUE_EVICT_SVM"],
    }
    counter_names = list(dict.fromkeys(name for _, values in counters for name in values))
    tool = {
        "metadata": {
            "node": {"hostname": "node7"},
            "pid": process,
            "init_time": START_NS - 10,
            "fini_time": 2 * START_NS,
            "command": ["python3", "train.py"],
        },
        "agents": [
            {
                "id": {"handle": HANDLE_OF_AGENT + number},
                "type": 1 + (kind == "GPU"),
                "node_id": number,
                "logical_node_id": number,
                "name": "gfx942" if kind == "GPU" else "EPYC",
                "product_name": "AMD Instinct MI300X" if kind == "GPU" else "AMD EPYC",
                "cu_count": 304,
            }
            for number, kind in AGENTS.items()
        ],
        "counters": [
            {"id": {"handle": 100 + place}, "name": name}
            for place, name in enumerate(counter_names)
        ],
        "strings": {
            "buffer_records": [
                {"kind": domain, "operations": operations.get(domain, [])} for domain in DOMAINS
            ],
            "marker_api": [{"key": call.correlation, "value": call.name} for call in ranges],
            "pc_sample_instructions": ["s_endpgm", "v_add_f32"],
            "pc_sample_comments": ["a.cpp:1", "a.cpp:2"],
        },
        "kernel_symbols": [
            {
                "kernel_id": 7 + place,
                "kernel_name": f"_Z{place}.kd",
                "formatted_kernel_name": name,
                "demangled_kernel_name": f"{name} [clone .kd]",
                "sgpr_count": 48,
                "arch_vgpr_count": 32,
                "accum_vgpr_count": 4,
            }
            for place, name in enumerate(names)
        ],
        "callback_records": {
            "counter_collection": [
                {
                    "thread_id": kernel.thread,
                    "dispatch_data": {
                        "correlation_id": {"internal": kernel.correlation},
                        "start_timestamp": START_NS + kernel.start,
                        "end_timestamp": START_NS + kernel.start + kernel.duration,
                        "dispatch_info": kernel.dispatch_info(7 + names.index(kernel.name)),
                    },
                    "records": [
                        {"counter_id": {"handle": 100 + counter_names.index(name)}, "value": value}
                        for name, instances in values.items()
                        for value in instances
                    ],
                }
                for kernel, values in counters
            ]
        },
        "buffer_records": {
            "kernel_dispatch": [kernel.json(7 + names.index(kernel.name)) for kernel in kernels],
            "hip_api": [
                call.json(functions.index(call.name)) for call in calls if call not in ranges
            ],
            "marker_api": [call.json(1) for call in ranges],
            "memory_copy": [copy.json() for copy in copies],
        },
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
