"""Reader for what rocprof-compute (formerly Omniperf) writes: workload folders and analysis
databases.
"""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError, SeveralRecordingsError
from tidyprof.io.byte_stream import MAXIMUM_HELD_BYTES, SQLITE_MAGIC, ByteStream
from tidyprof.io.guard import guarded
from tidyprof.readers.rocprof_compute.counter_csv import (
    NAME,
    CounterCsv,
    Measured,
    counter_columns,
    dispatch_records,
    ignored_columns,
    read_layout,
    refuse_repeated_counters,
    together,
)
from tidyprof.readers.rocprof_compute.database import read_analysis
from tidyprof.readers.rocprof_compute.dispatches import (
    counters_and_one_run,
    without_damaged_dispatches,
    without_unusable_values,
)
from tidyprof.readers.rocprof_compute.recognition import (
    COUNTER_FILE,
    SEPARATE_RUNS,
    counter_files,
    workload_folders,
)
from tidyprof.readers.rocprof_compute.workload import (
    DISPATCH_FILE,
    KERNEL_TOP_FILE,
    PASS_FILES,
    ROOFLINE_FILE,
    SYSTEM_FILE,
    TIMES_FILE,
    common_facts,
    planned_runs,
    read_ceilings,
    read_metric_tables,
    read_system_facts,
    small_table,
    tool_version,
)
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import Part, impossible_zeros, profile_of
from tidyprof.tables.records import Records

_DRIVER_IDS_FROM = 256
MOST_TIMES, LEAST_SHARE = 2, 0.1
"""Largest ratio of a kernel's times with and without counters: counting serializes kernels and
flushes caches, but the work is the same. Only kernels with this share of all kernel time count,
since a counter's overhead of microseconds can double a short kernel.
"""


