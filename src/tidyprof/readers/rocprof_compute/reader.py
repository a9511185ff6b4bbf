"""Reader for what rocprof-compute (formerly Omniperf) writes: workload folders and analysis databases."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from tidyprof.io.byte_stream import MAXIMUM_HELD_BYTES, ByteStream
from tidyprof.io.errors import ProfileReadError
from tidyprof.io.sqlite_header import SQLITE_MAGIC
from tidyprof.names.short_names import short_name
from tidyprof.readers.rocprof_compute.counter_csv import CounterCsv
from tidyprof.readers.rocprof_compute.database import Analysis, read_analysis
from tidyprof.readers.rocprof_compute.dispatches import (
    COUNTER_UNIT,
    NAME,
    NUMBERS_OF_DISPATCH,
    Measured,
    dispatch_columns,
    times,
)
from tidyprof.readers.rocprof_compute.long import is_long, read_long
from tidyprof.readers.rocprof_compute.recognition import COUNTER_FILE, SEPARATE_RUNS, workload_folders
from tidyprof.readers.rocprof_compute.wide import counter_columns, read_wide
from tidyprof.readers.rocprof_compute.workload import (
    DISPATCH_FILE,
    KERNEL_TOP_FILE,
    PASS_FILES,
    ROOFLINE_FILE,
    SYSTEM_FILE,
    TIMES_FILE,
    planned_runs,
    read_ceilings,
    read_metric_tables,
    read_system_facts,
    small_table,
    tool_version,
)
from tidyprof.tables.contract import COUNTER_DTYPES, EVENT_DTYPES, KINDS, Origin, Profile
from tidyprof.tables.kinds import kind_of_kernel

EVENT_COLUMNS = EVENT_DTYPES | {
    "dispatch_id": "Int64",
    "grid": "category",
    "block": "category",
    **{name: "Int64" for name in NUMBERS_OF_DISPATCH if name not in ("grid", "block")},
    "replays": "Int64",
    "shortest_ns": "Int64",
    "longest_ns": "Int64",
}
"""Columns of `events` and their dtypes."""

COUNTER_COLUMNS = COUNTER_DTYPES | {"dispatch_id": "Int64", "kernel": "category", "replay": "Int32"}
"""Columns of `counters` of a workload folder and their dtypes."""

METRIC_COLUMNS = COUNTER_DTYPES | {"kernel": "category", "metric_id": "category", "statistic": "category"}
"""Columns of `counters` of an analysis database and their dtypes."""

_DRIVER_IDS_FROM = 256


def read_rocprof_compute(
    path: str | PathLike[str], *, origin: Origin | None = None, maximum_bytes: int = MAXIMUM_HELD_BYTES
) -> Profile:
    """Read a workload folder of `rocprof-compute profile`, or a database of `rocprof-compute analyze`.

    path          -- the folder with pmc_perf.csv, or one above it if there is only one; pmc_perf.csv itself (what
                     lies beside it is read too); or the .db file.
    origin        -- where the recording comes from; not stated if None.
    maximum_bytes -- refuse a pmc_perf.csv that unpacks to more than this.

    `events` has one row of kind kernel per dispatch (times in ns of the machine's clock), none if the files have no
    times, and after the columns of every Profile:
      dispatch_id         Int64, the tool's number of the dispatch; grid, block: work-items in all and in a workgroup
      lds_bytes, scratch_bytes (per workgroup, per work-item), vgprs, accum_vgprs, sgprs, wave_size   Int64
      replays, shortest_ns, longest_ns   in how many runs of the program the dispatch was timed, and the extremes
    `device` is GPU_ID as the tool gives it: see `meta["device_numbering"]`.

    `counters` has one row per dispatch and hardware counter (unit `count`): `dispatch_id`, `kernel`, and `replay`, the
    run of the program (from 0) that counted it; `time_ns` is the dispatch's start, 0 in a file without times. The
    program is run once per group of counters, so counters of different replays belong to different launches. The
    sum of a level over cycles is called `<level>_ACCUM` in every version, e.g. `SQ_LEVEL_WAVES_ACCUM`.
    Of a database `counters` has the tool's evaluated figures instead: `kernel`, `metric_id`, `statistic` (Avg, Peak,
    ...), with the start of the kernel's first dispatch for `time_ns`.

    `meta` has, besides the common entries and where stated: `content` (`counters` or `metrics`), `layout` (wide,
    long, database), `sysinfo` (typed; clocks of 0 are absent), `roofline` (measured ceilings per device),
    `metric_tables` (name -> rows, of `analyze`), `kernel_rates` (database: FLOP rate and intensities per kernel),
    `replay_passes` (runs of the program), `replays_read`, `rows`, `columns`, `counters_distinct`, `command`,
    `workload`, `warnings`.

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    if path.is_dir() or not _is_database(path):
        profile = _read_folder(*_counter_file(path), maximum_bytes)
    else:
        profile = _read_database(path, maximum_bytes)
    if origin is not None:
        profile.meta["origin"] = origin
    return profile


