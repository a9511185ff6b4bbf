"""Dispatches and hardware counters of rocprof-compute: what the wide and the long layout have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.io.errors import ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS, TextColumn
from tidyprof.readers.rocprof_compute.counter_csv import CounterCsv, WholeColumn
from tidyprof.tables.codes import all_missing
from tidyprof.tables.damage import refuse_damage

NUMBERS_OF_DISPATCH = {
    "grid": ("Grid_Size",),
    "block": ("Workgroup_Size",),
    "lds_bytes": ("LDS_Per_Workgroup",),
    "scratch_bytes": ("Scratch_Per_Workitem",),
    "vgprs": ("Arch_VGPR",),
    "accum_vgprs": ("Accum_VGPR",),
    "sgprs": ("SGPR",),
    "wave_size": ("Wave_Size", "wave_size"),
}
"""What the file says about the launch, under the names of `read_rocprof_compute`: name -> columns in files."""

NAME = "Kernel_Name"
_DISPATCH, _DEVICE, _START, _END = "Dispatch_ID", "GPU_ID", "Start_Timestamp", "End_Timestamp"
_WHOLE_COLUMNS = (_DISPATCH, _DEVICE, _START, _END, *(old for names in NUMBERS_OF_DISPATCH.values() for old in names))
DISPATCH_COLUMNS = (NAME, *_WHOLE_COLUMNS)
"""Columns about dispatches, in any version."""

COUNTER_UNIT = "count"
"""Unit of raw hardware counters: they count events or cycles, which one their name says."""


@dataclass
class Measured:
    """What one or more counter files hold.

    dispatches -- one row each: `dispatch_id`, `device`, `name`, the columns NUMBERS_OF_DISPATCH, and with times also
                  `start_ns`, `duration_ns` (Int64), `replays`, `shortest_ns`, `longest_ns`.
    counters   -- one row per value: `dispatch_row` (place in dispatches), `name`, `value`, `replay`, `time_ns`.
    dropped    -- reason -> rows left out; replays -- runs of the program that the values come from.
    """

    dispatches: pd.DataFrame
    counters: pd.DataFrame
    layout: str
    rows: int
    columns: int
    replays: int
    dropped: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    ignored_columns: list[str] = field(default_factory=list)


def dispatch_columns(text: CounterCsv) -> list[str]:
    """The columns of whole numbers about dispatches that the file has; raises ProfileReadError if it lacks one that
    is needed."""
    missing = [name for name in (_DISPATCH, NAME) if name not in text.names]
    if missing:
        shown = ", ".join(repr(name[:30]) for name in text.names[:4])
        raise ProfileReadError(
            text.path,
            f"no column {' and no column '.join(missing)} (it begins with {shown})",
            "another tool wrote it, or a version before omniperf 2",
            "pass the folder with pmc_perf.csv that rocprof-compute profile wrote",
        )
    return [name for name in text.names if name in _WHOLE_COLUMNS]


def identity(path: Path, name: TextColumn, wholes: Mapping[str, WholeColumn]) -> pd.DataFrame:
    """Dispatch number, device and kernel code of each row; raises ProfileReadError where one is missing."""
    unnamed = np.isin(name.codes, [place for place, text in enumerate(name.values) if text in ABSENT_TEXTS])
    lost = wholes[_DISPATCH].missing | unnamed
    if lost.any():
        raise ProfileReadError(
            path,
            f"{int(lost.sum())} rows without a dispatch number or a kernel name",
            "the file is damaged",
            "copy it again, or record again",
        )
    device = nullable(wholes.get(_DEVICE), np.arange(len(lost)))
    return pd.DataFrame({"dispatch_id": wholes[_DISPATCH].values, "device": device, "kernel": name.codes})


def launch_numbers(wholes: Mapping[str, WholeColumn], rows: np.ndarray) -> dict[str, pd.arrays.IntegerArray]:
    """The columns NUMBERS_OF_DISPATCH of these rows as Int64; absent columns are all <NA>."""
    found = {name: next((old for old in olds if old in wholes), None) for name, olds in NUMBERS_OF_DISPATCH.items()}
    return {name: nullable(wholes.get(old), rows) for name, old in found.items()}


def nullable(column: WholeColumn | None, rows: np.ndarray) -> pd.arrays.IntegerArray:
    """These rows of a column as Int64; without the column all are <NA>."""
    if column is None:
        return all_missing(len(rows), "Int64")
    return pd.arrays.IntegerArray(column.values[rows], column.missing[rows])


def times(wholes: Mapping[str, WholeColumn]) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Start, duration (ns) and whether they are there, for each row; None if the file has no times at all."""
    if _START not in wholes or _END not in wholes:
        return None
    start, end = wholes[_START], wholes[_END]
    known = ~(start.missing | end.missing)
    return (start.values, end.values - start.values, known) if known.any() else None


def times_are_rounded(wholes: Mapping[str, WholeColumn]) -> bool:
    """Whether times in the file have a fraction of a nanosecond: rocprof-compute averaged them over its runs."""
    return wholes[_START].rounded or wholes[_END].rounded


def damaged_times(start: np.ndarray, duration: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, Counter[str]]:
    """Which rows have impossible times, and how many for which reason."""
    reasons = {
        "without start or end": ~known,
        "at time zero": known & (start <= 0),
        "with negative duration": known & (start > 0) & (duration < 0),
        "with zero duration": known & (start > 0) & (duration == 0),
    }
    counted = Counter({reason: int(rows.sum()) for reason, rows in reasons.items() if rows.any()})
    return np.logical_or.reduce(list(reasons.values())), counted


def refuse_lost(path: Path, what: str, dropped: Counter[str], total: int) -> None:
    """Raise ProfileReadError if too many of `total` dispatches or values are unusable."""
    refuse_damage(
        path,
        what,
        dropped,
        total,
        "the profiler lost records, or the file is damaged",
        "record again, with fewer counters or one process",
    )


def usable_values(values: np.ndarray) -> tuple[np.ndarray, Counter[str]]:
    """Which counter values can be: finite and not negative; and how many are not, for which reason."""
    finite = np.isfinite(values)
    negative = finite & (values < 0)
    counted = Counter({"not finite": int((~finite).sum()), "negative": int(negative.sum())})
    return finite & ~negative, Counter({reason: number for reason, number in counted.items() if number})


def no_dispatches(path: Path) -> ProfileReadError:
    """The error for a file without a single dispatch."""
    return ProfileReadError(
        path,
        "no dispatch of any kernel",
        "the program launched no kernel, ended early, or a filter (-k, -d) matched nothing",
        "run it without filters, and read log.txt in the same folder",
    )


def duplicates(frame: pd.DataFrame, by: Sequence[str]) -> int:
    """How many rows repeat an earlier one in these columns."""
    return int(frame.duplicated(list(by)).sum())
