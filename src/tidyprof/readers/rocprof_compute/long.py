"""The long layout of pmc_perf.csv: one row per dispatch and counter (rocpd back end, ROCm 7 and later)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from tidyprof.io.errors import ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS, TextColumn
from tidyprof.readers.rocprof_compute.counter_csv import CounterCsv
from tidyprof.readers.rocprof_compute.dispatches import (
    NAME,
    Measured,
    damaged_times,
    dispatch_columns,
    identity,
    launch_numbers,
    no_dispatches,
    refuse_lost,
    times,
    usable_values,
)
from tidyprof.tables.codes import categorical

NAME_COLUMN, VALUE_COLUMN = "Counter_Name", "Counter_Value"


def is_long(text: CounterCsv) -> bool:
    """Whether the file has one row per counter value."""
    return NAME_COLUMN in text.names and VALUE_COLUMN in text.names


def read_long(text: CounterCsv) -> Measured:
    """Dispatches and counters of a file in the long layout. Raises ProfileReadError if it is no sound one.

    The program was run once per group of counters, and each run has its own times. The dispatches get the times of
    one run, that with the median sum of durations, so that they form a timeline that took place.
    """
    texts, numbers, wholes = text.columns([NAME, NAME_COLUMN], [VALUE_COLUMN], dispatch_columns(text))
    rows = identity(text.path, texts[NAME], wholes)
    if not len(rows):
        raise no_dispatches(text.path)
    found = times(wholes)
    kept, dropped = _usable_rows(text, texts, numbers[VALUE_COLUMN], found)
    rows = rows[kept].reset_index(drop=True)
    key, first = _dispatch_keys(rows)
    dispatches = rows.iloc[first][["dispatch_id", "device"]].reset_index(drop=True)
    places = np.flatnonzero(kept)[first]
    dispatches["name"] = [texts[NAME].values[code] for code in texts[NAME].codes[places].tolist()]
    dispatches = dispatches.assign(**launch_numbers(wholes, places))
    warnings = [*text.warnings, *_inconsistent(text, dispatches)]
    counters = _counters(key, texts[NAME_COLUMN], kept, numbers[VALUE_COLUMN][kept])
    replays = 1
    if found is not None:
        start, duration = found[0][kept], found[1][kept]
        runs, of_row, uneven = _runs(key, start, duration)
        dispatches = dispatches.assign(**_times_of_one_run(runs, uneven))
        counters = counters.assign(replay=runs["replay"].to_numpy(np.int32)[of_row], time_ns=start)
        replays = int(runs["replay"].max()) + 1
        warnings += [f"{text.path.name}: the runs of the program did not all launch the same kernels."] * uneven
    _refuse_repeated(text, counters)
    return Measured(
        dispatches, counters, "long", len(kept), len(text.names), replays, dropped, warnings, ignored_columns=[]
    )  # fmt: skip


def _usable_rows(text: CounterCsv, texts: dict, values: np.ndarray, found: tuple | None) -> tuple[np.ndarray, Counter]:
    """Which rows can be used, and reason -> rows that cannot."""
    usable, reasons = usable_values(values)
    names = texts[NAME_COLUMN]
    unnamed = np.isin(names.codes, [place for place, name in enumerate(names.values) if name in ABSENT_TEXTS])
    if unnamed.any():
        reasons["without a counter's name"] = int(unnamed.sum())
    refuse_lost(text.path, "counter values", reasons, len(values))
    dropped = Counter({f"counter values {reason}": number for reason, number in reasons.items()})
    kept = usable & ~unnamed
    if found is not None:
        damaged, reasons = damaged_times(*found)
        refuse_lost(text.path, "rows of dispatches", reasons, len(values))
        dropped.update({f"rows of dispatches {reason}": number for reason, number in reasons.items()})
        kept &= ~damaged
    return kept, dropped


def _dispatch_keys(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """A number per dispatch for each row (device, dispatch id and kernel make one), and the first row of each."""
    device = rows["device"].to_numpy(np.int64, na_value=np.iinfo(np.int64).min)
    stretch, begin = _stretches(rows["dispatch_id"].to_numpy(), rows["kernel"].to_numpy(), device)
    key = rows.iloc[begin].groupby(["device", "dispatch_id", "kernel"], dropna=False, sort=True).ngroup().to_numpy()
    return key[stretch], begin[np.unique(key, return_index=True)[1]]


def _stretches(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row the number of the stretch of rows that are alike in all columns, and where each of them begins.

    The counters of a dispatch stand below each other, so that there are far fewer stretches than rows.
    """
    begins = np.ones(len(columns[0]), bool)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.cumsum(begins) - 1, np.flatnonzero(begins)


