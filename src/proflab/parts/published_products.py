"""Two matrix products that AMD traced with rpd and published: what its view `busy` said, and how long the kernel took.

Source: AMD's ROCm blog on rocmProfileData of 17 April 2024; the file of the smaller run is published at
https://github.com/ROCm/rocmProfileData/tree/e943e7a5e87850cdf8b2223e0afa785849e6bbc0/examples/rocm-profile-data/results
"""

from __future__ import annotations

import pandas as pd

from tidyprof.tables.contract import Origin

ORIGIN = Origin("recorded", "AMD Instinct MI200 series, ROCm 6.0.2, published in AMD's ROCm blog of 17 April 2024")
"""The blog does not name the GPU; the kernel's name in the published file contains ISA90a, which is MI200's."""

PRODUCTS = (
    ("smaller", (50_000, 10_000, 800), 183_918_056, 2_964_070_817, 26_211_000, 157_178_000, "MT128x64x16"),
    ("larger", (100_000, 50_000, 800), 2_110_631_504, 4_933_119_382, 532_802_000, 1_577_218_000, "MT64x64x16"),
)
"""Name; rows, inner size and columns of the product; GpuTime and WallTime of the view `busy` in ns; the time of the
product's kernel and of the copies to the GPU in ns, which the view `top` cuts to whole microseconds; the tile in the
kernel's name."""


def published_products() -> pd.DataFrame:
    """One row per published run, the smaller one first.

    Columns: run; product (sizes as text); flops of it; gpu_ns, wall_ns and busy (their ratio) of the view `busy`;
    idle_ns (the rest); kernel_ns and copy_ns; tile; tflops_per_second (float32).
    """
    rows = []
    for run, (height, inner, width), gpu_ns, wall_ns, kernel_ns, copy_ns, tile in PRODUCTS:
        flops = 2 * height * inner * width
        rows.append(
            {
                "run": run,
                "product": f"{height:,} × {inner:,} by {inner:,} × {width:,}",
                "flops": flops,
                "gpu_ns": gpu_ns,
                "wall_ns": wall_ns,
                "busy": gpu_ns / wall_ns,
                "idle_ns": wall_ns - gpu_ns,
                "kernel_ns": kernel_ns,
                "copy_ns": copy_ns,
                "tile": tile,
                "tflops_per_second": flops / kernel_ns / 1e3,
            }
        )
    table = pd.DataFrame(rows)
    table.attrs["origin"] = ORIGIN
    return table
