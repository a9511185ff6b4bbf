"""Print the cost of a job's collectives, from one torch.profiler trace per rank.

    python 17_sharded.py TRACES...

Each row describes one kind of collective and contains these values:

- calls per rank
- size of the whole message in MB
- transfer time (the shortest duration on any rank)
- bus bandwidth
- share of time that ranks spend waiting in the collective

The script requires pandas.
"""

import gzip
import json
import sys
from pathlib import Path

import pandas as pd

BYTES = {
    "Float": 4,
    "BFloat16": 2,
    "Half": 2,
    "Double": 8,
    "Int": 4,
    "Long": 8,
    "Byte": 1,
    "Char": 1,
}
# A rank sends (N-1)/N of the whole message, times this factor.
PASSES = {"allreduce": 2, "_allgather_base": 1, "_reduce_scatter_base": 1}


def size_of(dtype):
    if dtype.startswith("Float8"):
        return 1
    if dtype not in BYTES:
        sys.exit(f"Unknown data type: {dtype}. Add its size to BYTES in this script.")
    return BYTES[dtype]


def collectives(file):
    content = Path(file).read_bytes()
    trace = json.loads(
        gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    )
    rows = []
    for event in sorted(trace["traceEvents"], key=lambda event: event.get("ts", 0)):
        details = event.get("args", {})
        if event.get("cat") == "kernel" and details.get("Collective name") in PASSES:
            elements = max(details["In msg nelems"], details["Out msg nelems"])
            rows.append({
                "collective": details["Collective name"],
                "group": details.get("Process Group Name", ""),
                "size": details["Group size"],
                "MB": elements * size_of(details["dtype"]) / 1e6,
                "ms": event["dur"] / 1e3,
            })  # fmt: skip
    table = pd.DataFrame(rows, columns=["collective", "group", "size", "MB", "ms"])
    return table.assign(number=table.groupby("group").cumcount())


if __name__ == "__main__":
    every = pd.concat(map(collectives, sys.argv[1:]))
    if every.empty:
        sys.exit(
            "These traces contain no collective kernels. Record a job on GPUs, with "
            "PyTorch 2.3 or newer."
        )
    kind = ["collective", "size", "MB"]
    calls = every.groupby(["group", "number", *kind])["ms"].agg(
        transfer_ms="min", whole_ms="mean"
    )
    table = calls.groupby(kind).mean().reset_index()
    table.insert(3, "calls", calls.groupby(kind).size().array)
    factor = table["collective"].map(PASSES) * (table["size"] - 1) / table["size"]
    table["bus_GB_per_s"] = factor * table["MB"] / table["transfer_ms"]
    table["waiting_percent"] = 100 * (1 - table["transfer_ms"] / table.pop("whole_ms"))
    print(table.sort_values("MB").round(2).to_string(index=False))