def _is_database(path: Path) -> bool:
    return path.suffix == ".db" or ByteStream(path).head(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def _counter_file(path: Path) -> tuple[Path, bool]:
    """The file with the counters, and whether what lies beside it belongs to it."""
    if not path.is_dir():
        return path, path.name.startswith(COUNTER_FILE)
    found = workload_folders(path)
    if len(found) == 1:
        return found[0] / COUNTER_FILE, True
    if found:
        shown = ", ".join(repr(str(folder.relative_to(path))) for folder in found[:4])
        raise ProfileReadError(
            path,
            f"{len(found)} workload folders ({shown}{', ...' if len(found) > 4 else ''})",
            "several workloads, or one folder per rank",
            "pass one of them",
        )
    separate = sorted(file.name for file in path.glob(SEPARATE_RUNS)) if path.is_dir() else []
    if separate:
        raise ProfileReadError(
            path,
            f"no {COUNTER_FILE}, but {len(separate)} files of single runs ({separate[0]!r} for one)",
            "from ROCm 7.13 on profile leaves it to analyze to join its runs",
            "run once: rocprof-compute analyze -p with this folder",
        )
    raise ProfileReadError(
        path,
        f"no {COUNTER_FILE}",
        "profiling failed (see log.txt), or the folder has only the results of analyze",
        "pass the folder that rocprof-compute profile wrote, such as workloads/NAME/MI300X_A1",
    )


def _read_folder(file: Path, has_company: bool, maximum_bytes: int) -> Profile:
    folder = file.parent
    text = CounterCsv(file, maximum_bytes)
    measured = read_long(text) if is_long(text) else read_wide(text)
    files = [file]
    if has_company:
        files += _add_single_passes(folder, measured)
        files += _add_times(folder, measured)
    meta = {"tool": "rocprof-compute", "content": "counters", "layout": measured.layout}
    if has_company:
        files += _add_company(folder, measured, meta)
    meta |= {
        "files": [str(read) for read in files],
        "rows": measured.rows,
        "columns": measured.columns,
        "counters_distinct": int(measured.counters["name"].nunique()),
        "replays_read": measured.replays,
        "repairs": dict(measured.dropped),
        "warnings": measured.warnings,
    }
    meta.setdefault("replay_passes", measured.replays)
    if measured.ignored_columns:
        meta["ignored_columns"] = measured.ignored_columns
    if measured.dispatches.attrs.get("rounded_times"):
        meta["times_rounded"] = True
    _add_numbering(meta, measured.dispatches["device"])
    _warn_of_gaps(file, measured)
    rank = int(folder.name) if re.fullmatch(r"\d{1,6}", folder.name) else None
    return Profile(_events(measured.dispatches, rank), _counters(measured), meta)


def _add_single_passes(folder: Path, measured: Measured) -> list[Path]:
    """Add the counters of runs that pmc_perf.csv leaves out (versions up to ROCm 6.3); returns the files read."""
    read = []
    for stem in PASS_FILES:
        file = folder / f"{stem}.csv"
        if measured.layout == "long" or not file.is_file():
            continue
        text = CounterCsv(file)
        present = set(measured.counters["name"].cat.categories)
        offered = {column.counter for column in counter_columns(text.names)}
        # Counters that stand in every run belong to the run in which the new ones were counted, so they come along.
        if offered <= present:
            continue
        more = read_wide(text, first_replay=measured.replays)
        places = _places(measured.dispatches, more.dispatches)
        if places is None:
            measured.warnings.append(f"{file.name}: other dispatches than in {COUNTER_FILE}, left out.")
            continue
        rows = places[more.counters["dispatch_row"].to_numpy()]
        counters = more.counters.drop(columns="time_ns", errors="ignore").assign(dispatch_row=rows)
        if "start_ns" in measured.dispatches:
            counters["time_ns"] = measured.dispatches["start_ns"].to_numpy(np.int64)[rows]
        measured.counters = _appended(measured.counters, counters)
        measured.replays += more.replays
        measured.dropped.update(more.dropped)
        read.append(file)
    return read


def _appended(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    names = union_categoricals([first["name"], second["name"]])
    both = pd.concat([first.drop(columns="name"), second.drop(columns="name")], ignore_index=True)
    return both.assign(name=names)


def _places(known: pd.DataFrame, other: pd.DataFrame) -> np.ndarray | None:
    """For each dispatch of `other` the row in `known`, by number, device and kernel; None if one is unknown."""
    by = ["device", "dispatch_id", "name"]
    merged = other[by].merge(known[by].assign(place=np.arange(len(known))), how="left", on=by)
    return None if merged["place"].isna().any() else merged["place"].to_numpy(np.int64)


def _add_times(folder: Path, measured: Measured) -> list[Path]:
    """Take times from timestamps.csv if pmc_perf.csv has none; the numbers of dispatches may be shifted there."""
    file = folder / TIMES_FILE
    if "start_ns" in measured.dispatches or not file.is_file():
        return []
    text = CounterCsv(file)
    texts, _, wholes = text.columns([NAME], wholes=dispatch_columns(text))
    found = times(wholes)
    if found is None or not np.array_equal(texts[NAME].texts(), measured.dispatches["name"].to_numpy()):
        measured.warnings.append(f"{file.name}: no times of the dispatches in {COUNTER_FILE}, left out.")
        return []
    start, duration, known = found
    good = known & (start > 0) & (duration > 0)
    measured.dispatches["start_ns"] = pd.arrays.IntegerArray(start, ~good)
    measured.dispatches["duration_ns"] = pd.arrays.IntegerArray(duration, ~good)
    measured.dispatches = measured.dispatches.assign(
        replays=1, shortest_ns=measured.dispatches["duration_ns"], longest_ns=measured.dispatches["duration_ns"]
    )
    measured.counters["time_ns"] = np.where(good, start, 0)[measured.counters["dispatch_row"].to_numpy()]
    return [file]


def _add_company(folder: Path, measured: Measured, meta: dict[str, Any]) -> list[Path]:
    """Put into `meta` what the small files say; returns the files read."""
    read = []
    if (folder / SYSTEM_FILE).is_file():
        facts, warnings = read_system_facts(folder / SYSTEM_FILE)
        meta |= _facts(facts)
        measured.warnings += warnings
        read.append(folder / SYSTEM_FILE)
    else:
        measured.warnings.append(f"no {SYSTEM_FILE} beside {COUNTER_FILE}: the GPU and its peaks are unknown.")
    if (folder / ROOFLINE_FILE).is_file():
        meta["roofline"] = read_ceilings(folder / ROOFLINE_FILE)
        read.append(folder / ROOFLINE_FILE)
    if (folder / DISPATCH_FILE).is_file():
        listed = len(small_table(folder / DISPATCH_FILE))
        read.append(folder / DISPATCH_FILE)
        if listed != measured.rows and measured.layout == "wide":
            measured.warnings.append(f"{DISPATCH_FILE} lists {listed} dispatches, {COUNTER_FILE} {measured.rows}.")
    tables = read_metric_tables(folder)
    if (folder / KERNEL_TOP_FILE).is_file():
        tables[KERNEL_TOP_FILE.removesuffix(".csv")] = small_table(folder / KERNEL_TOP_FILE)
    found = {"metric_tables": tables, "tool_version": tool_version(folder), "replay_passes": planned_runs(folder)}
    meta |= {name: value for name, value in found.items() if value}
    return read


def _facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Entries of `meta` from sysinfo, under the names that all readers use."""
    names = {"gpu": "gpu_model", "rocm": "rocm_version", "host": "hostname", "command": "command"}
    names["workload"] = "workload_name"
    return {"sysinfo": facts} | {name: str(facts[key]) for name, key in names.items() if key in facts}


def _add_numbering(meta: dict[str, Any], device: pd.Series) -> None:
    """State that devices are numbered by the driver's ids where they are: such an id is a hash, no index."""
    if device.notna().any() and device.max() >= _DRIVER_IDS_FROM:
        meta["device_numbering"] = "driver id"


def _warn_of_gaps(file: Path, measured: Measured) -> None:
    if not len(measured.counters):
        measured.warnings.append(
            f"{file.name}: no counter values. Likely cause: only times were asked for, or the counters are unknown "
            "to the profiler of this ROCm version (see log.txt)."
        )
    else:
        per_dispatch = measured.counters.groupby("dispatch_row")["name"].nunique()
        if per_dispatch.nunique() > 1 or len(per_dispatch) < len(measured.dispatches):
            measured.warnings.append(
                f"{file.name}: dispatches have between {per_dispatch.min()} and {per_dispatch.max()} counters. Likely "
                "cause: counters were rotated over launches (--iteration-multiplexing), or a run ended early."
            )
    if "start_ns" not in measured.dispatches:
        measured.warnings.append(f"{file.name}: no times, so there are no events and no rates.")


def _events(dispatches: pd.DataFrame, rank: int | None) -> pd.DataFrame:
    """The event table; empty if the dispatches have no times."""
    if "start_ns" not in dispatches:
        return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in EVENT_COLUMNS.items()})
    timed = dispatches[dispatches["start_ns"].notna() & dispatches["duration_ns"].notna()]
    timed = timed.sort_values("start_ns", kind="stable", ignore_index=True)
    shortened = {name: short_name(name) for name in timed["name"].unique()}
    table = timed.reindex(columns=list(EVENT_COLUMNS)).assign(
        rank=pd.array([pd.NA if rank is None else rank] * len(timed), "Int32"),
        device=_small_integers(timed["device"]),
        short_name=timed["name"].map(shortened),
    )
    for name in ("grid", "block"):
        table[name] = table[name].astype("string")
    # Counters are of dispatches, so the runtime's kernels that copy and fill stay kernels here.
    kinds = {name: "collective" if kind_of_kernel(name) == "collective" else "kernel" for name in shortened}
    kind = pd.Categorical(timed["name"].map(kinds), KINDS)
    return table.astype(EVENT_COLUMNS).assign(kind=kind)


