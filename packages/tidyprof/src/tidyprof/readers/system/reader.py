"""Reader for logs of system monitors: power, temperature, utilization, clocks and memory of GPUs
over time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.errors import FOREIGN, ProfileReadError
from tidyprof.io.byte_stream import (
    HEAD_BYTES,
    MAXIMUM_HELD_BYTES,
    head_or_nothing,
    in_lines,
    in_texts,
    read_bytes,
)
from tidyprof.io.guard import guarded
from tidyprof.readers.system.csv_logs import csv_header, read_system_csv
from tidyprof.readers.system.json_logs import read_system_json
from tidyprof.readers.system.names import QUANTITIES
from tidyprof.readers.system.readings import Readings, combined
from tidyprof.readers.system.readings import time_zone as zone_of
from tidyprof.readers.system.recognition import candidates, is_json, is_log
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

__all__ = ["QUANTITIES", "read_system"]


@guarded
def read_system(
    path: str | PathLike[str],
    *,
    origin: Origin | None = None,
    time_zone: str | None = None,
    maximum_bytes: int = MAXIMUM_HELD_BYTES,
) -> Profile:
    """Read the log of a system monitor, or a folder with logs of one run.

    path          -- CSV or JSON of `amd-smi monitor` or `amd-smi metric` (one sample or watch
                     mode), of `rocm-smi`, CSV of `omnistat-query --export`, or CSV of a script with
                     a time, a device and one column per quantity.
    origin        -- where the recording comes from; not stated if None.
    time_zone     -- of dates that state none, e.g. `Europe/Berlin`; they are UTC if None.
    maximum_bytes -- refuse files that unpack to more than this.

    `counters` has one row per value: `time_ns` since 1970, `device` as the tool numbers it (SMI's
    numbers need not be HIP's), `name` and `unit` as in QUANTITIES whatever the tool calls them
    (amounts of GPU memory in bytes; other quantities keep the tool's name), and
      partition  Int32, the compute partition (XCP) where the tool has one
      host       the machine, where the file states it; where device is <NA>, the row is about the
                 machine itself
    `events` is empty. Cells such as N/A, and 65535 (the driver's way of saying so), give no row.

    `meta` has, besides the common entries: `rows`, `empty_rows` (without any value), `missing`
    (quantity -> cells without a value), `samples` (distinct times), `interval_s` (median),
    `devices`, `quantities`, `time_unit`, `time_zone` where assumed, `times` (`absent` for a
    snapshot: time_ns is then 0), `text_columns`, `warnings`.

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    zone = zone_of(time_zone, path)
    files, ignored = _logs_of_folder(path) if path.is_dir() else ([path], [])
    read = [_read_file(file, zone, maximum_bytes) for file in files]
    tables = [readings.finished() for readings in read]
    counters = tables[0] if len(tables) == 1 else combined(tables)
    meta = _meta(read, counters)
    if ignored:
        meta["ignored_files"] = {str(file): FOREIGN for file in ignored}
    if origin is not None:
        meta["origin"] = origin
    events = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in EVENT_DTYPES.items()})
    return Profile(events, counters, meta)


def _logs_of_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Logs in a folder, and its other files of these types. The same log twice is an error."""
    named = candidates(folder)
    logs = [file for file in named if is_log(head_or_nothing(file, HEAD_BYTES))]
    if not logs:
        raise ProfileReadError(
            folder,
            f"{len(named)} CSV or JSON files in the folder, none of them a log of a system monitor",
            "the folder is another one",
            "pass the folder with the logs, or one log",
        )
    seen: dict[str, Path] = {}
    for file in logs:
        digest = hashlib.blake2b(file.read_bytes()).hexdigest()
        if digest in seen:
            raise ProfileReadError(
                folder,
                f"{seen[digest].name!r} and {file.name!r} are the same log",
                "a copy of a log",
                "keep each log once",
            )
        seen[digest] = file
    return logs, [file for file in named if file not in logs]


def _read_file(path: Path, zone: Any, maximum_bytes: int) -> Readings:
    head = head_or_nothing(path, HEAD_BYTES)
    if is_json(head):
        return read_system_json(path, read_bytes(path, maximum_bytes, in_texts), zone)
    lines = partial(in_lines, columns=len(csv_header(head) or "ab"))
    return read_system_csv(path, read_bytes(path, maximum_bytes, lines), zone)


def _meta(read: list[Readings], counters: pd.DataFrame) -> dict[str, Any]:
    """`Profile.meta` of all logs together."""
    times = np.unique(counters["time_ns"].to_numpy())
    meta: dict[str, Any] = {
        "tool": "system monitor",
        "files": [str(readings.path) for readings in read],
    }
    for readings in read:
        meta |= readings.facts
    meta |= {
        "rows": sum(readings.rows for readings in read),
        "empty_rows": sum(readings.empty_rows for readings in read),
        "missing": dict(sorted((+sum((readings.missing for readings in read), Counter())).items())),
        "samples": len(times),
        "devices": sorted(counters["device"].dropna().unique().tolist()),
        "quantities": sorted(counters["name"].cat.categories),
        "repairs": dict(sum((readings.dropped for readings in read), Counter())),
        "warnings": [warning for readings in read for warning in readings.warnings],
    }
    between = (
        counters.groupby(["device", "host", "name"], dropna=False, observed=True)["time_ns"]
        .diff()
        .dropna()
    )
    if len(between):
        meta["interval_s"] = float(between.median()) / 1e9
    texts = sorted(set().union(*(readings.text_columns for readings in read)))
    if texts:
        meta["text_columns"] = texts
    meta["warnings"] += _suspicions(counters)
    return meta


def _suspicions(counters: pd.DataFrame) -> list[str]:
    """Sentences on readings that are possible but not credible."""
    pair = counters[counters["name"].isin(["temperature_edge", "temperature_junction"])]
    wide = pair.pivot_table(
        index=["time_ns", "device"], columns="name", values="value", observed=True
    )
    if {"temperature_edge", "temperature_junction"} - set(wide.columns):
        return []
    both = wide.dropna()
    higher = int((both["temperature_edge"] > both["temperature_junction"]).sum())
    if not len(both) or higher <= len(both) / 2:
        return []
    return [
        f"The edge is warmer than the junction in {higher} of {len(both)} samples, which cannot be:"
        " the two labels are doubtful. Likely cause: the logger took the columns in another order."
    ]
