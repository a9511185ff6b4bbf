"""Logs of all formats as tables of strings, with one row per sample and device, and one categorical
column per key. A missing cell is an empty string.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.readers.system.names import ROLES, is_header
from tidyprof.readers.system.readings import MAX_VALUE, Readings, cell_value
from tidyprof.readers.system.recognition import cells

_UNREADABLE, _RARE = -1, 20
_NOT_READINGS = ("process_list", "process_info")


def csv_tables(readings: Readings, text: bytes) -> Iterator[pd.DataFrame]:
    """Yield the rows of a CSV log. For omnistat, yield one table per GPU."""
    lines = _lines(readings, text)
    start = next((number for number, line in enumerate(lines) if is_header(cells(line))), None)
    if start is None:
        raise ProfileReadError(
            readings.path,
            f"the file has no system monitor header (it starts with {lines[0][:40]!r})",
            "another tool wrote the file, or the header was cut off",
            "pass the log from amd-smi monitor --csv, rocm-smi --csv or omnistat-query --export",
        )
    header = cells(lines[start])
    if header[0].strip().lower() == "metric":
        yield from _of_omnistat(readings, lines[start:])
    else:
        yield _rows(readings, header, lines[start + 1 :])


def _of_omnistat(readings: Readings, lines: list[str]) -> Iterator[pd.DataFrame]:
    """Yield a table for each machine and GPU. omnistat writes several header rows, which start with
    the name of a label. The last header row starts with the name of the time.
    """
    rows = [[cell.strip() for cell in cells(line)] for line in lines]
    length = next((n for n, row in enumerate(rows) if row[:1] and row[0] in ROLES["time"]), 0)
    stated = [cell for row in rows[:length] for cell in row[:1]]
    is_regular = len({len(row) for row in rows[:length]}) == 1 and len({*stated}) == length
    if not is_regular or "instance" not in stated:
        raise ProfileReadError(
            readings.path,
            "the omnistat header has no row 'instance' or 'timestamp', or its rows are uneven",
            "the file is cut off",
            "export again with omnistat-query --export",
        )
    labels = pd.DataFrame(rows[:length]).set_index(0).T
    names = ["timestamp", *map(str, labels.index)]
    table = _rows(readings, names, lines[length + 1 :])
    places = [label for label in ("instance", "card") if label in labels]
    others = labels.drop(columns=places)
    # A network interface or another label is a part of the quantity's name.
    labels["name"] = ["_".join(filter(None, row[::-1])) for row in others.to_numpy().tolist()]
    for place, columns in labels.groupby(places, sort=False):
        if columns["name"].duplicated().any():
            raise _two_logs(readings.path, "a column occurs twice in the header")
        own = table[["timestamp", *map(str, columns.index)]]
        own = own.set_axis(["timestamp", *columns["name"]], axis="columns")
        for label, cell in zip(places, place, strict=True):
            if cell:
                own[label] = pd.Categorical([cell] * len(own))
        yield own


def _lines(readings: Readings, text: bytes) -> list[str]:
    decoded = text.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    *lines, last = decoded.split("\n")
    if last.strip():
        # A killed sampler leaves a line without a newline, and its last number may be cut short.
        readings.warnings.append(
            f"{readings.path.name}: the last line is incomplete, so it was left out."
        )
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise ProfileReadError(
            readings.path,
            "the file contains no complete lines",
            "the tool was stopped before its first sample",
            "record again",
        )
    return lines


def _rows(readings: Readings, header: list[str], lines: list[str]) -> pd.DataFrame:
    """Return the rows below a header. Headers that watch mode repeats are left out, and missing
    cells at the end of a row are empty.

    Some loggers never write the last cells. Therefore, a short row is treated as incomplete only if
    its length is rare, which means that fewer than one row in _RARE has this length. Incomplete
    rows and lines that aren't rows are left out and counted.

    Raises ProfileReadError if a column occurs twice, or if a row has more non-empty cells than the
    header.
    """
    width = len(header)
    if len(set(header)) < width:
        raise _two_logs(readings.path, "a column occurs twice in the header")
    rows = []
    lengths: Counter[int] = Counter()
    for line in lines:
        row = cells(line) if '"' in line else line.split(",")
        if any(row[width:]):
            raise _two_logs(readings.path, "a row has more cells than the header")
        if row == header or line.startswith("'CTRL'"):
            continue
        # If a logger has no data, it writes a time and a comma.
        is_row = row and "\0" not in line and "," in line
        length = min(len(row), width) * any(row[1:]) if is_row else _UNREADABLE
        lengths[length] += 1
        rows.append((length, row[:width] + [""] * (width - len(row))))
    usual = max(lengths, key=lambda length: (lengths[length], length), default=0)
    lost = {_UNREADABLE} | {
        length
        for length, count in lengths.items()
        if 0 < length < usual and _RARE * count < len(rows)
    }
    sound = [row for length, row in rows if length not in lost]
    readings.rows += len(sound)
    readings.dropped += Counter({"from incomplete rows": len(rows) - len(sound)})
    return pd.DataFrame(sound, columns=header, dtype="category")


def _two_logs(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(
        path,
        finding,
        "two programs wrote to the same file, or the columns changed within the file",
        "write each log to a separate file",
    )


def json_table(readings: Readings, text: bytes) -> pd.DataFrame:
    """Return the rows of a JSON log from amd-smi monitor or amd-smi metric. The log contains one
    document in total or one document per sample.
    """
    rows = [row for document in _documents(readings.path, text) for row in _entries(document)]
    if not any(rows):
        raise ProfileReadError(
            readings.path,
            "the JSON has no GPU readings",
            "another tool wrote the file, or the command has no sensor values (list, static or"
            " process)",
            "pass the output of amd-smi monitor --json or amd-smi metric --json",
        )
    readings.rows += len(rows)
    return pd.DataFrame(rows, dtype=object).fillna("").astype("category")


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
        yield document
        while position < len(decoded) and decoded[position] in " \t\r\n,":
            position += 1


def _entries(document: Any) -> Iterator[dict[str, str]]:
    """Yield a row for each device in a document, which is a list of entries. Since ROCm 7.14, an
    object contains this list, and the keys may be uppercase.
    """
    if isinstance(document, dict):
        document = _lower(document).get("gpu_data")
    for entry in document if isinstance(document, list) else ():
        readings = _lower(entry) if isinstance(entry, dict) else {}
        if "gpu" in readings:
            places = {key: str(readings.pop(key, "")) for key in ("timestamp", "gpu", "xcp")}
            for key in _NOT_READINGS:
                readings.pop(key, None)
            if values := dict(_leaves(readings, "")):
                yield {key: place for key, place in places.items() if place} | values


def _lower(entry: dict[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in entry.items()}


def _leaves(node: Any, key: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each value below a node that is a number, with its unit. An
    example of a path is `usage gfx_activity`.
    """
    unit = ""
    if isinstance(node, dict) and not isinstance(node.get("value", {}), dict | list):
        node, unit = node["value"], str(node.get("unit") or "")
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for name, below in items:
            yield from _leaves(below, f"{key} {name}".strip())
        return
    if isinstance(node, int | float) and not isinstance(node, bool):
        node = str(float(node) if abs(node) < MAX_VALUE else 10 * MAX_VALUE)
    cell = cell_value(node) if isinstance(node, str) else None
    if cell is not None:
        # JSON can contain lone surrogates, which are half characters that tables can't contain.
        text = node if cell[1] else f"{node} {unit}"
        yield tuple(part.encode("utf-8", "replace").decode() for part in (key, text))
