"""A Run as `rocprof-compute profile` leaves it: a workload folder with hardware counters.

The counters come from what the model knows (see `counters`), and the tool's formulas lead back to
that. All runs of the program are the same here; on a machine each has durations of its own. The
folder describes the machine in sysinfo.csv, and has the ceilings of the tool's benchmark in
roofline.csv.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gpumodel.devices import Device
from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import dispatches_and_copies, kernel_symbols
from gpumodel.writers.common.files import put, ranks_of, write_marker
from gpumodel.writers.rocprof_compute.counters import (
    MAXIMUM_WAVES_PER_SIMD,
    chosen,
    counters_of,
    runs_of,
)
from tidyprof.errors import UserError

RELEASES = {"long": ("3.5.0", "7.12.0"), "wide": ("3.3.0", "7.1.0")}
"""Layout of pmc_perf.csv -> the releases of rocprof-compute and of ROCm that write it."""

_BACK_ENDS = {"long": "rocpd", "wide": "csv"}
_LAUNCH_COLUMNS = {
    "Grid_Size": "grid",
    "Workgroup_Size": "workgroup",
    "LDS_Per_Workgroup": "lds_bytes",
    "Scratch_Per_Workitem": "scratch_bytes",
    "Arch_VGPR": "vector_registers",
    "Accum_VGPR": "accumulation_registers",
    "SGPR": "scalar_registers",
}
"""Columns of pmc_perf.csv about a launch -> columns of the dispatches."""

BETWEEN_RUNS_NS = 10**9
"""From the end of one run of the program to the first dispatch of the next: chosen freely, to keep
them apart.
"""

_ROW_END = "\x1e"
"""What separates rows before they are repeated for every counter: a character that no kernel has in
its name.
"""


@dataclass(frozen=True)
class Options:
    """The options of `rocprof-compute profile`.

    name       -- of the workload.
    layout     -- of pmc_perf.csv: `long` (rocpd, a row per counter) or `wide` (csv, a column per
                  counter).
    kernels    -- only kernels whose names match one of these regular expressions somewhere (-k).
    dispatches -- only these launches of each kernel, counted from 1 (-d).
    blocks, metric_set -- report blocks (-b) or a set of metrics (--set), which choose the counters.
    roof, roof_only -- whether to write roofline.csv (not with --no-roof), and whether to write
                       nothing but that and sysinfo.csv (--roof-only).
    joined     -- whether all runs of the program are in pmc_perf.csv; else each has a file
                  results_<run>.csv (only layout `long`), as from ROCm 7.13 on.
    compressed -- whether these files are compressed with gzip, as from 10.1 on.
    output_directory -- takes the place of `workloads/<name>/<model>`.
    """

    name: str = "workload"
    layout: str = "long"
    kernels: Sequence[str] = ()
    dispatches: Sequence[int] = ()
    blocks: Sequence[str] = ()
    metric_set: str | None = None
    roof: bool = True
    roof_only: bool = False
    joined: bool = True
    compressed: bool = False
    output_directory: str | None = None


def write(run: Run, folder: Path, *, rank: int | None = None, **options: Any) -> list[Path]:
    """Write `workloads/<name>/<model>/` below `folder`; returns the files that were written.

    rank    -- the process, since the tool profiles one; None for the first one.
    options -- fields of Options.

    Raises UserError for options or a device that the tool refuses, and for filters that leave no
    kernel.
    """
    asked = Options(**options)
    if asked.layout not in RELEASES:
        raise UserError(
            f"no layout {asked.layout!r} of pmc_perf.csv; there are {' and '.join(RELEASES)}"
        )
    one = ranks_of(run, run.ranks[0].rank if rank is None else rank)[0]
    place = folder / (
        asked.output_directory or f"workloads/{asked.name}/{model_folder(run.device)}"
    )
    place.mkdir(parents=True, exist_ok=True)
    facts = sysinfo(
        run, asked.name, RELEASES[asked.layout][1], "SQ|TCC|SPI" + "|roofline" * asked.roof
    )
    written = [_write_rows(place / "sysinfo.csv", [facts])]
    if asked.roof or asked.roof_only:
        written.append(_write_rows(place / "roofline.csv", [ceilings(run.device)]))
    if not asked.roof_only:
        table = _dispatches(one, asked)
        counters = counters_of(table, run.device)
        runs = runs_of(chosen(counters.columns, asked.blocks, asked.metric_set))
        written += _write_counters(place, table, counters, runs, asked)
        written += _write_requests(place / "perfmon", runs, asked.kernels)
        written += _write_descriptions(place, run, runs, asked)
    return [*written, write_marker(run, place)]


def _dispatches(rank: RankRun, asked: Options) -> pd.DataFrame:
    """The dispatches that the filters leave, with the number of their kernel, and with grid and
    workgroup as single numbers.
    """
    kernels, numbers = asked.kernels, asked.dispatches
    table = dispatches_and_copies(rank.device_work)[0].sort_values("dispatch_id", ignore_index=True)
    dispatched = len(table)
    if kernels:
        table = table[table["name"].map(_is_found("|".join(kernels)))]
    if numbers:
        table = table[(table.groupby("name").cumcount() + 1).isin(list(numbers))]
    if not len(table):
        raise UserError(
            f"no kernel is left of {dispatched} dispatches by the filters (-k"
            f" {', '.join(kernels) or 'none'}; -d {', '.join(map(str, numbers)) or 'none'}); check"
            " names with rocprofv3 --stats"
        )
    table = table.reset_index(drop=True)
    sizes = {
        what: np.prod([table[f"{what}_{axis}"].clip(lower=1).to_numpy() for axis in "xyz"], axis=0)
        for what in ("grid", "workgroup")
    }
    return table.assign(**sizes, kernel_id=kernel_symbols(table)[1], agent=rank.agent)


def _is_found(pattern: str) -> Callable[[str], bool]:
    """A function that says whether -k leaves a kernel of a name
    (ROCPROF_KERNEL_FILTER_INCLUDE_REGEX of profiler_rocprofiler_sdk.py).
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UserError(
            f"-k {pattern} is no regular expression: {error}; put \\ before ( and *"
        ) from None
    return lambda name: expression.search(name) is not None


