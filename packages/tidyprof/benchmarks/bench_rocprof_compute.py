"""Reading large rocprof-compute folders, against the plain ways to do it.

Run with: python -m pytest benchmarks/bench_rocprof_compute.py -s

The input is made here: 2,000 dispatches of 20 kernels with 500 counters, a million values in either
layout. The reader is held to be twice as fast as the csv module with a dictionary per dispatch,
which is how rocprof-compute itself joins the long layout. Pandas only parses, and since 3.1 on all
processors: its ratio is printed. The ways take turns, so that a busy machine slows all of them.
"""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tidyprof.analyses.roofline import roofline_points
from tidyprof.analyses.speed_of_light import speed_of_light
from tidyprof.readers.rocprof_compute.reader import read_rocprof_compute

DISPATCHES, KERNELS, COUNTERS, ROUNDS = 2_000, 20, 500, 3
LEAST_AGAINST_CSV = 2
SYSINFO = (
    "gpu_arch,gpu_model,cu_per_gpu,max_sclk,num_xcd,hbm_bw\ngfx942,MI300X_A1,304,2100,8,5324.8\n"
)
LAUNCH = (
    "GPU_ID,Dispatch_ID,Grid_Size,Workgroup_Size,LDS_Per_Workgroup,Scratch_Per_Workitem,"
    "Arch_VGPR,Accum_VGPR,SGPR"
)
REAL = (
    "SQ_INSTS_VALU_FMA_F32",
    "SQ_INSTS_VALU_MFMA_MOPS_F16",
    "TCP_TOTAL_CACHE_ACCESSES_sum",
    "GRBM_GUI_ACTIVE",
)


def kernel_name(dispatch: int) -> str:
    return (
        f'"void gemm_kernel_{dispatch % KERNELS}<{", ".join(["float"] * 20)}>(float const*, float*,'
        ' int)"'
    )


def counter_names() -> list[str]:
    return [*REAL, *(f"TCC_HIT[{place}]" for place in range(COUNTERS - len(REAL)))]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    """A folder per layout with the same values."""
    names, made = counter_names(), {}
    for layout in ("wide", "long"):
        made[layout] = tmp_path_factory.mktemp(layout)
        (made[layout] / "sysinfo.csv").write_text(SYSINFO)
    with (
        (made["wide"] / "pmc_perf.csv").open("w") as wide,
        (made["long"] / "pmc_perf.csv").open("w") as long,
    ):
        wide.write(f"{LAUNCH},Kernel_Name,{','.join(names)},Start_Timestamp,End_Timestamp\n")
        long.write(
            f"{LAUNCH},Kernel_Name,Start_Timestamp,End_Timestamp,Kernel_ID,Counter_Name,"
            f"Counter_Value\n"
        )
        for dispatch in range(DISPATCHES):
            launch = f"2,{dispatch},1048576,256,0,0,4,4,16,{kernel_name(dispatch)}"
            start = 13_386_742_234_691_895 + dispatch * 10_000
            values = [f"{(dispatch * 7 + place * 13) % 100_003}.0" for place in range(len(names))]
            wide.write(f"{launch},{','.join(values)},{start},{start + 5_000}\n")
            times = f"{launch},{start},{start + 5_000},12"
            long.writelines(
                f"{times},{name},{value}\n" for name, value in zip(names, values, strict=True)
            )
    return made


def by_csv_module(folder: Path) -> int:
    """A dictionary per dispatch, as one would write it first."""
    dispatches: dict[str, dict[str, float]] = {}
    with (folder / "pmc_perf.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            own = dispatches.setdefault(row["Dispatch_ID"], {})
            if "Counter_Name" in row:
                own[row["Counter_Name"]] = float(row["Counter_Value"])
            else:
                own.update((name, float(row[name])) for name in counter_names())
    return sum(len(own) for own in dispatches.values())


def by_pandas(folder: Path) -> int:
    """The same table as the reader's, by pandas' default engine."""
    table = pd.read_csv(folder / "pmc_perf.csv")
    if "Counter_Name" not in table:
        names = counter_names()
        table = table.melt(
            ["Dispatch_ID", "Kernel_Name", "Start_Timestamp"],
            names,
            "Counter_Name",
            "Counter_Value",
        )
    table["Counter_Name"] = table["Counter_Name"].astype("category")
    table["Kernel_Name"] = table["Kernel_Name"].astype("category")
    return len(table.sort_values("Start_Timestamp", kind="stable"))


def by_tidyprof(folder: Path) -> int:
    return len(read_rocprof_compute(folder).counters)


WAYS: dict[str, Callable[[Path], int]] = {
    "tidyprof": by_tidyprof,
    "pandas": by_pandas,
    "csv": by_csv_module,
}


@pytest.mark.parametrize("layout", ["wide", "long"])
def test_reading_against_the_plain_ways(layout, folders, record_property):
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way, read in WAYS.items():
            start = time.perf_counter()
            assert read(folders[layout]) == DISPATCHES * COUNTERS
            seconds[way].append(time.perf_counter() - start)
    median = {way: statistics.median(found) for way, found in seconds.items()}
    ratios = {way: median[way] / median["tidyprof"] for way in WAYS}
    print(f"\n{layout}: tidyprof {median['tidyprof']:.2f} s, times that of others: {ratios}")
    for way, ratio in ratios.items():
        record_property(f"{layout}: {way} / tidyprof", round(ratio, 2))
    assert ratios["csv"] >= LEAST_AGAINST_CSV


@pytest.mark.parametrize("analysis", [speed_of_light, roofline_points])
def test_analysis(benchmark, analysis, folders):
    profile = read_rocprof_compute(folders["long"])
    benchmark.pedantic(analysis, args=(profile,), rounds=3)