@guarded
def read_rocprof_compute(
    path: str | PathLike[str],
    *,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_HELD_BYTES,
) -> Profile:
    """Read a workload folder of `rocprof-compute profile`, or a database of `rocprof-compute
    analyze`.

    path -- the folder with pmc_perf.csv, or with the files of single runs that `profile` leaves
            from ROCm 7.13 on (results_*.csv); a folder above it if there is only one such folder;
            pmc_perf.csv itself (the files beside it are read too); or the .db file. CSV files may
            be compressed.
    origin, maximum_bytes -- as of `tidyprof.read`.

    `events` has one row per dispatch (times in ns of the machine's clock), none if the files have
    no times. Of the columns of `tables.contract`, here
      device           GPU_ID as the tool gives it: see `meta["device_numbering"]`
      grid, block      work-items in all and in a workgroup, as text such as `[1024]`
      replays, shortest_ns, longest_ns   in how many runs of the program the dispatch was timed, and
        the extremes

    `counters` has one row per dispatch and hardware counter (unit `count`): `dispatch_id`,
    `kernel`, and `replay_pass`, the run of the program (from 0) that counted it; `time_ns` is the
    dispatch's start, 0 in a file without times. The program is run once per group of counters, so
    counters of different passes belong to different launches. The sum of a level over cycles is
    called `<level>_ACCUM` in every version, e.g. `SQ_LEVEL_WAVES_ACCUM`. For a database `counters`
    has the tool's evaluated figures instead: `kernel`, `metric_id`, `statistic` (Avg, Peak, ...),
    with the start of the kernel's first dispatch as `time_ns`.

    `meta` has, besides the common entries and where stated: `layout` (wide, long, database),
    `sysinfo` (typed; clocks of 0 are absent), `roofline` (measured ceilings per device),
    `metric_tables` (name -> rows, of `analyze`), `kernel_rates` (database: FLOP rate and
    intensities per kernel, without those that old releases get wrong), `replay_passes` (runs of the
    program), `replays_read`, `rows`, `columns`, `counters_distinct`, `command`, `workload`.

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    texts = Codes()
    if path.is_dir() or not _is_database(path):
        part, counters, dropped = _read_folder(*_counter_files(path), texts, maximum_bytes)
    else:
        (part, counters), dropped = read_analysis(path, maximum_bytes, texts), {}
    device = part.records.get("device")
    if device.max(initial=0) >= _DRIVER_IDS_FROM:
        # Such an id is a hash, no index.
        part.facts["device_numbering"] = "driver id"
    profile = profile_of([part], texts, {"tool": "rocprof-compute"}, origin)
    profile.counters = counters
    profile.meta["warnings"] += impossible_zeros(counters)
    profile.meta["repairs"] |= dropped
    return profile


def _is_database(path: Path) -> bool:
    return path.suffix == ".db" or ByteStream(path).head(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def _counter_files(path: Path) -> tuple[list[Path], bool]:
    """The files with the counters, and whether the files beside them belong to them."""
    if not path.is_dir():
        return [path], path.name.startswith(COUNTER_FILE)
    found = workload_folders(path)
    if len(found) == 1:
        return counter_files(found[0]), True
    if found:
        shown = ", ".join(repr(str(folder.relative_to(path))) for folder in found[:4])
        raise SeveralRecordingsError(
            path,
            f"{len(found)} workload folders ({shown}{', ...' if len(found) > 4 else ''})",
            "several workloads, or one folder per rank",
            "pass one of them",
        )
    separate = sorted(file.name for file in path.glob(SEPARATE_RUNS)) if path.is_dir() else []
    if separate:
        raise ProfileReadError(
            path,
            f"no {COUNTER_FILE}, but {len(separate)} files of single runs ({separate[0]!r} for"
            " one)",
            "from ROCm 7.13 on profile leaves it to analyze to join the runs of its CSV back end",
            "run once: rocprof-compute analyze -p with this folder",
        )
    raise ProfileReadError(
        path,
        f"no {COUNTER_FILE}",
        "profiling failed (see log.txt), or the folder has only the results of analyze",
        "pass the folder that rocprof-compute profile wrote, such as workloads/NAME/MI300X_A1",
    )


def _read_folder(
    files: list[Path], has_company: bool, texts: Codes, maximum_bytes: int
) -> tuple[Part, pd.DataFrame, dict[str, int]]:
    """The dispatches, their counters, and reason -> counter values that were left out."""
    file, folder = files[0], files[0].parent
    read = [CounterCsv(own, maximum_bytes) for own in files]
    measured, text = together([read_layout(own, texts) for own in read]), read[0]
    rank = int(folder.name) if re.fullmatch(r"\d{1,6}", folder.name) else None
    warnings = [warning for own in read for warning in own.warnings]
    part = Part(file, measured.dispatches, files=list(files), warnings=warnings, rank=rank)
    if has_company:
        _add_single_passes(folder, measured, part, texts)
        _add_times(folder, measured, part, texts)
    part.facts = {"layout": measured.layout, "rows": measured.rows, "columns": len(text.names)}
    if has_company:
        _add_company(folder, part)
    has_times = measured.has_times
    if has_times:
        without_damaged_dispatches(file, measured)
    dropped = without_unusable_values(file, measured)
    refuse_repeated_counters(text, measured, texts)
    counters, warnings = counters_and_one_run(file, measured, texts)
    part.warnings += warnings
    if not has_times:
        part.records.keep(np.zeros(len(part.records), bool))
        part.warnings.append(f"{file.name}: no times, so there are no events and no rates.")
    replays = int(counters["replay_pass"].max()) + 1 if len(counters) else 1
    part.facts |= {"counters_distinct": int(counters["name"].nunique()), "replays_read": replays}
    part.facts.setdefault("replay_passes", replays)
    ignored = ignored_columns(text.names) if measured.layout == "wide" else []
    stated = {"ignored_columns": ignored, "times_rounded": any(own.rounded for own in read)}
    part.facts |= {name: value for name, value in stated.items() if value}
    return part, counters, dropped


def _add_single_passes(folder: Path, measured: Measured, part: Part, texts: Codes) -> None:
    """Add the counters of runs that pmc_perf.csv leaves out, as versions up to ROCm 6.3 do."""
    for stem in PASS_FILES if measured.layout == "wide" else ():
        file = folder / f"{stem}.csv"
        if not file.is_file():
            continue
        text = CounterCsv(file)
        labels = list(texts)
        present = {labels[code] for code in measured.values["name"].unique()}
        # Counters that come in every run belong to the run in which the new counters were counted,
        # so they are taken along.
        if {column.counter for column in counter_columns(text.names)} <= present:
            continue
        more = read_layout(text, texts)
        rows = _rows_in(measured.dispatches, more.dispatches)
        if rows is None:
            part.warnings.append(f"{file.name}: other dispatches than in {COUNTER_FILE}, left out.")
            continue
        replay = more.values["replay_pass"] + measured.values["replay_pass"].max() + 1
        values = more.values.assign(row=rows[more.values["row"].to_numpy()], replay_pass=replay)
        measured.values = pd.concat([measured.values, values], ignore_index=True)
        part.files.append(file)


def _rows_in(known: Records, wanted: Records) -> np.ndarray | None:
    """For each wanted dispatch its row in `known`, by number, device and kernel; None if a dispatch
    is unknown there, or there twice.
    """
    by = ["device", "dispatch_id", "name"]
    right, left = (pd.DataFrame({name: of[name] for name in by}) for of in (known, wanted))
    merged = left.merge(right.assign(row=np.arange(len(known))), how="left", on=by)
    is_clear = merged["row"].notna().all() and len(merged) == len(wanted)
    return merged["row"].to_numpy(np.int64) if is_clear else None


def _add_times(folder: Path, measured: Measured, part: Part, texts: Codes) -> None:
    """Take times from timestamps.csv, which is of a run without counters, and dispatches that only
    that run has. The numbers of dispatches may be shifted there, so their kernels are compared.
    """
    file = folder / TIMES_FILE
    if measured.layout != "wide" or not file.is_file():
        return
    timed = dispatch_records(file, CounterCsv(file).frame([NAME], []), texts)
    counted = measured.dispatches
    part.warnings += _contradictions(file, timed, counted, texts)
    rows = _rows_in(timed, counted)
    if np.array_equal(timed["name"], counted["name"]):
        for column in ("start_ns", "duration_ns"):
            counted[column] = timed[column]
    elif rows is not None:
        measured.values = measured.values.assign(row=rows[measured.values["row"].to_numpy()])
        part.records = measured.dispatches = timed
        part.warnings.append(
            f"{COUNTER_FILE} has {len(counted)} of the {len(timed)} dispatches in {file.name}; the"
            " others have no counters."
        )
    else:
        part.warnings.append(
            f"{file.name}: {len(timed)} dispatches, which are others than the {len(counted)} in"
            f" {COUNTER_FILE}, left out."
        )
        return
    part.files.append(file)


def _contradictions(file: Path, timed: Records, counted: Records, texts: Codes) -> list[str]:
    """Return a warning if a kernel's mean duration differs by more than MOST_TIMES between the run
    without counters and that with counters.
    """
    runs = [
        pd.Series(records["duration_ns"]).groupby(records["name"]) for records in (timed, counted)
    ]
    mean, total = (
        pd.DataFrame([run.mean() for run in runs]),
        pd.DataFrame([run.sum() for run in runs]),
    )
    if (mean <= 0).any(axis=None):
        return []
    share = total.div(total.sum(axis=1), axis=0).max()
    ratio = (mean.max() / mean.min())[share >= LEAST_SHARE]
    if ratio.max() <= MOST_TIMES:
        return []
    kernel = ratio.idxmax()
    without, with_counters = mean[kernel] / 1e6
    return [
        f"{file.name} and {COUNTER_FILE} contradict each other: {list(texts)[kernel][:60]!r} takes"
        f" {without:,.3f} and {with_counters:,.3f} ms."
    ]


def _add_company(folder: Path, part: Part) -> None:
    """Add what the small files state to `part.facts`."""
    facts, read = part.facts, part.files
    if (folder / SYSTEM_FILE).is_file():
        sysinfo, warnings = read_system_facts(folder / SYSTEM_FILE)
        facts |= common_facts(sysinfo)
        part.warnings += warnings
        read.append(folder / SYSTEM_FILE)
    else:
        part.warnings.append(
            f"no {SYSTEM_FILE} beside {COUNTER_FILE}: the GPU and its peaks are unknown."
        )
    if (folder / ROOFLINE_FILE).is_file():
        facts["roofline"] = read_ceilings(folder / ROOFLINE_FILE)
        read.append(folder / ROOFLINE_FILE)
    if (folder / DISPATCH_FILE).is_file():
        listed = len(small_table(folder / DISPATCH_FILE))
        read.append(folder / DISPATCH_FILE)
        if listed != facts["rows"] and facts["layout"] == "wide":
            part.warnings.append(
                f"{DISPATCH_FILE} lists {listed} dispatches, {COUNTER_FILE} {facts['rows']}."
            )
    tables = read_metric_tables(folder)
    if (folder / KERNEL_TOP_FILE).is_file():
        tables[KERNEL_TOP_FILE.removesuffix(".csv")] = small_table(folder / KERNEL_TOP_FILE)
    found = {
        "metric_tables": tables,
        "tool_version": tool_version(folder),
        "replay_passes": planned_runs(folder),
    }
    facts |= {name: value for name, value in found.items() if value}
