"""A Run as `rocprof-compute profile` leaves it: a workload folder with hardware counters.

The counters come from what the model knows (see `counters`): formulas of the tool lead back to it. All runs
of the program are the same here; on a machine each has times of its own.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cifar_train.errors import UserError
from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import dispatches_and_copies, kernel_symbols
from gpumodel.writers.common.files import put
from gpumodel.writers.common.marker import ranks_of, write_marker
from gpumodel.writers.rocprof_compute.counters import chosen, counters_of, runs_of
from gpumodel.writers.rocprof_compute.machine import ceilings, model_folder, sysinfo

RELEASES = {"long": ("3.5.0", "7.12.0"), "wide": ("3.3.0", "7.1.0")}
"""Layout of pmc_perf.csv -> release of rocprof-compute and of ROCm whose own it is."""

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
"""From the end of one run of the program to the first dispatch of the next; any time does that keeps them apart."""

_ROW_END = "\x1e"
"""Between rows before they are repeated for every counter: a character that no kernel's name has."""


@dataclass(frozen=True)
class Options:
    """What `rocprof-compute profile` is told.

    name       -- of the workload.
    layout     -- of pmc_perf.csv: `long` (rocpd, a row per counter) or `wide` (csv, a column per counter).
    kernels    -- only kernels in whose name one of these regular expressions is found (-k).
    dispatches -- only these launches of each kernel, the first one is 1 (-d).
    blocks     -- report blocks (-b), metric_set -- set of metrics (--set): which counters.
    roof, roof_only -- write roofline.csv (not with --no-roof), and nothing else but sysinfo.csv (--roof-only).
    joined     -- all runs of the program in pmc_perf.csv, else a file results_<run>.csv for each (only layout `long`),
                  as from ROCm 7.13 on; compressed -- these with gzip, as from 10.1 on.
    output_directory -- instead of `workloads/<name>/<model>`.
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
    """Write `workloads/<name>/<model>/` below `folder`; the files that were written.

    rank -- the process, the first one if None: the tool profiles one. options -- fields of Options.

    Raises UserError for options or a device that the tool refuses, and filters that leave nothing.
    """
    asked = Options(**options)
    if asked.layout not in RELEASES:
        raise UserError(f"no layout {asked.layout!r} of pmc_perf.csv; there are {' and '.join(RELEASES)}")
    one = ranks_of(run, run.ranks[0].rank if rank is None else rank)[0]
    place = folder / (asked.output_directory or f"workloads/{asked.name}/{model_folder(run.device)}")
    place.mkdir(parents=True, exist_ok=True)
    facts = sysinfo(run, asked.name, RELEASES[asked.layout][1], "SQ|TCC|SPI" + "|roofline" * asked.roof)
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
    """The kernels that the filters leave, with their grid and workgroup as single numbers and their kernel's number."""
    kernels, numbers = asked.kernels, asked.dispatches
    table = dispatches_and_copies(rank.device_work)[0].sort_values("dispatch_id", ignore_index=True)
    dispatched = len(table)
    if kernels:
        table = table[table["name"].map(_is_found("|".join(kernels)))]
    if numbers:
        table = table[(table.groupby("name").cumcount() + 1).isin(list(numbers))]
    if not len(table):
        raise UserError(
            f"no kernel is left of {dispatched} dispatches by the filters (-k {', '.join(kernels) or 'none'}; "
            f"-d {', '.join(map(str, numbers)) or 'none'}); check names with rocprofv3 --stats"
        )
    table = table.reset_index(drop=True)
    sizes = {
        what: np.prod([table[f"{what}_{axis}"].clip(lower=1).to_numpy() for axis in "xyz"], axis=0)
        for what in ("grid", "workgroup")
    }
    return table.assign(**sizes, kernel_id=kernel_symbols(table)[1], agent=rank.agent)