def _small_integers(values: pd.Series) -> pd.Series:
    """Device numbers, <NA> where they do not fit into 32 bits."""
    return values.astype("Int64").where(values.astype("Int64").abs() < 2**31).astype("Int32")


def _counters(measured: Measured) -> pd.DataFrame:
    """The counter table, in order of time."""
    counters, dispatches = measured.counters, measured.dispatches
    rows = counters["dispatch_row"].to_numpy()
    names = pd.Categorical(dispatches["name"])
    frame = pd.DataFrame(
        {
            "time_ns": counters["time_ns"].to_numpy(np.int64) if "time_ns" in counters else np.int64(0),
            "device": _small_integers(dispatches["device"]).array[rows],
            "name": counters["name"].array.remove_unused_categories(),
            "value": counters["value"].to_numpy(np.float64),
            "unit": pd.Categorical.from_codes(np.zeros(len(rows), np.int8), [COUNTER_UNIT]),
            "dispatch_id": dispatches["dispatch_id"].astype("Int64").array[rows],
            "kernel": pd.Categorical.from_codes(names.codes[rows], names.categories),
            "replay": counters["replay"].astype("Int32").array,
        },
        copy=False,
    )
    # Mostly in order already, and checking is quicker than sorting.
    is_ordered = frame["time_ns"].is_monotonic_increasing
    return frame if is_ordered else frame.sort_values("time_ns", kind="stable", ignore_index=True)


