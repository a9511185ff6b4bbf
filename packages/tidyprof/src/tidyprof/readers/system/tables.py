"""Logs of all formats as one table of strings, with one row per sample and device, and one
categorical column per key. A missing cell is an empty string.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.text_cells import ABSENT_TEXTS
from tidyprof.readers.system.names import ROLES, is_header
from tidyprof.readers.system.readings import MAX_VALUE, Readings, cell_value, device_number
from tidyprof.readers.system.recognition import cells

_UNREADABLE, _RARE = -1, 20
_DEPTH = 8
_NO_DEVICE = "from unnumbered GPUs or partitions"
_ENTRY_KEYS = ("gpu", "xcp", "timestamp", "process_list", "process_info")


def csv_table(readings: Readings, text: bytes) -> tuple[dict[str, list[str]], pd.DataFrame]:
    """Return the rows of a CSV log.

    Also return the labels of the columns if the log is from omnistat, which writes several header
    rows: the cells of each header row, by the name in its first cell.
    """
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
    if header[0].strip().lower() != "metric":
        return {}, _rows(readings, header, lines[start + 1 :])
    labels: dict[str, list[str]] = {}
    for number, line in enumerate(lines[start:], start + 1):
        first, *row = cells(line) or [""]
        if first.strip().lower() in ROLES["time"]:
            names = ["timestamp", *map(str, range(len(labels["metric"])))]
            return labels, _rows(readings, names, lines[number:])
        if len(row) + 1 != len(header):
            break
        labels[first.strip().lower()] = [cell.strip() for cell in row]
    raise ProfileReadError(
        readings.path,
        "the omnistat header has no row 'timestamp', or its rows have different lengths",
        "the file is cut off",
        "export again with omnistat-query --export",
    )


def _lines(readings: Readings, text: bytes) -> list[str]:
    decoded = text.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    *lines, last = decoded.split("\n")
    if last.strip():
        # A killed sampler leaves a line without a newline, and its last number may be cut short.
        readings.warnings.append(
            f"{readings.path.name}: the last line is incomplete, so it was left out."
        )
        readings.facts["unfinished_lines"] = 1
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
    if len(set(header)) < len(header):
        repeated = next(name for name in header if header.count(name) > 1)
        raise _two_logs(
            readings.path, f"the column {repeated[:40]!r} occurs {header.count(repeated)} times"
        )
    width, rows = len(header), []
    lengths: Counter[int] = Counter()
    for number, line in enumerate(lines, 2):
        row = cells(line) if '"' in line else line.split(",")
        if any(row[width:]):
            raise _two_logs(readings.path, f"row {number} has more cells than the header")
        if row == header or line.startswith("'CTRL'"):
            continue
        # If a logger has no data, it writes a time and a comma.
        is_row = row and "\0" not in line and "," in line
        length = min(len(row), width) * any(row[1:]) if is_row else _UNREADABLE
        lengths[length] += 1
        # All rows are rebuilt with the header's number of cells and read as one table.
        if '"' in line or "\r" in line:
            row = ['"' + cell.replace('"', '""') + '"' for cell in row]
        rows.append((length, ",".join(row[:width]) + "," * (width - len(row))))
    usual = max(lengths, key=lambda length: (lengths[length], length), default=0)
    lost = {_UNREADABLE} | {
        length
        for length, count in lengths.items()
        if 0 < length < usual and _RARE * count < len(rows)
    }
    sound = [row for length, row in rows if length not in lost]
    readings.dropped += Counter({"from incomplete rows": len(rows) - len(sound)})
    text = "\n".join(["," * (width - 1), *sound, ""]).encode("utf-8", "replace")
    # Imported here because a JSON log doesn't need pyarrow.
    from tidyprof.io.csv_files import TEXT, rows_of

    table = rows_of(text, header, dict.fromkeys(header, TEXT), len(text)).to_pandas()
    return pd.DataFrame({name: table[name].cat.add_categories("").fillna("") for name in header})


def _two_logs(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(
        path,
        finding,
        "two programs wrote to the same file, or the columns changed within the file",
        "write each log to a separate file",
    )


def json_table(readings: Readings, text: bytes) -> pd.DataFrame:
    """Return the rows of a JSON log from rocm-smi, amd-smi monitor or amd-smi metric. The log
    contains one document in total or one document per sample.
    """
    rows = [row for document in _documents(readings.path, text) for row in _entries(document)]
    if not rows:
        raise ProfileReadError(
            readings.path,
            "the JSON has no GPU readings",
            "another tool wrote the file, or the command has no sensor values (list, static or"
            " process)",
            "pass the output of amd-smi monitor --json, amd-smi metric --json or rocm-smi --json",
        )
    known = [row for row in rows if all(row[key] is not None for key in ("gpu", "xcp"))]
    # Without a number, the reading would look like a reading of the machine or another GPU.
    lost = sum(len(row) - 3 for row in rows) - sum(len(row) - 3 for row in known)
    readings.dropped += Counter({_NO_DEVICE: lost})
    keys = dict.fromkeys(key for row in known for key, cell in row.items() if cell)
    return pd.DataFrame(
        {key: pd.Categorical([row.get(key) or "" for row in known]) for key in keys}
    )


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


def _entries(document: Any) -> Iterator[dict[str, str | None]]:
    """Yield a row for each device in a document. `gpu` and `xcp` are None if they aren't
    numbers.
    """
    # A list of entries is from amd-smi. Since ROCm 7.14, an object contains this list, and the keys
    # may be uppercase. An object with a member per card is from rocm-smi.
    if isinstance(document, dict) and isinstance(_small(document).get("gpu_data"), list):
        document = _small(document)["gpu_data"]
    if isinstance(document, list):
        for entry in (_small(entry) for entry in document if isinstance(entry, dict)):
            if "gpu" in entry:
                time = entry.get("timestamp")
                is_time = isinstance(time, int | float | str) and not isinstance(time, bool)
                readings = {key: part for key, part in entry.items() if key not in _ENTRY_KEYS}
                yield {
                    "timestamp": str(time) if is_time else None,
                    "gpu": _number(entry["gpu"]),
                    "xcp": _number(entry.get("xcp", "N/A"), ""),
                    **dict(_leaves(readings, "", _DEPTH)),
                }
    elif isinstance(document, dict):
        for name, entry in document.items():
            if name.lower().startswith(("card", "gpu")) and isinstance(entry, dict):
                row = {"timestamp": None, "gpu": _number(name), "xcp": ""}
                yield row | dict(_leaves(entry, "", 1))


def _small(entry: dict[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in entry.items()}


def _number(stated: Any, absent: str | None = None) -> str | None:
    """Return the number of a GPU or partition as a string. Return None for other values, such as
    fractions, booleans and addresses.

    - absent: the result if the value is `N/A` or another string for a missing value
    """
    if str(stated) in ABSENT_TEXTS:
        return absent
    is_number = isinstance(stated, int | str) and not isinstance(stated, bool)
    return str(stated) if is_number and device_number(str(stated)) is not None else None


def _leaves(node: Any, key: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each value below a node that is a number, with its unit. An
    example of a path is `usage gfx_activity`.
    """
    unit = ""
    if isinstance(node, dict) and not isinstance(node.get("value", {}), dict | list):
        node, unit = node["value"], str(node.get("unit") or "")
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for name, below in items if depth else ():
            yield from _leaves(below, f"{key} {name}".strip(), depth - 1)
        return
    if isinstance(node, int | float) and not isinstance(node, bool):
        node = str(float(node) if abs(node) < MAX_VALUE else 10 * MAX_VALUE)
    cell = cell_value(node) if isinstance(node, str) else None
    if cell is not None:
        yield _whole(key), _whole(node if cell[1] else f"{node} {unit}")


def _whole(text: str) -> str:
    """Replace lone surrogates. These are half characters, such as \\ud800, which JSON can contain
    but tables can't.
    """
    return text.encode("utf-8", "replace").decode()
