"""Recognition of system monitor logs."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from tidyprof.io.byte_stream import HEAD_BYTES, head_or_nothing
from tidyprof.readers.system.names import is_header

_LOG_NAME = re.compile(r"\.(csv|json|txt|log)(\.gz|\.zst)?$", re.IGNORECASE)
_AMD_SMI = re.compile(rb'[{,]\s*"gpu"\s*:\s*\d+\s*[,}]', re.IGNORECASE)
_AMD_SENSORS = re.compile(
    rb'"(power_usage|hotspot_temperature|gfx|gfx_clk|vram_used|usage|mem_usage|power|temperature'
    rb'|clock)"\s*:',
    re.IGNORECASE,
)


def recognizes(path: Path, head: bytes) -> bool:
    """Return True if text that starts with `head` is a system monitor log, or if a folder contains
    such a log.
    """
    if path.is_dir():
        return any(is_log(head_or_nothing(file, HEAD_BYTES)) for file in candidates(path))
    return is_log(head)


def is_log(head: bytes) -> bool:
    """Return True if text that starts with `head` is a system monitor log."""
    if is_json(head):
        start = head[:65_536]
        return bool(_AMD_SMI.search(start) and _AMD_SENSORS.search(start))
    return bool(csv_header(head))


def csv_header(text: bytes) -> list[str]:
    """Return a system monitor's CSV header from the first lines of the text, or an empty list if
    there is no such header.
    """
    lines = text[:4096].decode("utf-8", "replace").splitlines()[:6]
    return next((names for names in map(cells, lines) if is_header(names)), [])


def cells(line: str) -> list[str]:
    """Return the cells of a line of CSV, or an empty list if the line isn't CSV."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def is_json(text: bytes) -> bool:
    """Return True if the text is JSON. In watch mode, a few lines of other text come before the
    JSON.
    """
    lines = text[:4096].splitlines()[:6]
    return any(line.lstrip(b"\xef\xbb\xbf \t").startswith((b"[", b"{")) for line in lines)


def candidates(folder: Path) -> list[Path]:
    """Return the files in a folder whose names look like log names."""
    return sorted(
        file for file in folder.iterdir() if file.is_file() and _LOG_NAME.search(file.name)
    )