def _is_found(pattern: str) -> Callable[[str], bool]:
    """Whether -k leaves a kernel of this name (ROCPROF_KERNEL_FILTER_INCLUDE_REGEX of profiler_rocprofiler_sdk.py)."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise UserError(f"-k {pattern} is no regular expression: {error}; put \\ before ( and *") from None
    return lambda name: expression.search(name) is not None


def _write_counters(
    place: Path, table: pd.DataFrame, counters: pd.DataFrame, runs: Mapping[str, Sequence[str]], asked: Options
) -> list[Path]:
    names = table["name"].tolist()
    launches = list(zip(*(table[column].tolist() for column in _LAUNCH_COLUMNS.values()), strict=True))
    numbers, agents = table["dispatch_id"].tolist(), table["agent"].tolist()
    starts, ends = table["start_ns"].tolist(), (table["start_ns"] + table["duration_ns"]).tolist()
    times = list(zip(starts, ends, strict=True))
    if asked.layout == "long":
        common = list(zip(agents, numbers, launches, names, times, table["kernel_id"].tolist(), strict=True))
        passes = list(enumerate(runs.values()))
        if asked.joined:
            return [_write_long(place / "pmc_perf.csv", common, counters, passes)]
        ending = "csv.gz" if asked.compressed else "csv"
        files = [place / f"results_{stem}.{ending}" for stem in runs]
        return [_write_long(file, common, counters, [own]) for file, own in zip(files, passes, strict=True)]
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
    path: Path, common: Sequence[tuple[Any, ...]], counters: pd.DataFrame, passes: Iterable[tuple[int, Sequence[str]]]
) -> Path:
    """One row per counter: run after run, in each the dispatches in order, as the tool joins its runs.

    passes -- number and counters of each run of the program; a run begins after the one before has ended, and so has
    times of its own. A name with .gz is compressed, without a time, so that the same run gives the same file.
    """
    header = ["GPU_ID", "Dispatch_ID", *_LAUNCH_COLUMNS, "Kernel_Name", "Start_Timestamp", "End_Timestamp"]
    text = io.StringIO(newline="")
    text.write(",".join([*header, "Kernel_ID", "Counter_Name", "Counter_Value\n"]))
    length = max(times[1] for *_, times, _ in common) - min(times[0] for *_, times, _ in common) + BETWEEN_RUNS_NS
    for number, names in passes:
        begins = _row_begins(common, number * length)
        columns = [(name, counters[name].tolist()) for name in sorted(names)]
        for place, begin in enumerate(begins):
            text.write("".join(f"{begin},{name},{values[place]}.0\n" for name, values in columns))
    content = text.getvalue().encode()
    return put(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def _row_begins(common: Sequence[tuple[Any, ...]], later_ns: int) -> list[str]:
    """What the rows of each dispatch begin with, its times moved by `later_ns`."""
    heads = io.StringIO()
    csv.writer(heads, lineterminator=_ROW_END).writerows(
        [agent, number, *launch, name, *(time + later_ns for time in times), kernel]
        for agent, number, launch, name, times, kernel in common
    )
    return heads.getvalue().split(_ROW_END)[:-1]


def _wide_columns(
    counters: pd.DataFrame, runs: Iterable[Sequence[str]], correlations: Sequence[int]
) -> tuple[list[str], list[Sequence[Any]]]:
    """Names and values of the counter columns: run after run, each begun by its correlation id and wave size."""
    header: list[str] = []
    columns: list[Sequence[Any]] = []
    for number, names in enumerate(runs):
        ending = f"_{number}" if number else ""
        if number:
            header.append(f"Wave_Size{ending}")
            columns.append([64] * len(correlations))
        header += [f"Correlation_ID{ending}", *names]
        columns += [correlations, *([float(value) for value in counters[name].tolist()] for name in names)]
    return header, columns


def _write_requests(place: Path, runs: Mapping[str, Sequence[str]], kernels: Sequence[str]) -> list[Path]:
    place.mkdir(exist_ok=True)
    paths = []
    for stem, names in runs.items():
        text = f"pmc: {' '.join(names)}\n\ngpu:\nrange:\nkernel: {' '.join(kernels)}\n"
        paths.append(put(place / f"{stem}.txt", text))
    return paths


def _write_descriptions(place: Path, run: Run, runs: Mapping[str, Sequence[str]], asked: Options) -> list[Path]:
    """log.txt with the lines that say what was done, and profiling_config.yaml."""
    command = " ".join(run.command)
    kernels, dispatches = (str(list(values)) if values else "None" for values in (asked.kernels, asked.dispatches))
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
    options = ["mode: profile", f"format_rocprof_output: {_BACK_ENDS[asked.layout]}", "remaining:", "- --"]
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
