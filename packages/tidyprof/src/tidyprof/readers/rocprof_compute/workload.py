"""Small files next to the counter files in a rocprof-compute folder. They describe the machine, its
performance ceilings, the analysis tables and the runs.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import read_bytes
from tidyprof.io.text_cells import ABSENT_TEXTS

SYSTEM_FILE = "sysinfo.csv"
ROOFLINE_FILE = "roofline.csv"
TIMES_FILE = "timestamps.csv"
PASS_FILES = (
    "SQ_IFETCH_LEVEL",
    "SQ_INST_LEVEL_LDS",
    "SQ_INST_LEVEL_SMEM",
    "SQ_INST_LEVEL_VMEM",
    "SQ_LEVEL_WAVES",
)
"""Names of files for single program runs that old versions didn't join into pmc_perf.csv."""

SMALL_FILE_BYTES = 2**26
"""Maximum uncompressed size of each file in bytes."""

POSITIVE_FACTS = (
    "max_sclk",
    "max_mclk",
    "cur_sclk",
    "cur_mclk",
    "hbm_bw",
    "num_hbm_channels",
    "num_memory_channels",
    "cu_per_gpu",
    "num_xcd",
    "wave_size",
    "max_waves_per_cu",
    "lds_banks_per_cu",
    "total_l2_chan",
    "sqc_per_gpu",
)
"""Entries of sysinfo.csv that must be positive. If the tool doesn't know a number, it writes 0 or
text.
"""

_VERSION = re.compile(rb"(?:rocprof\w*-compute|omniperf) version:\s*(\d+\.\d+\.\d+)", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def small_table(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a small CSV file as typed values. Empty cells are left out.

    Raises ProfileReadError if the file can't be read, or if a row isn't as long as the header.
    """
    text = read_bytes(path, SMALL_FILE_BYTES).decode("utf-8", "replace").removeprefix("\ufeff")
    if not text.endswith("\n"):
        raise _damaged(path, "the last line has no newline")
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise _damaged(path, f"the file isn't valid CSV ({error})") from None
    if any(None in row or None in row.values() for row in rows):
        raise _damaged(path, "a row isn't as long as the header")
    return [
        {name: typed(cell) for name, cell in row.items() if cell.strip() not in ABSENT_TEXTS}
        for row in rows
    ]


def _damaged(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(path, finding, *DAMAGED)


def typed(cell: str) -> int | float | str:
    """Convert a cell to an integer or a finite number. Return other text unchanged."""
    if _WHOLE.fullmatch(cell.strip()):
        return int(cell)
    try:
        number = float(cell)
    except ValueError:
        return cell
    return number if math.isfinite(number) else cell


def system_facts(facts: Mapping[str, Any], source: str) -> tuple[dict[str, Any], list[str]]:
    """Return the entries of sysinfo, except clock rates and counts that are 0. Also return warnings
    about these entries.
    """
    kept = {name: value for name, value in facts.items() if value is not None}
    unknown = [
        name
        for name in POSITIVE_FACTS
        if name in facts and not (isinstance(facts[name], int | float) and facts[name] > 0)
    ]
    for name in unknown:
        kept.pop(name, None)
    return kept, [
        f"{source}: {', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} 0 or not a number,"
        " so peak rates that depend on this can't be computed. Likely cause: the firmware or the"
        " tool is older than the GPU."
    ] * bool(unknown)


def common_facts(sysinfo: dict[str, Any]) -> dict[str, Any]:
    """Return the `meta` entries from sysinfo under the names that all readers use."""
    names = {"gpu": "gpu_model", "rocm": "rocm_version", "host": "hostname", "command": "command"}
    names["workload"] = "workload_name"
    return {"sysinfo": sysinfo} | {
        name: str(sysinfo[key]) for name, key in names.items() if key in sysinfo
    }


def read_system_facts(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the only row of sysinfo.csv. Raises ProfileReadError if the number of rows isn't
    exactly one.
    """
    rows = small_table(path)
    if len(rows) != 1:
        raise _damaged(path, f"the file has {len(rows)} rows instead of one")
    return system_facts(rows[0], path.name)


def read_ceilings(path: Path) -> list[dict[str, float]]:
    """Return the benchmark results in roofline.csv. Each device has one entry. Rates are in GB/s
    and GFLOP/s, or in GOP/s for integers.

    Results of 0 are left out because they weren't measured. Raises ProfileReadError if a number is
    negative or unreadable.
    """
    rows = small_table(path)
    values = [value for row in rows for value in row.values()]
    if not rows or any(isinstance(value, str) or value < 0 for value in values):
        raise _damaged(path, "there are no rows, or a rate is negative or not a number")
    return [
        {name: value for name, value in row.items() if value > 0 or name == "device"}
        for row in rows
    ]


def tool_version(folder: Path) -> str | None:
    """Return the tool's version from log.txt, or None if it is unknown."""
    log = folder / "log.txt"
    if not log.is_file():
        return None
    with log.open("rb") as file:
        match = _VERSION.search(file.read(2**20))
    return match[1].decode() if match else None