def _write_counters(
    place: Path,
    table: pd.DataFrame,
    counters: pd.DataFrame,
    runs: Mapping[str, Sequence[str]],
    asked: Options,
) -> list[Path]:
    """Write the counters in the layout that was asked for: `long` has a row for each counter of a
    dispatch, `wide` a column for each counter, and two more files about the dispatches.
    """
    names = table["name"].tolist()
    launches = list(
        zip(*(table[column].tolist() for column in _LAUNCH_COLUMNS.values()), strict=True)
    )
    numbers, agents = table["dispatch_id"].tolist(), table["agent"].tolist()
    starts, ends = table["start_ns"].tolist(), (table["start_ns"] + table["duration_ns"]).tolist()
    times = list(zip(starts, ends, strict=True))
    if asked.layout == "long":
        common = list(
            zip(agents, numbers, launches, names, times, table["kernel_id"].tolist(), strict=True)
        )
        passes = list(enumerate(runs.values()))
        if asked.joined:
            return [_write_long(place / "pmc_perf.csv", common, counters, passes)]
        ending = "csv.gz" if asked.compressed else "csv"
        files = [place / f"results_{stem}.{ending}" for stem in runs]
        return [
            _write_long(file, common, counters, [own])
            for file, own in zip(files, passes, strict=True)
        ]
    head = ["Dispatch_ID", "GPU_ID", *_LAUNCH_COLUMNS, "Wave_Size", "Kernel_Name"]
    begin = [
        [number, agent, *launch, 64, name]
        for number, agent, launch, name in zip(numbers, agents, launches, names, strict=True)
    ]
    correlations = table["correlation_id"].tolist()
    header, columns = _wide_columns(counters, runs.values(), correlations)
    rows = ([*a, *b, *c] for a, b, c in zip(begin, zip(*columns, strict=True), times, strict=True))
    stamps = ["Start_Timestamp", "End_Timestamp"]
    return [
        _write_lines(place / "pmc_perf.csv", [*head, *header, *stamps], rows),
        _write_lines(
            place / "pmc_dispatch_info.csv", ["Dispatch_ID", "Kernel_Name", "GPU_ID"],
            zip(numbers, names, agents, strict=True),
        ),
        _write_lines(
            place / "timestamps.csv", [*head, *stamps, "Correlation_ID"],
            ([*a, *c, d] for a, c, d in zip(begin, times, correlations, strict=True)),
        ),
    ]  # fmt: skip


