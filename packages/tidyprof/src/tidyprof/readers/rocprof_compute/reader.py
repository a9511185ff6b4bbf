"""Reader for workload folders and analysis databases from rocprof-compute (formerly Omniperf)."""

from __future__ import annotations

import re
from collections import Counter
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_HELD_BYTES, SQLITE_MAGIC, ByteStream
from tidyprof.io.guard import guarded
from tidyprof.readers.rocprof_compute.counter_csv import (
    Measured,
    read_counters,
)
from tidyprof.readers.rocprof_compute.database import read_analysis
from tidyprof.readers.rocprof_compute.dispatches import (
    counters_and_one_run,
    without_damaged_rows,
)
from tidyprof.readers.rocprof_compute.recognition import (
    COUNTER_FILE,
    counter_files,
    workload_folders,
)
from tidyprof.readers.rocprof_compute.workload import (
    PASS_FILES,
    ROOFLINE_FILE,
    SYSTEM_FILE,
    TIMES_FILE,
    common_facts,
    read_ceilings,
    read_system_facts,
    tool_version,
)
from tidyprof.tables.codes import ABSENT, Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.damage import damage_warnings
from tidyprof.tables.profiles import Part, impossible_zeros, profile_of
from tidyprof.tables.records import Records

_DRIVER_IDS_FROM = 256
MOST_DIFFERENCE = 0.1
"""Maximum relative difference between a kernel's mean durations with and without counters. A run
with counters repeats the same kernels, and the two files of AMD's own workloads differ by less.
"""


@guarded
def read_rocprof_compute(
    path: str | PathLike[str],
    *,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_HELD_BYTES,
) -> Profile:
    """Read a workload folder from `rocprof-compute profile`, or a database from
    `rocprof-compute analyze`.

    - path: path to one of the folders or files below. CSV files may be compressed.
    - origin: see `tidyprof.read`.
    - maximum_bytes: see `tidyprof.read`.

    The path can be one of these:

    - a folder with pmc_perf.csv
    - a folder with one file per run (results_*.csv), as written by `profile` since ROCm 7.13
    - a parent folder that contains exactly one such folder
    - the file pmc_perf.csv, in which case the files next to it are also read
    - a .db file from `analyze`

    `events` has one row per dispatch, with times in nanoseconds on the machine's clock. The table
    is empty if the files contain no times. These columns have a special meaning:

    - device: the tool's GPU_ID. `meta["device_numbering"]` explains its meaning.
    - grid: total number of work-items as a string, such as `[1024]`
    - block: number of work-items per workgroup as a string
    - replays: number of program runs in which the dispatch was timed
    - shortest_ns: shortest duration in these runs
    - longest_ns: longest duration in these runs

    `counters` has one row per dispatch and hardware counter (unit `count`):

    - dispatch_id: number of the dispatch
    - kernel: name of the dispatched kernel
    - replay_pass: number of the program run that counted the value, starting with 0. The program
      runs once per group of counters, so different passes belong to different launches.
    - time_ns: start of the dispatch, or 0 if the file has no times

    The sum of a level over all cycles is named `<level>_ACCUM` in all versions. An example is
    `SQ_LEVEL_WAVES_ACCUM`.

    For a database, `counters` contains the tool's metrics instead. Additional columns are `kernel`,
    `metric_id` and `statistic` (Avg, Peak, ...). `time_ns` is the start of the kernel's first
    dispatch.

    `meta` contains the common entries and these, if known:

    - layout: layout of the files, which is wide, long or database
    - sysinfo: system information as typed values. Clock rates of 0 are left out.
    - roofline: measured ceilings of each device
    - command: command line of the program
    - workload: name of the workload

    Raises ProfileReadError if a file can't be read.
    """
    path = Path(path)
    texts = Codes()
    if path.is_dir() or ByteStream(path).head(len(SQLITE_MAGIC)) != SQLITE_MAGIC:
        part, counters, dropped = _read_folder(_counter_files(path), texts, maximum_bytes)
    else:
        part, counters, dropped = read_analysis(path, maximum_bytes, texts)
    device = part.records.get("device")
    if device.max(initial=0) >= _DRIVER_IDS_FROM:
        # This id is a hash instead of an index.
        part.facts["device_numbering"] = "driver id"
    profile = profile_of([part], texts, {"tool": "rocprof-compute"}, origin)
    profile.counters = counters
    profile.meta["warnings"] += impossible_zeros(counters)
    profile.meta["repairs"] |= dropped
    profile.meta["warnings"] += damage_warnings(dropped, len(counters))
    return profile


def _counter_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = workload_folders(path)
    if len(found) == 1:
        return counter_files(found[0])
    if found:
        shown = ", ".join(repr(str(folder.relative_to(path))) for folder in found[:4])
        raise ProfileReadError(
            path,
            f"the folder has {len(found)} workload folders ({shown})",
            "the folder contains several workloads or one folder per rank",
            "pass one of these folders",
        )
    raise ProfileReadError(
        path,
        f"no {COUNTER_FILE}",
        "profiling failed (see log.txt), the folder contains only results from analyze, or analyze"
        " didn't join the files of single runs",
        "pass the folder from rocprof-compute profile, such as workloads/NAME/MI300X_A1, or run"
        " rocprof-compute analyze -p once with this folder",
    )


