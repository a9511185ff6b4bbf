"""Undamaged dispatches and counters. The times of the dispatches come from a single program run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.readers.rocprof_compute.counter_csv import Measured
from tidyprof.tables.codes import ABSENT, NO_TEXT, Codes, categorical, nullable
from tidyprof.tables.damage import REPEATED_ID, sound_rows, without_damage

_IDENTITY = ["device", "dispatch_id", "name"]
_UNIT = "count"
"""Unit of raw hardware counters, which count events or cycles."""


def without_damaged_rows(path: Path, measured: Measured) -> Counter[str]:
    """Leave out dispatches with impossible times or numbers, their counters, and impossible counter
    values. Return the number of values that were left out for each reason.

    Raises ProfileReadError if too many dispatches or values are impossible.
    """
    records, values = measured.dispatches, measured.values
    faults = {"without a dispatch ID": records["dispatch_id"] == ABSENT}
    if measured.layout == "wide":
        numbers = pd.DataFrame({name: records[name] for name in ("device", "dispatch_id")})
        faults[REPEATED_ID] = numbers.duplicated().to_numpy()
    value = values["value"].to_numpy()
    sound, dropped = sound_rows(
        path,
        "counter values",
        {
            "not finite": ~np.isfinite(value),
            "negative": value < 0,
            "without a counter's name": (values["name"] == NO_TEXT).to_numpy(),
            "that a run counts twice": values.duplicated(["row", "replay_pass", "name"]).to_numpy(),
        },
    )
    before = len(records)
    records["row"] = np.arange(before)
    without_damage(path, records, faults)
    if len(records) < before or dropped:
        new_row = np.full(before, -1, np.int64)
        new_row[records["row"]] = np.arange(len(records))
        values = values.assign(row=new_row[values["row"].to_numpy()])
        measured.values = values[sound & (values["row"] >= 0)].reset_index(drop=True)
    del records.columns["row"]
    return Counter({f"counter values {reason}": number for reason, number in dropped.items()})


def counters_and_one_run(
    path: Path, measured: Measured, texts: Codes
) -> tuple[pd.DataFrame, list[str]]:
    """Return the counter table, sorted by time, and warnings. Keep one row per dispatch, and add
    `replays`, `shortest_ns` and `longest_ns`.

    If the program ran once per group of counters, each run has different times. The dispatches get
    their times from the run with the median total duration. The resulting timeline therefore shows
    a run that really happened.
    """
    records = measured.dispatches
    runs = pd.DataFrame({name: records[name] for name in (*_IDENTITY, "start_ns", "duration_ns")})
    runs["key"] = runs.groupby(_IDENTITY).ngroup()
    runs["replay_pass"] = runs.sort_values("start_ns", kind="stable").groupby("key").cumcount()
    by_key = runs.groupby("key")["duration_ns"]
    for name, function in (("replays", "size"), ("shortest_ns", "min"), ("longest_ns", "max")):
        records[name] = by_key.transform(function).to_numpy(np.int64, copy=True)
    is_uneven = len(np.unique(records["replays"])) > 1
    totals = runs.groupby("replay_pass")["duration_ns"].sum().sort_values(kind="stable")
    # Runs that differ can't be numbered by counting, so each dispatch shows its first run.
    chosen = 0 if is_uneven or not len(totals) else totals.index[(len(totals) - 1) // 2]
    is_shown = (runs["replay_pass"] == chosen).to_numpy()
    records.keep(is_shown)
    warnings = [f"{path.name}: the program runs didn't all launch the same kernels."] * is_uneven
    shared = int(runs[is_shown].duplicated(["device", "dispatch_id"]).sum())
    if shared:
        warnings.append(
            f"{path.name}: {shared} dispatch numbers refer to different kernels in different"
            " program runs. Their counters are incomplete. Likely cause: the work varies between"
            " runs, for example because of autotuning or randomness."
        )
    counters = _counter_table(runs, measured.values, texts)
    dispatch = ["device", "dispatch_id", "kernel"]
    found = counters.groupby(dispatch, observed=True, dropna=False)["name"].nunique()
    if not len(found):
        warnings.append(
            f"{path.name}: the file has no counter values. Likely cause: only times were selected,"
            " or this ROCm version's profiler doesn't support the counters (see log.txt)."
        )
    elif found.min() < found.max():
        warnings.append(
            f"{path.name}: the dispatches have between {found.min()} and {found.max()} counters."
            " Likely cause: --iteration-multiplexing distributed the counters over several"
            " launches, or a run ended early."
        )
    return counters, warnings


def _counter_table(runs: pd.DataFrame, values: pd.DataFrame, texts: Codes) -> pd.DataFrame:
    row = values["row"].to_numpy()
    of_run = {name: runs[name].to_numpy()[row] for name in (*_IDENTITY, "start_ns", "replay_pass")}
    replay_pass = of_run["replay_pass"] + values["replay_pass"].to_numpy()
    labels = list(texts)
    frame = pd.DataFrame(
        {
            "time_ns": of_run["start_ns"],
            "device": nullable(of_run["device"], "Int32"),
            "name": categorical(values["name"].to_numpy(), labels),
            "value": values["value"].to_numpy(),
            "unit": pd.Categorical.from_codes(np.zeros(len(row), np.int8), [_UNIT]),
            "dispatch_id": nullable(of_run["dispatch_id"], "Int64"),
            "kernel": categorical(of_run["name"], labels),
            "replay_pass": nullable(replay_pass, "Int32"),
        },
        copy=False,
    )
    # The rows are usually in order, and a check is faster than sorting.
    is_ordered = frame["time_ns"].is_monotonic_increasing
    return frame if is_ordered else frame.sort_values("time_ns", kind="stable", ignore_index=True)
