"""Print the busy time, the gaps and the largest kernels of a torch.profiler trace.

    python 02_trace_to_table.py trace.json[.gz]

Times in the file are in microseconds. If the trace contains no GPU work, the script
prints the largest operators instead.
"""

import gzip
import json
import sys

import pandas as pd

path = sys.argv[1]
if path.endswith(".zst"):
    sys.exit(f"{path} is compressed. Unpack it first: zstd -d {path}")
with (gzip.open if path.endswith(".gz") else open)(
    path, "rt", encoding="utf-8"
) as file:
    trace = json.load(file)
events = pd.DataFrame(
    event
    for event in trace["traceEvents"]
    if event.get("ph") == "X" and event.get("dur", 0) > 0
)
events["end"] = events["ts"] + events["dur"]
device = events[events["cat"].isin(["kernel", "gpu_memcpy", "gpu_memset"])].copy()

steps = events[
    (events["cat"] == "user_annotation")
    & events["name"].str.startswith("ProfilerStep#")
]
print(f"{len(events)} events, {len(device)} on a device, {len(steps)} steps")
for step in steps.sort_values("ts").itertuples():
    print(
        f"  {step.name}: {step.dur / 1e3:.2f} ms on the host. Without the profiler, a "
        "step may take half as long."
    )

if device.empty:
    operators = events[events["cat"] == "cpu_op"]
    print(
        operators.groupby("name")["dur"]
        .agg(["count", "sum"])
        .nlargest(10, "sum")
        .to_string()
    )
    print(
        "Each total in us includes the operators that the operator calls. Don't add up "
        "the totals."
    )
    sys.exit()

device["device"] = [args.get("device") for args in device["args"]]
for number, work in device.sort_values("ts").groupby("device"):
    seen_until = work["end"].cummax().shift(fill_value=work["ts"].iloc[0])
    busy = (work["end"] - work["ts"].clip(lower=seen_until)).clip(lower=0).sum()
    span = work["end"].max() - work["ts"].min()
    print(f"device {number}: busy for {100 * busy / span:.1f}% of {span / 1e3:.2f} ms")
    print(
        f"  (durations add up to {100 * work['dur'].sum() / span:.1f}%: streams may "
        "overlap)"
    )
    gaps = (work["ts"] - seen_until).clip(lower=0)
    longest = gaps.nlargest(3)
    print(
        f"  idle in {(gaps > 0).sum()} gaps. The longest gaps and the work after them:"
    )
    for place, gap in longest[longest > 0].items():
        print(f"  {gap / 1e3:9.3f} ms  {work.loc[place, 'name'][:90]}")

kernels = (
    device.groupby("name")["dur"]
    .agg(["count", "sum", "mean", "max"])
    .nlargest(10, "sum")
)
kernels["share_%"] = 100 * kernels["sum"] / device["dur"].sum()
kernels.index = kernels.index.str[:70]
print(kernels.round(1).to_string())

# A host call and the device work that it launches share a correlation id.
calls = events[
    events["cat"].isin(["cuda_runtime", "cuda_driver", "xpu_runtime"])
].copy()
calls["correlation"] = [args.get("correlation") for args in calls["args"]]
device["correlation"] = [args.get("correlation") for args in device["args"]]
both = device.merge(
    calls.drop_duplicates("correlation"), on="correlation", suffixes=("", "_launch")
)
if len(both):
    print(
        f"Time from launch to start: {(both['ts'] - both['ts_launch']).median():.1f} "
        "us (median)"
    )
waiting = calls[
    calls["name"].str.contains(r"Synchronize|Malloc|Free|Memcpy(?!.*Async)")
]
print("Calls that may block the host (us):")
print(
    waiting.groupby("name")["dur"]
    .agg(["count", "sum", "max"])
    .nlargest(5, "sum")
    .to_string()
)
