"""Reader for system monitor logs with GPU power, temperature, utilization, clocks and memory."""

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
    """Read a system monitor's log, or a folder with the logs of one run.

    path          -- one of these logs:
                     - CSV or JSON from `amd-smi monitor` or `amd-smi metric`, with one sample or
                       in watch mode
                     - CSV or JSON from `rocm-smi`
                     - CSV from `omnistat-query --export`
                     - CSV from a script, with a time, a device and a column per quantity
    origin        -- where the profile comes from; unknown if None.
    time_zone     -- zone of dates that don't include one, such as `Europe/Berlin`; UTC if None.
    maximum_bytes -- limit for the size of an unpacked file.

    `counters` has one row per value:
      - time_ns: nanoseconds since 1970
      - device: the tool's number, which can differ from HIP's number
      - name, unit: name and unit in QUANTITIES, with GPU memory in bytes. Other quantities keep the
        tool's name.
      - partition: Int32, the compute partition (XCP), if the tool writes it
      - host: the machine, if the file contains it. If device is <NA>, the row describes the machine
        itself.

    `events` is empty. There is no row for cells such as N/A, or 65535, which the driver writes for
    an unknown value.

    `meta` has the common entries and these:
      - rows, empty_rows: number of rows, and of rows without any value
      - missing: quantity -> number of cells without a value
      - samples: number of distinct times
      - interval_s: median time between samples in seconds
      - devices, quantities, time_unit, warnings
      - time_zone: only if assumed
      - times: `absent` for a snapshot, whose time_ns is 0
      - text_columns: columns without any number

    Raises ProfileReadError if a file can't be read.
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
    """Return the logs in a folder, and other files with log names. Raise ProfileReadError for
    copies.
    """
    named = candidates(folder)
    logs = [file for file in named if is_log(head_or_nothing(file, HEAD_BYTES))]
    if not logs:
        raise ProfileReadError(
            folder,
            f"none of the {len(named)} CSV or JSON files in the folder is a system monitor log",
            "this is the wrong folder",
            "pass the folder with the logs, or one log",
        )
    seen: dict[str, Path] = {}
    for file in logs:
        digest = hashlib.blake2b(file.read_bytes()).hexdigest()
        if digest in seen:
            raise ProfileReadError(
                folder,
                f"{seen[digest].name!r} and {file.name!r} are the same log",
                "a log was copied",
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
        f"The edge is warmer than the junction in {higher} of {len(both)} samples, which is"
        " impossible, so the two labels are unreliable. Likely cause: the logger swapped the"
        " columns."
    ]