def _inconsistent(text: CounterCsv, dispatches: pd.DataFrame) -> list[str]:
    shared = int(dispatches.duplicated(["device", "dispatch_id"]).sum())
    if not shared:
        return []
    return [
        f"{text.path.name}: {shared} dispatch numbers stand for different kernels in different runs of the program. "
        "Likely cause: its work varies between runs (autotuning, randomness). Their counters are incomplete."
    ]


def _counters(key: np.ndarray, names: TextColumn, kept: np.ndarray, values: np.ndarray) -> pd.DataFrame:
    name = categorical(names.codes[kept], names.values)
    return pd.DataFrame({"dispatch_row": key, "name": name, "value": values, "replay": np.int32(0)})


def _runs(key: np.ndarray, start: np.ndarray, duration: np.ndarray) -> tuple[pd.DataFrame, np.ndarray, bool]:
    """One row per dispatch and run (key, start, duration, replay from 0 in order of time); its place for each row;
    whether dispatches differ in their number of runs."""
    stretch, begin = _stretches(key, start, duration)
    frame = pd.DataFrame({"key": key[begin], "start": start[begin], "duration": duration[begin]})
    runs = frame.drop_duplicates().sort_values(["key", "start"], kind="stable", ignore_index=True)
    runs["replay"] = runs.groupby("key").cumcount()
    places = runs.assign(place=np.arange(len(runs)))
    of_row = frame.merge(places, how="left", on=["key", "start", "duration"])["place"].to_numpy()[stretch]
    return runs, of_row, runs.groupby("key").size().nunique() > 1


def _times_of_one_run(runs: pd.DataFrame, uneven: bool) -> dict[str, pd.array]:
    """Times of each dispatch in one run, and over all runs: how many, the shortest and the longest duration."""
    totals = runs.groupby("replay")["duration"].sum().sort_values(kind="stable")
    # Runs that differ cannot be told apart by counting, so each dispatch then shows its own first one.
    chosen = 0 if uneven else totals.index[(len(totals) - 1) // 2]
    shown = runs[runs["replay"] == chosen].sort_values("key")
    durations = runs.groupby("key")["duration"]
    return {
        "start_ns": shown["start"].astype("Int64").array,
        "duration_ns": shown["duration"].astype("Int64").array,
        "replays": durations.size().to_numpy(),
        "shortest_ns": durations.min().astype("Int64").array,
        "longest_ns": durations.max().astype("Int64").array,
    }


def _refuse_repeated(text: CounterCsv, counters: pd.DataFrame) -> None:
    names, replays = counters["name"].cat, counters["replay"].to_numpy(np.int64)
    # One number for the three, which no file is large enough to make overflow.
    places = counters["dispatch_row"].to_numpy(np.int64) * (replays.max(initial=0) + 1) + replays
    places = np.sort(places * len(names.categories) + names.codes.to_numpy())
    repeated = int(np.count_nonzero(places[1:] == places[:-1]))
    if repeated:
        raise ProfileReadError(
            text.path,
            f"{repeated} counters of a dispatch twice in one run",
            "files of several runs or processes were put together",
            "profile one process, and keep one run in a folder",
        )
