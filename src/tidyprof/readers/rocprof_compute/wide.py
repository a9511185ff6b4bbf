"""The wide layout of pmc_perf.csv: one row per dispatch and one column per counter (up to ROCm 7.2)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.io.errors import ProfileReadError
from tidyprof.io.text_cells import TextColumn
from tidyprof.readers.rocprof_compute.counter_csv import CounterCsv, WholeColumn
from tidyprof.readers.rocprof_compute.dispatches import (
    DISPATCH_COLUMNS,
    NAME,
    Measured,
    damaged_times,
    dispatch_columns,
    duplicates,
    identity,
    launch_numbers,
    no_dispatches,
    refuse_lost,
    times,
    times_are_rounded,
    usable_values,
)

ACCUMULATED_LEVELS = (
    "SQ_LEVEL_WAVES",
    "SQ_IFETCH_LEVEL",
    "SQ_INST_LEVEL_LDS",
    "SQ_INST_LEVEL_SMEM",
    "SQ_INST_LEVEL_VMEM",
)
"""Counters whose sum over cycles SQ_ACCUM_PREV_HIRES holds in the same run of the program. From rocprof-compute 3.2 on
the sum has a name of its own, `<level>_ACCUM`, which is used for older files too."""

_ACCUMULATED = "SQ_ACCUM_PREV_HIRES"
_COUNTER = re.compile(r"[A-Z][A-Z0-9]{1,5}_\w+(\[\d+\])?", re.ASCII)
_REPEATED = re.compile(r"(wave_size|obj|correlation_id|kernel_id|xcc_index)(?:_(\d{1,4}))?", re.IGNORECASE | re.ASCII)
_OTHER_COLUMNS = frozenset(
    name.lower()
    for name in (
        *DISPATCH_COLUMNS,
        *("queue-id", "queue-index", "queue_id", "pid", "tid", "sig", "dispatchns", "completens", "index", "node"),
    )
)


@dataclass(frozen=True)
class CounterColumn:
    """A column of the file: the counter it holds and the run of the program (from 0) it was read in."""

    column: str
    counter: str
    replay: int


def read_wide(text: CounterCsv, *, first_replay: int = 0, without: Container[str] = ()) -> Measured:
    """Dispatches and counters of a file in the wide layout.

    first_replay -- number of the file's first run. Counters in `without` are left out.
    Raises ProfileReadError if the file is no sound one.
    """
    found = counter_columns(text.names)
    wanted = [column for column in found if column.counter not in without]
    wholes = dispatch_columns(text)
    texts, numbers, wholes = text.columns([NAME], [column.column for column in wanted], wholes)
    dispatches = _dispatches(text, texts[NAME], wholes)
    values = [numbers[column.column] for column in wanted]
    counters, dropped = _counters(dispatches, wanted, values, first_replay)
    refuse_lost(text.path, "counter values", dropped, max(1, len(counters) + dropped.total()))
    measured = Measured(
        dispatches=dispatches,
        counters=counters,
        layout="wide",
        rows=len(dispatches),
        columns=len(text.names),
        replays=1 + max((column.replay for column in found), default=0),
        dropped=Counter({f"counter values {reason}": number for reason, number in dropped.items()}),
        warnings=list(text.warnings),
        ignored_columns=_ignored(text.names, {column.column for column in found}),
    )
    _drop_damaged_dispatches(text, measured)
    return measured


def counter_columns(names: list[str]) -> list[CounterColumn]:
    """The columns that hold counters, in order.

    The runs' columns stand one run after the other, each beginning with its wave size, kernel id or the like, which
    carry the run's number from the second run on (`wave_size_1`). A counter that an earlier run has too carries it as
    well (`GRBM_COUNT_10`), and is the same counter.
    """
    columns: list[CounterColumn] = []
    seen: set[str] = set()
    run = 0
    for name in names:
        repeated = _REPEATED.fullmatch(name)
        if repeated:
            run = int(repeated[2] or 0)
        elif _COUNTER.fullmatch(name) and name.lower() not in _OTHER_COLUMNS:
            plain = name.removesuffix(f"_{run}")
            counter = plain if plain in seen else name
            seen.add(counter)
            columns.append(CounterColumn(name, counter, run))
    return [_with_level(column, columns) for column in columns]


def _with_level(column: CounterColumn, columns: list[CounterColumn]) -> CounterColumn:
    """The column with the sum over cycles named after the level that was summed, if that is clear."""
    if column.counter != _ACCUMULATED:
        return column
    levels = [other.counter for other in columns if other.replay == column.replay]
    levels = [level for level in levels if level in ACCUMULATED_LEVELS]
    return CounterColumn(column.column, f"{levels[0]}_ACCUM", column.replay) if len(levels) == 1 else column


def _ignored(names: list[str], counters: set[str]) -> list[str]:
    """Columns that hold neither a counter nor anything about the dispatch."""
    others = [name for name in names if name not in counters and name.lower() not in _OTHER_COLUMNS]
    return [name for name in others if not _REPEATED.fullmatch(name)]


def _dispatches(text: CounterCsv, name: TextColumn, wholes: Mapping[str, WholeColumn]) -> pd.DataFrame:
    frame = identity(text.path, name, wholes)
    if not len(frame):
        raise no_dispatches(text.path)
    repeated = duplicates(frame, ["device", "dispatch_id"])
    if repeated:
        raise ProfileReadError(
            text.path,
            f"{repeated} dispatch numbers more than once",
            "files of several runs or processes were put together",
            "profile one process, and keep one run in a folder",
        )
    frame = frame.drop(columns="kernel").assign(name=name.texts(), **launch_numbers(wholes, np.arange(len(frame))))
    found = times(wholes)
    if found is not None:
        start, duration, known = found
        frame["start_ns"] = pd.arrays.IntegerArray(start, ~known)
        frame["duration_ns"] = pd.arrays.IntegerArray(duration, ~known)
        frame.attrs["rounded_times"] = times_are_rounded(wholes)
    return frame


def _counters(
    dispatches: pd.DataFrame, columns: list[CounterColumn], values: list[np.ndarray], first_replay: int
) -> tuple[pd.DataFrame, Counter[str]]:
    """One row per value; empty cells are values that were not measured."""
    rows, width = len(dispatches), len(columns)
    value = np.stack(values, axis=1).ravel() if width else np.array([])
    measured = ~np.isnan(value)
    usable, dropped = usable_values(value[measured])
    kept = np.flatnonzero(measured)[usable]
    names = pd.Index(sorted({column.counter for column in columns}), dtype="str")
    codes = np.array([names.get_loc(column.counter) for column in columns], np.int32)
    replays = np.array([first_replay + column.replay for column in columns], np.int32)
    place = kept % max(1, width)
    return pd.DataFrame(
        {
            "dispatch_row": np.repeat(np.arange(rows), width)[kept],
            "name": pd.Categorical.from_codes(codes[place] if width else np.array([], np.int32), names),
            "value": value[kept],
            "replay": replays[place] if width else np.array([], np.int32),
        }
    ), dropped


def _drop_damaged_dispatches(text: CounterCsv, measured: Measured) -> None:
    """Leave out dispatches with impossible times, and their counters; fill in what replays the times stand for."""
    frame = measured.dispatches
    if "start_ns" not in frame:
        return
    known = frame["start_ns"].notna().to_numpy()
    start, duration = (frame[name].fillna(0).to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    damaged, reasons = damaged_times(start, duration, known)
    refuse_lost(text.path, "dispatches", reasons, len(frame))
    measured.dropped.update({f"dispatches {reason}": number for reason, number in reasons.items()})
    place = np.cumsum(~damaged) - 1
    kept = ~damaged[measured.counters["dispatch_row"].to_numpy()]
    counters = measured.counters[kept].reset_index(drop=True)
    measured.counters = counters.assign(dispatch_row=place[counters["dispatch_row"].to_numpy()])
    attrs = frame.attrs
    measured.dispatches = frame[~damaged].reset_index(drop=True).assign(replays=1)
    measured.dispatches["shortest_ns"] = measured.dispatches["longest_ns"] = measured.dispatches["duration_ns"]
    measured.dispatches.attrs = attrs
    measured.counters["time_ns"] = start[~damaged][measured.counters["dispatch_row"].to_numpy()]
