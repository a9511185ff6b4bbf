"""The parts of each public recording that its cut keeps.

They are the parts that the lessons need, and the parts that tidyprof needs to read the cut.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from tidyprof.readers.rocprof_compute.workload import PASS_FILES
from tools.cuts.chrome_trace import trace, trace_with_stacks
from tools.cuts.csv_table import columns, without, without_rows
from tools.cuts.rpd_database import database


@dataclass(frozen=True)
class Recipe:
    """Instructions for cutting a recording.

    keeps -- description of the kept parts for people.
    files -- maps a path in the recording's folder to the function that cuts the unpacked file.
             Other files are left out.
    """

    keeps: str
    files: dict[str, Callable[[bytes], bytes]]


_TRACE = (
    "every event and argument that tidyprof reads, without the arrows between events and the Python"
    " call stack"
)
_STACKS = "every event and argument that tidyprof reads, without the arrows between events"
_WORKLOAD = (
    "the dispatches and their counters without those of single channels, and the tables that a"
    " lesson asks"
)
_RPD = "every call and operation, without call stacks, indexes and two tables that are empty"

_COUNTERS = without(r"\[\d+\]$|^(obj(_\d+)?|Queue_ID|PID|TID)$")
_SYSTEM = without(
    r"^(ip_blocks|hostname|cpu_model|sbios|linux_distro|vbios|cpu_memory)$|kernel_version$"
)
_ROOFS = without(r"(Low|High)$")
_AVERAGES = without("^(Min|Max)$")
_PASSES = dict.fromkeys(PASS_FILES, _COUNTERS)


def _workload(
    below: str = "", **more: Callable[[bytes], bytes]
) -> dict[str, Callable[[bytes], bytes]]:
    """Return cutters for the counters and the machine of one rocprof-compute folder, and for other
    CSV files.
    """
    files = {"pmc_perf": _COUNTERS, "sysinfo": _SYSTEM, **more}
    return {f"{below}{name}.csv": cutter for name, cutter in files.items()}


def _compared(*kinds: str) -> dict[str, Callable[[bytes], bytes]]:
    """Return cutters for the folders of two kernels with the tables that `analyze` made of them."""
    # The lessons need only the F16 matrix products.
    speeds = without_rows(r"\((BF16|F32|F64|Int8)\)$")
    tables = {"2.1_Speed-of-Light": speeds}
    tables |= dict.fromkeys(("10.1_Overall_Instruction_Mix", "12.2_LDS_Stats"), _AVERAGES)
    more = {"roofline": _ROOFS, **{f"analyze/{name}": cutter for name, cutter in tables.items()}}
    return {
        path: cutter
        for kind in kinds
        for path, cutter in _workload(f"{kind}/MI300X_A1/", **more).items()
    }


def _latency(text: bytes) -> bytes:
    return json.dumps({"avg_latency": json.loads(text)["avg_latency"]}).encode()


_LLAMA = "Llama-3.1-8B_latency_bs1_in128_out128_float16_mem0.8_20250807_185823"

RECIPES = {
    "torch-mi300x-resnet-ddp-rank0": Recipe(
        f"{_STACKS}; of TraceLens's table of collectives what was sent and how long it took",
        {
            "resnet_act_checkpoint.json.gz": trace_with_stacks,
            "reference/coll_analysis.csv": columns(
                "Collective name", "In msg size (MB)_first", "dur_mean"
            ),
        },
    ),
    "torch-mi300x-resnet18-train": Recipe(_TRACE, {"train_resnet18.json.gz": trace}),
    "torch-mi300x-sglang-decode": Recipe(_TRACE, {"sglang_Qwen3-8B_decode.json.gz": trace}),
    "torch-mi300x-vllm-decode-hipgraph": Recipe(_TRACE, {"graph_execution.json.gz": trace}),
    "torch-mi300x-compile-triton": Recipe(_TRACE, {"trace.json.gz": trace}),
    "torch-mi300-ddp-4ranks-fused": Recipe(_TRACE, {"merged_all_events.json.gz": trace}),
    "rocprofv3-csv-gfx1151-llamacpp-decode": Recipe(
        "every kernel of the trace, without its size and registers",
        {"decode_kernel_trace.csv": without(r"_(Size|Count)(_[XYZ])?$")},
    ),
    "rocprof-compute-mi300x-coalescing": Recipe(
        _WORKLOAD, _compared("coalesced_profile", "uncoalesced_profile")
    ),
    "rocprof-compute-mi300x-bank-conflict": Recipe(
        _WORKLOAD, _compared("conflict_profile", "no_conflict_profile")
    ),
    "rocprof-compute-mi308x-montecarlo": Recipe(_WORKLOAD, _workload(roofline=_ROOFS)),
    "rocprof-compute-mi300x-vcopy": Recipe(_WORKLOAD, _workload(timestamps=_COUNTERS, **_PASSES)),
    "rocprof-compute-mi200-vcopy": Recipe(_WORKLOAD, _workload(roofline=_ROOFS, **_PASSES)),
    "rpd-mi200-matmul": Recipe(_RPD, {"matmul_result.rpd": database}),
    "rpd-vllm-mytrace": Recipe(_RPD, {"mytrace.rpd.gz": database}),
    "smi-mi300x-vllm-llama31-bs1": Recipe(
        "every sample of a GPU's activity, power and memory, and the mean latency of the requests",
        {
            f"containerized/{_LLAMA}.json": _latency,
            f"monitoring/gpu_power_{_LLAMA}.csv": columns("timestamp", "device", "power_watts"),
            f"monitoring/gpu_usage_{_LLAMA}.csv": columns(
                "timestamp", "device", "gpu_use_percent", "vram_total_bytes", "vram_used_bytes"
            ),
        },
    ),
}
