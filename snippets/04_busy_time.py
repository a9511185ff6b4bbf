"""How much of the time the GPU was busy, by device: python 04_busy_time.py gpu_kernel_trace.csv"""

import sys

import pandas as pd

trace = pd.read_csv(sys.argv[1]).sort_values("Start_Timestamp")
for device, kernels in trace.groupby("Agent_Id"):
    start, end = kernels["Start_Timestamp"], kernels["End_Timestamp"]
    seen_until = end.cummax().shift(fill_value=start.iloc[0])
    busy_ns = (end - start.clip(lower=seen_until)).clip(lower=0).sum()
    span_ns = end.max() - start.min()
    print(f"{device}: {len(kernels)} kernels, busy {100 * busy_ns / span_ns:.1f} % of {span_ns / 1e6:.1f} ms")