def _read_database(path: Path, maximum_bytes: int) -> Profile:
    analysis = read_analysis(path, maximum_bytes)
    meta = {"tool": "rocprof-compute", "content": "metrics", "layout": "database", "files": [str(path)]}
    meta |= _facts(analysis.sysinfo) | {"workload": analysis.workload}
    stated = {
        "tool_version": analysis.tool_version,
        "schema_version": analysis.schema_version,
        "roofline": [analysis.ceilings] if analysis.ceilings else None,
        "metric_tables": analysis.tables,
        "kernel_rates": analysis.roofline,
    }
    meta |= {name: value for name, value in stated.items() if value}
    meta |= {
        "repairs": {f"dispatches {reason}": number for reason, number in analysis.dropped.items()},
        "warnings": analysis.warnings,
    }
    _add_numbering(meta, analysis.events["device"])
    return Profile(_events(analysis.events, None), _metrics(analysis), meta)


def _metrics(analysis: Analysis) -> pd.DataFrame:
    first = analysis.events.groupby("name").agg(time_ns=("start_ns", "min"), device=("device", "first"))
    timed = analysis.metrics[analysis.metrics["kernel"].isin(first.index)]
    table = timed.join(first, on="kernel").astype({"unit": "object", "value": "float64"})
    return table.sort_values("time_ns", kind="stable", ignore_index=True)[list(METRIC_COLUMNS)].astype(METRIC_COLUMNS)
