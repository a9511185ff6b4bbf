"""Published peak rates, used to compute model FLOPs utilization (MFU)."""

from __future__ import annotations

import re

from cifar_train.config import PRECISIONS

PEAK_TFLOPS = (
    ("MI300X|MI325X", 163.4, 1307.4, 1307.4),
    ("MI300A", 122.6, 980.6, 980.6),
    ("MI355X", 157.3, 2516.6, 2516.6),
    ("MI250X", 47.9, 191.5, 191.5),
    ("MI250|MI210", 45.3, 181.0, 181.0),
    ("MI100", 46.1, 184.6, 92.3),
)
"""Dense matrix peaks in TFLOP/s for each precision in PRECISIONS.

A peak applies to the part of a GPU that one process sees, which is one GCD on an MI250. The
values come from AMD's CDNA architecture pages and ROCm's GPU specification table
(https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html). A peak is the rate per compute
unit and clock cycle, multiplied by the number of compute units and the peak clock. For
automixed, the table contains the float16 peak.
"""


def peak_flops(device_name: str, precision: str) -> float | None:
    """Return the peak FLOP/s of the named device, or None if the peak is unknown."""
    for pattern, *peaks in PEAK_TFLOPS:
        if re.search(pattern, device_name):
            return peaks[PRECISIONS.index(precision)] * 1e12
    return None