def _read_folder(
    files: list[Path], texts: Codes, maximum_bytes: int
) -> tuple[Part, pd.DataFrame, Counter[str]]:
    file, folder = files[0], files[0].parent
    measured = read_counters(files, texts, maximum_bytes)
    rank = int(folder.name) if re.fullmatch(r"\d{1,6}", folder.name) else None
    part = Part(file, measured.dispatches, files=list(files), warnings=measured.warnings, rank=rank)
    part.facts = {"layout": measured.layout}
    # The files next to another file may belong to another workload.
    if len(files) > 1 or file.name.startswith((COUNTER_FILE, "results_")):
        if measured.layout == "wide":
            _add_single_passes(folder, measured, part, texts)
            _add_times(folder, measured, part, texts)
        _add_company(folder, part)
    records = measured.dispatches
    has_times = bool((records["duration_ns"] != ABSENT).any())
    if not has_times:
        # The dispatches are in order.
        records["start_ns"] = np.arange(1, len(records) + 1)
        records["duration_ns"] = np.zeros(len(records), np.int64)
    dropped = without_damaged_rows(file, measured)
    counters, warnings = counters_and_one_run(file, measured, texts)
    part.warnings += warnings
    if not has_times:
        counters["time_ns"] = 0
        records.keep(np.zeros(len(records), bool))
        part.warnings.append(
            f"{file.name}: the file has no times, so there are no events or rates."
        )
    return part, counters, dropped


def _add_single_passes(folder: Path, measured: Measured, part: Part, texts: Codes) -> None:
    """Add the counters of program runs that versions up to ROCm 6.3 leave out of pmc_perf.csv."""
    for stem in PASS_FILES:
        file = folder / f"{stem}.csv"
        if not file.is_file():
            continue
        more = read_counters([file], texts)
        # A counter that every run has belongs to the run of the new counters, so keep it, too.
        if more.values["name"].isin(measured.values["name"]).all():
            continue
        rows = _rows_in(measured.dispatches, more.dispatches)
        if rows is None:
            part.warnings.append(
                f"{file.name} was left out. Its dispatches differ from {COUNTER_FILE}."
            )
            continue
        replay = more.values["replay_pass"] + measured.values["replay_pass"].max() + 1
        values = more.values.assign(row=rows[more.values["row"].to_numpy()], replay_pass=replay)
        measured.values = pd.concat([measured.values, values], ignore_index=True)
        part.files.append(file)


def _rows_in(known: Records, wanted: Records) -> np.ndarray | None:
    """Find each dispatch in `known` by number, device and kernel, and return its row. Return None
    if a dispatch doesn't occur exactly once in `known`.
    """
    by = ["device", "dispatch_id", "name"]
    right, left = (pd.DataFrame({name: of[name] for name in by}) for of in (known, wanted))
    merged = left.merge(right.assign(row=np.arange(len(known))), how="left", on=by)
    is_clear = merged["row"].notna().all() and len(merged) == len(wanted)
    return merged["row"].to_numpy(np.int64) if is_clear else None


def _add_times(folder: Path, measured: Measured, part: Part, texts: Codes) -> None:
    """Add times from timestamps.csv, which a run without counters writes. Also add the dispatches
    that occur only in that run. The kernels are compared, because that run may number its
    dispatches differently.
    """
    file = folder / TIMES_FILE
    if not file.is_file():
        return
    timed = read_counters([file], texts).dispatches
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
            f"{COUNTER_FILE} has only {len(counted)} of the {len(timed)} dispatches in {file.name}."
            " The other dispatches have no counters."
        )
    else:
        part.warnings.append(
            f"{file.name} was left out because its {len(timed)} dispatches differ from the"
            f" {len(counted)} in {COUNTER_FILE}."
        )
        return
    part.files.append(file)


def _contradictions(file: Path, timed: Records, counted: Records, texts: Codes) -> list[str]:
    """Return a warning if counters change a kernel's mean duration by more than MOST_DIFFERENCE."""
    mean = pd.DataFrame(
        pd.Series(records["duration_ns"]).groupby(records["name"]).mean()
        for records in (timed, counted)
    )
    ratio = (mean.max() / mean.min())[(mean > 0).all()]
    if not (ratio > 1 + MOST_DIFFERENCE).any():
        return []
    kernel = ratio.idxmax()
    without, with_counters = mean[kernel] / 1e6
    return [
        f"{file.name} and {COUNTER_FILE} contradict each other: {list(texts)[kernel][:60]!r} takes"
        f" {without:,.3f} ms without counters, but {with_counters:,.3f} ms with them."
    ]


def _add_company(folder: Path, part: Part) -> None:
    facts, read = part.facts, part.files
    if (folder / SYSTEM_FILE).is_file():
        sysinfo, warnings = read_system_facts(folder / SYSTEM_FILE)
        facts |= common_facts(sysinfo)
        part.warnings += warnings
        read.append(folder / SYSTEM_FILE)
    else:
        part.warnings.append(
            f"The file {SYSTEM_FILE} is missing next to {COUNTER_FILE}. The GPU and its peak rates"
            " are unknown."
        )
    if (folder / ROOFLINE_FILE).is_file():
        facts["roofline"] = read_ceilings(folder / ROOFLINE_FILE)
        read.append(folder / ROOFLINE_FILE)
    if version := tool_version(folder):
        facts["tool_version"] = version
