"""What do the collectives of a job cost? Give one trace of torch.profiler for each rank.

    python 17_sharded.py TRACES...

For each collective: calls of a rank, MB of the whole message, its transfer (the shortest duration
on any rank), the bus bandwidth, and how much of the ranks' time in it is waiting. Needs pandas.
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
PASSES = {
    "allreduce": 2,
    "_allgather_base": 1,
    "_reduce_scatter_base": 1,
}  # times (N-1)/N of the whole message


def size_of(dtype):
    if dtype.startswith("Float8"):
        return 1
    if dtype not in BYTES:
        sys.exit(f"how many bytes has an element of {dtype}? Add it to BYTES")
    return BYTES[dtype]


def collectives(file):
    text = Path(file).read_bytes()
    trace = json.loads(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text)
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    found = [event for event in kernels if event["args"].get("Collective name") in PASSES]
    rows = [
        {
            "collective": event["args"]["Collective name"],
            "group": event["args"].get("Process Group Name", ""),
            "size": event["args"]["Group size"],
            "MB": max(event["args"]["In msg nelems"], event["args"]["Out msg nelems"])
            * size_of(event["args"]["dtype"]) / 1e6,
            "ms": event["dur"] / 1e3,
        }
        for event in sorted(found, key=lambda event: event["ts"])
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["collective", "group", "size", "MB", "ms"])
    return table.assign(number=table.groupby("group").cumcount())


if __name__ == "__main__":
    each = pd.concat(map(collectives, sys.argv[1:]))
    if each.empty:
        sys.exit(
            "no kernel in these traces says which collective it is: record GPUs, with torch 2.3 or"
            " newer"
        )
    keys = ["collective", "size", "MB"]
    one = (
        each.groupby(["group", "number", *keys])["ms"]
        .agg(transfer_ms="min", whole_ms="mean")
        .reset_index()
    )
    shown = one.groupby(keys).agg(
        calls=("number", "size"), transfer_ms=("transfer_ms", "mean"), whole_ms=("whole_ms", "mean")
    ).reset_index()  # fmt: skip
    factor = shown["collective"].map(PASSES) * (shown["size"] - 1) / shown["size"]
    shown["bus_GB_per_s"] = factor * shown["MB"] / shown["transfer_ms"]
    shown["waiting_percent"] = 100 * (1 - shown["transfer_ms"] / shown["whole_ms"])
    print(shown.drop(columns="whole_ms").sort_values("MB").round(2).to_string(index=False))