def _write_long(
    path: Path,
    common: Sequence[tuple[Any, ...]],
    counters: pd.DataFrame,
    passes: Iterable[tuple[int, Sequence[str]]],
) -> Path:
    """Write one row per counter, run after run, with the dispatches of each run in order: so the
    tool joins its runs.

    passes -- number and counters of each run of the program. A run begins after the one before has
    ended, and so has times of its own. A file whose name ends in .gz is compressed without a time
    stamp, so that the same run gives the same file.
    """
    header = [
        "GPU_ID",
        "Dispatch_ID",
        *_LAUNCH_COLUMNS,
        "Kernel_Name",
        "Start_Timestamp",
        "End_Timestamp",
    ]
    text = io.StringIO(newline="")
    text.write(",".join([*header, "Kernel_ID", "Counter_Name", "Counter_Value\n"]))
    length = (
        max(times[1] for *_, times, _ in common)
        - min(times[0] for *_, times, _ in common)
        + BETWEEN_RUNS_NS
    )
    for number, names in passes:
        begins = _row_begins(common, number * length)
        columns = [(name, counters[name].tolist()) for name in sorted(names)]
        for place, begin in enumerate(begins):
            text.write("".join(f"{begin},{name},{values[place]}.0\n" for name, values in columns))
    content = text.getvalue().encode()
    return put(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _row_begins(common: Sequence[tuple[Any, ...]], later_ns: int) -> list[str]:
    """The beginning that all rows of a dispatch share, with its times moved by `later_ns`."""
    heads = io.StringIO()
    csv.writer(heads, lineterminator=_ROW_END).writerows(
        [agent, number, *launch, name, *(time + later_ns for time in times), kernel]
        for agent, number, launch, name, times, kernel in common
    )
    return heads.getvalue().split(_ROW_END)[:-1]


def _wide_columns(
    counters: pd.DataFrame, runs: Iterable[Sequence[str]], correlations: Sequence[int]
) -> tuple[list[str], list[Sequence[Any]]]:
    """Names and values of the counter columns, run after run; those of a run follow its wave size
    and correlation id.
    """
    header: list[str] = []
    columns: list[Sequence[Any]] = []
    for number, names in enumerate(runs):
        ending = f"_{number}" if number else ""
        if number:
            header.append(f"Wave_Size{ending}")
            columns.append([64] * len(correlations))
        header += [f"Correlation_ID{ending}", *names]
        columns += [
            correlations,
            *([float(value) for value in counters[name].tolist()] for name in names),
        ]
    return header, columns


def _write_requests(
    place: Path, runs: Mapping[str, Sequence[str]], kernels: Sequence[str]
) -> list[Path]:
    place.mkdir(exist_ok=True)
    paths = []
    for stem, names in runs.items():
        text = f"pmc: {' '.join(names)}\n\ngpu:\nrange:\nkernel: {' '.join(kernels)}\n"
        paths.append(put(place / f"{stem}.txt", text))
    return paths


def _write_descriptions(
    place: Path, run: Run, runs: Mapping[str, Sequence[str]], asked: Options
) -> list[Path]:
    """Write log.txt, with the lines that say what was done, and profiling_config.yaml."""
    command = " ".join(run.command)
    kernels, dispatches = (
        str(list(values)) if values else "None" for values in (asked.kernels, asked.dispatches)
    )
    lines = [
        f"Rocprofiler-Compute version: {RELEASES[asked.layout][0]}",
        f"Path: {place}",
        f"Target: {model_folder(run.device)}",
        f"Command: {command}",
        f"Kernel Selection: {kernels}",
        f"Dispatch Selection: {dispatches}",
        "modelled: no GPU was measured",
        *(f"[Run {number}/{len(runs)}] {stem}.txt" for number, stem in enumerate(runs, 1)),
    ]
    options = [
        "mode: profile",
        f"format_rocprof_output: {_BACK_ENDS[asked.layout]}",
        "remaining:",
        "- --",
    ]
    options += [f"- '{part.replace(chr(39), chr(39) * 2)}'" for part in run.command]
    written = []
    for file, content in (("log.txt", lines), ("profiling_config.yaml", options)):
        written.append(put(place / file, "\n".join([*content, ""])))
    return written


def _write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    return _write_lines(path, list(rows[0]), (row.values() for row in rows))


def _write_lines(path: Path, header: Sequence[str], rows: Iterable[Iterable[Any]]) -> Path:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return put(path, text.getvalue())


_SERIES = {"gfx908": "MI100", "gfx90a": "MI200", "gfx942": "MI300", "gfx950": "MI350"}
_HBM_CHANNEL_BYTES = 32
"""Bytes per channel and memory clock (projects/rocprofiler-compute, src/utils/specs.py)."""

_LDS_BANKS = 32
_LDS_BYTES = 128
"""Banks of the local data share, and the bytes that they deliver per compute unit and clock: 4
each.
"""

_ROOFLINE_COLUMNS = (
    *(
        "HBMBw",
        "MALLBw",
        "L2Bw",
        "L1Bw",
        "LDSBw",
        "FP8Flops",
        "FP16Flops",
        "BF16Flops",
        "FP32Flops",
        "FP64Flops",
    ),
    *(
        "I8Ops",
        "I32Ops",
        "I64Ops",
        "MFMAF8Flops",
        "MFMAF16Flops",
        "MFMABF16Flops",
        "MFMAF32Flops",
        "MFMAF64Flops",
    ),
    "MFMAI8Ops",
)
_RATES = {
    **{
        f"{name}Flops": f"vector float{name.removeprefix('FP')}"
        for name in ("FP16", "FP32", "FP64")
    },
    "BF16Flops": "vector bfloat16",
    **{f"MFMAF{bits}Flops": f"matrix float{bits}" for bits in (8, 16, 32, 64)},
    "MFMABF16Flops": "matrix bfloat16",
    "MFMAI8Ops": "matrix int8",
}
"""Column -> entry of `Device.peak_flops`."""


def model_folder(device: Device) -> str:
    """The tool's name for the GPU and for the folder of a workload, such as `MI300X_A1`.

    Raises UserError for a device that is not an AMD Instinct.
    """
    if device.gfx not in _SERIES:
        raise UserError(f"rocprof-compute knows no {device.name}; it supports {', '.join(_SERIES)}")
    return f"{device.name}_A1" if device.gfx == "gfx942" else _SERIES[device.gfx]


def sysinfo(run: Run, name: str, rocm: str, blocks: str) -> dict[str, Any]:
    """The one row of sysinfo.csv, with empty text for all that the model does not know. What
    `Device.sysinfo` states takes precedence.
    """
    launched = datetime.fromtimestamp((run.start_ns + run.wall_clock_offset_ns) // 10**9, UTC)
    return {
        "workload_name": name,
        "command": " ".join(run.command),
        "ip_blocks": blocks,
        "timestamp": launched.strftime("%a %b %d %H:%M:%S %Y (UTC)"),
        "version": 3,
        "hostname": run.hostname,
        **dict.fromkeys(("cpu_model", "sbios", "linux_distro", "linux_kernel_version"), ""),
        **dict.fromkeys(("amd_gpu_kernel_version", "cpu_memory", "gpu_memory"), ""),
        "rocm_version": rocm,
        "vbios": "",
        "compute_partition": "SPX",
        "memory_partition": "NPS1",
        **_sizes(run.device),
        **run.device.sysinfo,
    }


def _sizes(device: Device) -> dict[str, Any]:
    return {
        "gpu_series": _SERIES[device.gfx],
        "gpu_model": model_folder(device),
        "gpu_arch": device.gfx,
        "gpu_l1": device.l1_bytes // 1024,
        "gpu_l2": device.l2_bytes_per_chiplet // 1024,
        "cu_per_gpu": device.compute_units,
        "simd_per_cu": device.simds_per_compute_unit,
        "se_per_gpu": device.shader_engines,
        "wave_size": device.wavefront_size,
        "workgroup_max_size": 1024,
        "max_waves_per_cu": MAXIMUM_WAVES_PER_SIMD * device.simds_per_compute_unit,
        "max_sclk": device.clock_mhz,
        "max_mclk": device.memory_clock_mhz,
        "cur_sclk": device.clock_mhz,
        "cur_mclk": device.memory_clock_mhz,
        "total_l2_chan": device.l2_channels,
        "lds_banks_per_cu": _LDS_BANKS,
        "pipes_per_gpu": 4,
        "hbm_bw": round(device.memory_bandwidth / 1e9, 1),
        "num_xcd": device.chiplets,
        "num_hbm_channels": round(
            device.memory_bandwidth / (device.memory_clock_mhz * 1e6 * _HBM_CHANNEL_BYTES)
        ),
    }


def ceilings(device: Device) -> dict[str, Any]:
    """The row of roofline.csv, in GB/s and GFLOP/s: the peaks that the model computes with, each
    with its two bounds, which are equal to it.

    0 stands where there is no peak. Rates per clock are those of the tool's formulas: 128 B per L1,
    per channel of L2, and per LDS.
    """
    per_clock = device.clock_mhz / 1000
    line = 64 if device.gfx in ("gfx908", "gfx90a") else 128
    figures = {
        "HBMBw": device.memory_bandwidth / 1e9,
        "L2Bw": line * device.l2_channels * per_clock,
        "L1Bw": line * device.compute_units * per_clock,
        "LDSBw": _LDS_BYTES * device.compute_units * per_clock,
        **{column: device.peak_flops.get(peak, 0) / 1e9 for column, peak in _RATES.items()},
    }
    row: dict[str, Any] = {"device": 0}
    for column in _ROOFLINE_COLUMNS:
        # The tool itself writes this one name in lower case.
        high = "hbmBwHigh" if column == "HBMBw" else f"{column}High"
        row |= dict.fromkeys((column, f"{column}Low", high), round(figures.get(column, 0), 3))
    return row
