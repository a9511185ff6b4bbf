"""The JSON results of rocprofv3, with the members that tidyprof reads."""

from __future__ import annotations

import json
from typing import Any

_NOT_ASKED = ("code_objects", "host_functions", "summary")
_STRINGS = ("buffer_records", "marker_api")
_AGENT = (
    *("id", "type", "node_id", "logical_node_id", "name", "product_name", "model_name"),
    *("cu_count", "num_xcc", "lds_size_in_kb", "max_engine_clk_fcompute"),
)
_SYMBOL = ("kernel_id", "kernel_name", "formatted_kernel_name", "sgpr_count", "arch_vgpr_count", "accum_vgpr_count")


def results(text: bytes) -> bytes:
    """Each process with all of its records; of the kernels only those that were launched."""
    whole = json.loads(text)
    whole["rocprofiler-sdk-tool"] = [_lean(process) for process in whole["rocprofiler-sdk-tool"]]
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode()


def _lean(process: dict[str, Any]) -> dict[str, Any]:
    launched = {record["dispatch_info"]["kernel_id"] for record in process["buffer_records"]["kernel_dispatch"]}
    symbols = [symbol for symbol in process["kernel_symbols"] if symbol["kernel_id"] in launched]
    kept = {name: value for name, value in process.items() if name not in _NOT_ASKED}
    return kept | {
        "agents": [_only(_AGENT, agent) for agent in process["agents"]],
        "strings": _only(_STRINGS, process["strings"]),
        "kernel_symbols": [_only(_SYMBOL, symbol) for symbol in symbols],
    }


def _only(names: tuple[str, ...], of: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in of.items() if name in names}
