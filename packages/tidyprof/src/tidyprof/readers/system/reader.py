"""Reader for system monitor logs with GPU power, temperature, utilization, clocks and memory."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.errors import FOREIGN, ProfileReadError
from tidyprof.io.byte_stream import (
    HEAD_BYTES,
    MAXIMUM_HELD_BYTES,
    head_or_nothing,
    in_lines,
    read_bytes,
)
from tidyprof.io.guard import guarded
from tidyprof.readers.system.columns import add_rows
from tidyprof.readers.system.names import QUANTITIES
from tidyprof.readers.system.readings import Readings
from tidyprof.readers.system.readings import time_zone as zone_of
from tidyprof.readers.system.recognition import candidates, csv_header, is_json, is_log
from tidyprof.readers.system.tables import csv_tables, json_table
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile
from tidyprof.tables.damage import damage_warnings

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

    - path: path to one of the logs below, or to a folder with such logs.
    - origin: origin of the profile, or None if it is unknown.
    - time_zone: time zone of dates that don't include one, such as `Europe/Berlin`. The default is
      UTC.
    - maximum_bytes: maximum size of an uncompressed file.

    These logs are supported:

    - CSV or JSON from `amd-smi monitor` or `amd-smi metric`, either a single sample or in watch
      mode
    - CSV from `rocm-smi`
    - CSV from `omnistat-query --export`
    - CSV from a script, with columns for the time, the device and each quantity

    `counters` has one row per value:

    - time_ns: time in nanoseconds since 1970
    - device: the tool's device number, which can differ from HIP's device number
    - name: name of the quantity from QUANTITIES, or the tool's name for other quantities
    - unit: unit of the quantity, which is always bytes for GPU memory
    - partition: number of the compute partition (XCP) as Int32, if the tool writes it
    - host: name of the machine, if the file contains it

    If `device` is `<NA>`, the row describes the machine itself. Cells without a value, such as N/A,
    have no row. The value 65535 doesn't have a row either, because the driver writes it for an
    unknown value. `events` is empty.

    `meta` contains the common entries and these:

    - rows: number of rows in the file
    - empty_rows: number of rows without any value
    - missing: number of cells without a value, for each quantity
    - samples: number of different times
    - interval_s: median time between samples in seconds
    - devices: device numbers in the file
    - quantities: names of the quantities in the file
    - time_zone: assumed time zone, if the times don't include one
    - times: `absent` if the file is a snapshot, whose times are all 0
    - warnings: warnings about the file

    Raises ProfileReadError if a file can't be read.
    """
    path = Path(path)
    zone = zone_of(time_zone, path)
    files, ignored = _logs_of_folder(path) if path.is_dir() else ([path], [])
    readings = Readings(path)
    for file in files:
        readings.path = file
        _read_file(readings, zone, maximum_bytes)
    readings.path = path
    counters = readings.finished()
    meta = {"tool": "system monitor", "files": list(map(str, files))} | _meta(readings, counters)
    if ignored:
        meta["ignored_files"] = {str(file): FOREIGN for file in ignored}
    if origin is not None:
        meta["origin"] = origin
    events = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in EVENT_DTYPES.items()})
    return Profile(events, counters, meta)


def _logs_of_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the logs in a folder, and other files whose names look like log names."""
    named = candidates(folder)
    logs = [file for file in named if is_log(head_or_nothing(file, HEAD_BYTES))]
    if not logs:
        raise ProfileReadError(
            folder,
            f"none of the {len(named)} CSV or JSON files in the folder is a system monitor log",
            "this is the wrong folder",
            "pass the folder that contains the logs, or a single log",
        )
    return logs, [file for file in named if file not in logs]


def _read_file(readings: Readings, zone: tzinfo | None, maximum_bytes: int) -> None:
    path = readings.path
    head = head_or_nothing(path, HEAD_BYTES)
    if is_json(head):
        add_rows(readings, json_table(readings, read_bytes(path, maximum_bytes)), zone)
        return
    header = csv_header(head)
    text = read_bytes(path, maximum_bytes, partial(in_lines, columns=len(header) or 2))
    # omnistat converts Unix times to dates without a zone (omnistat/query.py), so they are UTC.
    zone = zone or (UTC if header[:1] == ["metric"] else None)
    for table in csv_tables(readings, text):
        add_rows(readings, table, zone)


def _meta(readings: Readings, counters: pd.DataFrame) -> dict[str, Any]:
    meta: dict[str, Any] = readings.facts | {
        "rows": readings.rows,
        "empty_rows": readings.empty_rows,
        "missing": dict(sorted((+readings.missing).items())),
        "samples": counters["time_ns"].nunique(),
        "devices": sorted(counters["device"].dropna().unique().tolist()),
        "quantities": sorted(counters["name"].cat.categories),
        "repairs": dict(+readings.dropped),
        "warnings": readings.warnings,
    }
    keys = ["device", "host", "name"]
    between = counters.groupby(keys, dropna=False, observed=True)["time_ns"].diff().median()
    if pd.notna(between):
        meta["interval_s"] = float(between) / 1e9
    meta["warnings"] += _suspicions(counters)
    meta["warnings"] += damage_warnings(meta["repairs"], meta["rows"])
    return meta


def _suspicions(counters: pd.DataFrame) -> list[str]:
    keys = ["time_ns", "device", "partition"]
    edge, junction = (
        counters.loc[counters["name"] == f"temperature_{label}", [*keys, "value"]]
        for label in ("edge", "junction")
    )
    both = edge.merge(junction, on=keys, suffixes=("_edge", "_junction"))
    higher = int((both["value_edge"] > both["value_junction"]).sum())
    if 2 * higher <= len(both):
        return []
    return [
        f"The edge is warmer than the junction in {higher} of {len(both)} samples. This is"
        " impossible, so the two labels are unreliable. Likely cause: the logger swapped the"
        " columns."
    ]
