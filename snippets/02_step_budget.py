"""Divide the GPU time of each step in a torch.profiler trace into parts.

    python 02_step_budget.py trace.json[.gz] [MS]

MS is the step time without the profiler, which you can find in any training log. The
profiler slows down launches, so the traced steps are longer. The script therefore
subtracts the difference from the launch-bound time. If the code block from lesson 14
wrote the trace, the trace already contains MS. The data wait is idle time in the range
`data`.
"""

import gzip
import json
import sys

import numpy as np
import pandas as pd

# Calls that may block the host
WAITS = r"(?:hip|cuda).*(?:Synchronize|Malloc|Free)|(?:hip|cuda)Memcpy(?!.*Async)"

path = sys.argv[1]
if path.endswith(".zst"):
    sys.exit(f"{path} is compressed. Unpack it first: zstd -d {path}")
with (gzip.open if path.endswith(".gz") else open)(
    path, "rt", encoding="utf-8"
) as file:
    trace = json.load(file)
events = pd.DataFrame(event for event in trace["traceEvents"] if event.get("ph") == "X")
events["begin"] = (
    (10 * (events["ts"] - events["ts"].min())).round().astype(int)
    # From us to units of 0.1 us
)
events["end"] = events["begin"] + (10 * events["dur"]).round().astype(int)
events["correlation"] = [
    args.get("correlation") if isinstance(args, dict) else None
    for args in events["args"]
]
length = events["end"].max() + 1


def during(rows):
    """Return an array that is True for each 0.1 us during which at least one of these
    events runs.
    """
    change = np.zeros(length + 1, int)
    np.add.at(change, rows["begin"], 1)
    np.add.at(change, rows["end"], -1)
    return change.cumsum()[:length] > 0


device = events[events["cat"].isin(["kernel", "gpu_memcpy", "gpu_memset"])].sort_values(
    "begin"
)
if device.empty:
    sys.exit(
        "This trace contains no GPU work. To see its step times, run "
        "02_trace_to_table.py."
    )
calls = events[events["cat"].isin(["cuda_runtime", "cuda_driver"])]
is_collective = device["name"].str.contains("nccl|rccl", case=False)
is_copy = device["cat"] == "gpu_memcpy"
compute, busy = during(device[~is_collective & ~is_copy]), during(device)
communication = during(device[is_collective]) & ~compute

# The host causes a gap if it launches the next work after the GPU has finished all
# earlier work.
launched = device["correlation"].map(
    calls.drop_duplicates("correlation").set_index("correlation")["begin"]
)
dry = np.zeros(length, bool)
last_end = 0
for launch, begin, end in zip(
    launched.fillna(-1), device["begin"], device["end"], strict=True
):
    if launch > last_end:
        dry[last_end:begin] = True
    last_end = max(last_end, end)
dry[last_end:] = True

blocked = dry & during(calls[calls["name"].str.match(WAITS)])
ranges = events[events["cat"] == "user_annotation"]
data = during(ranges[ranges["name"] == "data"]) & ~busy & ~blocked
parts = {
    "compute": compute, "communication": communication,
    "copy": busy & ~compute & ~communication,
    "blocked": blocked, "data": data, "launches": dry & ~blocked & ~data,
}  # fmt: skip
steps = ranges[ranges["name"].str.startswith("ProfilerStep#")].sort_values("begin")
table = pd.DataFrame(
    [
        {name: part[a:b].sum() for name, part in parts.items()}
        for a, b in steps[["begin", "end"]].values
    ]
)
table = table.assign(
    other=(steps["end"] - steps["begin"]).values - table.sum(axis=1),
    step=table.sum(axis=1),
)
table["step"] += table["other"]
print((table / 1e4).round(2).to_string())

stated = trace.get("watch_untraced", {}).get("step_ns", 0) / 1e6
untraced = float(sys.argv[2]) if len(sys.argv) > 2 else stated
if untraced:
    mean = table.mean() / 1e4
    left = max(0, mean["launches"] - max(0, mean["step"] - untraced))
    print(
        f"Step time without the profiler: {untraced:.2f} ms. GPU time waiting for "
        f"launches: at most {left:.2f} ms."
    )
