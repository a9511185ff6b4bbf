"""Writes small rocprof-compute workload folders with known content."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidyprof import Profile
from tidyprof.readers.rocprof_compute.workload import small_table

START_NS = 13_386_742_234_691_895
"""Beyond 2^53: doubles cannot hold it, so a reader that goes through them shows."""

SYSINFO = {
    "workload_name": "small",
    "command": "./small",
    "version": "3",
    "hostname": "node",
    "rocm_version": "7.0.0",
    "gpu_model": "MI300X_A1",
    "gpu_arch": "gfx942",
    "cu_per_gpu": "304",
    "num_xcd": "8",
    "wave_size": "64",
    "max_waves_per_cu": "32",
    "max_sclk": "2100",
    "max_mclk": "1300",
    "num_hbm_channels": "128",
    "total_l2_chan": "128",
    "lds_banks_per_cu": "32",
    "sqc_per_gpu": "160",
}


@dataclass(frozen=True)
class Dispatch:
    """One dispatch: its number, kernel, start (from START_NS), duration, counters."""

    number: int
    name: str
    start: int
    duration: int
    counters: Mapping[str, float] = field(default_factory=dict)
    gpu: int = 2


def two_kernels() -> list[Dispatch]:
    """Three dispatches of two kernels with a few counters."""

    def counters(waves: int, matrix: int, instructions: int) -> dict[str, float]:
        return {"SQ_WAVES": waves, "SQ_INSTS_VALU_MFMA_MOPS_F16": matrix, "SQ_INSTS": instructions}

    return [
        Dispatch(1, "gemm(float*, int)", 0, 1000, counters(64, 1000, 5)),
        Dispatch(2, "copy<T>(T*) [clone .kd]", 2000, 500, counters(32, 0, 7)),
        Dispatch(3, "gemm(float*, int)", 3000, 3000, counters(64, 3000, 9)),
    ]


def write_csv(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    rows = list(rows)
    header = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def _launch(dispatch: Dispatch) -> dict[str, object]:
    return {
        "Dispatch_ID": dispatch.number,
        "GPU_ID": dispatch.gpu,
        "Grid_Size": 65536,
        "Workgroup_Size": 256,
        "LDS_Per_Workgroup": 0,
        "Scratch_Per_Workitem": 0,
        "Arch_VGPR": 4,
        "Accum_VGPR": 4,
        "SGPR": 16,
        "Kernel_Name": dispatch.name,
    }


def wide_rows(dispatches: Sequence[Dispatch], times: bool = True) -> list[dict[str, object]]:
    """Rows of pmc_perf.csv as up to ROCm 7.2."""
    rows = []
    for dispatch in dispatches:
        row = _launch(dispatch) | {"Wave_Size": 64} | dict(dispatch.counters)
        if times:
            begin = START_NS + dispatch.start
            row |= {"Start_Timestamp": begin, "End_Timestamp": begin + dispatch.duration}
        rows.append(row)
    return rows


def long_rows(
    dispatches: Sequence[Dispatch], runs: Sequence[Mapping[str, int]] = ()
) -> list[dict[str, object]]:
    """Rows of pmc_perf.csv as from ROCm 7 on: runs gives for each counter the run that counts it.

    Each run of the program begins 10^9 ns after the one before; durations grow by 100 ns per run.
    """
    rows = []
    of_counter = runs[0] if runs else {}
    for dispatch in dispatches:
        for counter, value in dispatch.counters.items():
            run = of_counter.get(counter, 0)
            begin = START_NS + run * 10**9 + dispatch.start
            end = begin + dispatch.duration + 100 * run
            rows.append(
                _launch(dispatch)
                | {"Start_Timestamp": begin, "End_Timestamp": end, "Kernel_ID": 12}
                | {"Counter_Name": counter, "Counter_Value": value}
            )
    return rows


def write_folder(
    folder: Path, rows: Iterable[Mapping[str, object]], sysinfo: Mapping[str, str] | None = SYSINFO
) -> Path:
    """A workload folder with pmc_perf.csv and sysinfo.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "pmc_perf.csv", rows)
    if sysinfo is not None:
        write_csv(folder / "sysinfo.csv", [sysinfo])
    return folder


def published_rows(profile: Profile, number: str) -> list[dict[str, Any]]:
    """The rows of a table that `rocprof-compute analyze` computed of a workload, by its number."""
    folder = Path(profile.meta["files"][0]).parent
    (file,) = folder.rglob(f"{number}_*.csv")
    return small_table(file)
