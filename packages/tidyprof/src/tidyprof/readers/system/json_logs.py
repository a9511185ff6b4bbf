"""JSON logs from rocm-smi, amd-smi monitor and amd-smi metric. They contain one document in total
or one document per sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import tzinfo
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS
from tidyprof.readers.system.names import Meaning, busy_or_counter, meaning
from tidyprof.readers.system.readings import (
    MAX_VALUE,
    Readings,
    Times,
    available,
    cell_value,
    device_number,
)

_DEPTH = 8
_NO_DEVICE = "from unnumbered GPUs or partitions"
_ENTRY_KEYS = ("gpu", "xcp", "timestamp", "process_list", "process_info")


class Reading(NamedTuple):
    """One sensor value.

    - time: time as a string, or None
    - value: number, or None if it isn't available
    """

    time: str | None
    device: int | None
    partition: int | None
    key: str
    value: float | None
    unit: str


def read_system_json(path: Path, text: bytes, zone: tzinfo | None) -> Readings:
    """Return the readings from the JSON output of an SMI tool."""
    readings = Readings(path)
    found = [
        reading for document in _documents(path, text) for reading in _entries(readings, document)
    ]
    if not found and not readings.dropped:
        raise ProfileReadError(
            path,
            "the JSON has no GPU readings",
            "another tool wrote the file, or the command has no sensor values (list, static or"
            " process)",
            "pass the output of amd-smi monitor --json, amd-smi metric --json or rocm-smi --json",
        )
    timed = {reading.time for reading in found}
    if None in timed and len(timed) > 1:
        raise ProfileReadError(
            path,
            "some samples have a time, but other samples don't",
            "the file contains logs from several commands",
            "write each log to a separate file",
        )
    times = None if None in timed else Times(sorted(timed), path, zone)
    readings.facts["times" if times is None else "time_unit"] = (
        "absent" if times is None else times.unit
    )
    _collect(readings, found, times)
    if times is None:
        readings.refuse_several_snapshots()
    return readings


def _documents(path: Path, text: bytes) -> Iterator[Any]:
    """Yield the JSON documents in the text. Watch mode writes one document per sample. It also
    writes a few lines of other text before the first document.
    """
    decoded = text.decode("utf-8", "replace").removeprefix("\ufeff")
    starts = [start for start in (decoded.find("["), decoded.find("{")) if start >= 0]
    position = min(starts, default=len(decoded))
    decoder = json.JSONDecoder()
    while position < len(decoded):
        try:
            document, position = decoder.raw_decode(decoded, position)
        except (ValueError, RecursionError) as error:
            raise ProfileReadError(
                path,
                f"the JSON is incomplete ({' '.join(str(error).split())[:80]})",
                "the tool was stopped while it was writing, or the file is cut off",
                "remove the incomplete sample at the end, or log with --csv",
            ) from None
        yield _whole_characters(document)
        while position < len(decoded) and decoded[position] in " \t\r\n,":
            position += 1


def _whole_characters(node: Any) -> Any:
    """Replace lone surrogates in the document. These are half characters, such as \\ud800, which
    JSON can contain but tables can't.
    """
    if isinstance(node, dict):
        return {_whole_characters(key): _whole_characters(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_whole_characters(entry) for entry in node]
    return node.encode("utf-8", "replace").decode() if isinstance(node, str) else node


def _entries(readings: Readings, document: Any) -> Iterator[Reading]:
    # A list of entries is from amd-smi. Since ROCm 7.14, an object contains this list. An object
    # with a member per card is from rocm-smi.
    if isinstance(document, dict) and isinstance(_small(document).get("gpu_data"), list):
        document = _small(document)["gpu_data"]
    if isinstance(document, list):
        for entry in (_small(entry) for entry in document if isinstance(entry, dict)):
            if "gpu" in entry:
                readings.rows += 1
                yield from _amd_smi(readings, entry)
    elif isinstance(document, dict):
        for name, values in document.items():
            if not name.lower().startswith(("card", "gpu")) or not isinstance(values, dict):
                continue
            readings.rows += 1
            number = device_number(name)
            for key, cell in values.items():
                stated = cell_value(cell if isinstance(cell, str) else json.dumps(cell))
                if stated is not None and number is None:
                    readings.dropped[_NO_DEVICE] += 1
                elif stated is not None:
                    value, unit = stated
                    yield Reading(None, number, None, key, None if np.isnan(value) else value, unit)


def _small(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry with lowercase keys. amd-smi has written uppercase keys since ROCm 7.14."""
    return {key.lower(): value for key, value in entry.items()}


