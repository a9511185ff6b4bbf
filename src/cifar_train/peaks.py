"""Published peak rates, for model FLOPs utilisation (MFU)."""

from __future__ import annotations

import re

PEAK_TFLOPS: tuple[tuple[str, dict[str, float]], ...] = (
    ("MI300X|MI325X", {"float32": 163.4, "automixed": 1307.4, "bfloat16": 1307.4}),
    ("MI300A", {"float32": 122.6, "automixed": 980.6, "bfloat16": 980.6}),
    ("MI355X", {"float32": 157.3, "automixed": 2516.6, "bfloat16": 2516.6}),
    ("MI250X", {"float32": 47.9, "automixed": 191.5, "bfloat16": 191.5}),
    ("MI250|MI210", {"float32": 45.3, "automixed": 181.0, "bfloat16": 181.0}),
    ("MI100", {"float32": 46.1, "automixed": 184.6, "bfloat16": 92.3}),
)
"""Dense matrix peaks in TFLOP/s of what one process sees (of an MI250: one GCD).

Source: AMD's CDNA architecture pages and ROCm's GPU specification table
(https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html). A peak is the rate per compute
unit and clock, times compute units, times peak clock. automixed runs its products in float16.
"""


def peak_flops(device_name: str, precision: str) -> float | None:
    """Peak FLOP/s of the device with this name, or None if it is not known."""
    for pattern, peaks in PEAK_TFLOPS:
        if re.search(pattern, device_name):
            return peaks[precision] * 1e12
    return None