def _amd_smi(readings: Readings, entry: dict[str, Any]) -> Iterator[Reading]:
    time, device, partition = entry.get("timestamp"), _number(entry["gpu"]), entry.get("xcp")
    is_whole = str(partition) in ABSENT_TEXTS
    partition = None if is_whole else _number(partition)
    time = str(time) if isinstance(time, int | float | str) and not isinstance(time, bool) else None
    for key, value, unit in _leaves(
        {k: v for k, v in entry.items() if k not in _ENTRY_KEYS}, "", _DEPTH
    ):
        if device is None or (partition is None and not is_whole):
            # Without a number, the reading would look like a reading of the machine or another GPU.
            readings.dropped[_NO_DEVICE] += value is not None
        else:
            yield Reading(time, device, partition, key, value, unit)


def _number(stated: Any) -> int | None:
    """Return the number of a GPU or partition. Return None for other values, such as fractions,
    booleans and addresses.
    """
    is_number = isinstance(stated, int | str) and not isinstance(stated, bool)
    return device_number(str(stated)) if is_number else None


def _leaves(node: Any, key: str, depth: int) -> Iterator[tuple[str, float | None, str]]:
    """Yield the path, value and unit of each number below a node. An example of a path is
    `usage gfx_activity`.
    """
    if isinstance(node, dict):
        if "value" in node and not isinstance(node["value"], dict | list):
            yield from _leaf(node["value"], key, str(node.get("unit") or ""))
        elif depth:
            for name, below in node.items():
                yield from _leaves(below, f"{key} {name}".strip(), depth - 1)
    elif isinstance(node, list):
        for number, below in enumerate(node if depth else ()):
            yield from _leaves(below, f"{key} {number}", depth - 1)
    else:
        yield from _leaf(node, key, "")


def _leaf(value: Any, key: str, unit: str) -> Iterator[tuple[str, float | None, str]]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = available(float(value)) if abs(value) < MAX_VALUE else float("inf")
        yield key, None if np.isnan(number) else number, unit
    elif isinstance(value, str):
        cell = cell_value(value)
        if cell is not None:
            yield key, None if np.isnan(cell[0]) else cell[0], cell[1] or unit


def _meaning_of(key: str) -> Meaning | None:
    """Return the meaning of a path. If only the last part of the path is known, as in
    `mem_usage used_vram`, return the meaning of that part.
    """
    whole = meaning(key)
    if whole is None or whole.known or key.count(" ") != 1:
        return whole
    last = meaning(key.rpartition(" ")[2])
    return last if last is not None and last.known and last.name != "memory_busy" else whole


def _collect(readings: Readings, found: list[Reading], times: Times | None) -> None:
    table = pd.DataFrame(found, columns=list(Reading._fields))
    table["time_ns"] = [0 if times is None else times[text] for text in table["time"]]
    for (key, unit), rows in table.groupby(["key", "unit"], sort=False):
        what = _meaning_of(key)
        if what is None:
            continue
        in_unit = what.in_unit(unit)
        if in_unit is None:
            readings.dropped[f"{what.name} in {unit[:12]!r}"] += int(rows["value"].notna().sum())
            continue
        value = rows["value"].to_numpy(float) * in_unit.factor
        # The whole path or its last part identifies a running counter, like the meaning above.
        quantity = busy_or_counter(key, in_unit, value)
        quantity = busy_or_counter(key.rpartition(" ")[2], quantity, value)
        device, partition = (rows[name].astype("Int32").array for name in ("device", "partition"))
        readings.add(quantity, value, rows["time_ns"].to_numpy(np.int64), device, partition)
