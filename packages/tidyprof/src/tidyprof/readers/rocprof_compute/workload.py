"""The small files beside the counters in a rocprof-compute folder: machine, ceilings, analysis
tables, runs.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import read_bytes
from tidyprof.io.text_cells import ABSENT_TEXTS

SYSTEM_FILE = "sysinfo.csv"
ROOFLINE_FILE = "roofline.csv"
TIMES_FILE = "timestamps.csv"
DISPATCH_FILE = "pmc_dispatch_info.csv"
KERNEL_TOP_FILE = "pmc_kernel_top.csv"
PASS_FILES = (
    "SQ_IFETCH_LEVEL",
    "SQ_INST_LEVEL_LDS",
    "SQ_INST_LEVEL_SMEM",
    "SQ_INST_LEVEL_VMEM",
    "SQ_LEVEL_WAVES",
)
"""Single runs of the program that old versions did not join into pmc_perf.csv."""

SMALL_FILE_BYTES = 2**26
"""Uncompressed bytes that one of these files may have."""

POSITIVE_FACTS = (
    *(
        "max_sclk",
        "max_mclk",
        "cur_sclk",
        "cur_mclk",
        "hbm_bw",
        "num_hbm_channels",
        "num_memory_channels",
    ),
    *(
        "cu_per_gpu",
        "num_xcd",
        "wave_size",
        "max_waves_per_cu",
        "lds_banks_per_cu",
        "total_l2_chan",
        "sqc_per_gpu",
    ),
)
"""Entries of sysinfo.csv that are positive numbers: 0 or text means that the tool did not know."""

_TABLE_NAME = re.compile(r"(\d{1,2}\.\d{1,2})(?:_(.*))?\.csv", re.ASCII)
_VERSION = re.compile(rb"(?:rocprof\w*-compute|omniperf) version:\s*(\d+\.\d+\.\d+)", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)


def small_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a small CSV file as typed values; absent cells are left out.

    Raises ProfileReadError if the file cannot be read, or a row has more cells than the header.
    """
    text = read_bytes(path, SMALL_FILE_BYTES).decode("utf-8", "replace").removeprefix("\ufeff")
    if not text.endswith("\n"):
        raise _damaged(path, "its last line has no end")
    try:
        header, *rows = [
            row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row
        ]
    except (csv.Error, ValueError) as error:
        raise _damaged(path, f"no sound CSV ({error})") from None
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != len(header)), None)
    if wrong is not None:
        raise _damaged(
            path, f"{len(rows[wrong - 2])} cells in row {wrong} under a header of {len(header)}"
        )
    return [
        {name: typed(cell) for name, cell in zip(header, row, strict=True) if _is_stated(cell)}
        for row in rows
    ]


def _damaged(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(path, finding, *DAMAGED)


def _is_stated(cell: str) -> bool:
    return cell.strip() not in ABSENT_TEXTS


def typed(cell: str) -> int | float | str:
    """A cell as a whole number, a finite number, or text without the line breaks of
    rocprof-compute's own layout.
    """
    text = cell.strip()
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        return cell.replace("\n", "")
    return number if math.isfinite(number) else cell


def system_facts(facts: Mapping[str, Any], source: str) -> tuple[dict[str, Any], list[str]]:
    """The facts of sysinfo without clocks and counts of 0, and warnings about those."""
    unknown = [name for name in POSITIVE_FACTS if name in facts and not _is_positive(facts[name])]
    kept = {
        name: value for name, value in facts.items() if name not in unknown and value is not None
    }
    if not unknown:
        return kept, []
    return kept, [
        f"{source}: {', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} 0 or no number, so"
        " unknown; peaks that depend on it cannot be computed. Likely cause: firmware or tool"
        " older than the GPU."
    ]


def common_facts(sysinfo: dict[str, Any]) -> dict[str, Any]:
    """Entries of `meta` from sysinfo, under the names that all readers use."""
    names = {"gpu": "gpu_model", "rocm": "rocm_version", "host": "hostname", "command": "command"}
    names["workload"] = "workload_name"
    return {"sysinfo": sysinfo} | {
        name: str(sysinfo[key]) for name, key in names.items() if key in sysinfo
    }


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def read_system_facts(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The one row of sysinfo.csv. Raises ProfileReadError unless there is exactly one."""
    rows = small_table(path)
    if len(rows) != 1:
        raise _damaged(path, f"{len(rows)} rows instead of one")
    return system_facts(rows[0], path.name)


def read_ceilings(path: Path) -> list[dict[str, float]]:
    """The rates in roofline.csv that the benchmark reached, one entry per device, in GB/s and
    GFLOP/s (GOP/s for integers).

    Entries of 0 were not measured and are left out. Raises ProfileReadError for negative or
    unreadable figures.
    """
    devices = []
    for row in small_table(path):
        wrong = next(
            (name for name, value in row.items() if isinstance(value, str) or value < 0), None
        )
        if wrong is not None:
            raise _damaged(path, f"{str(row[wrong])[:30]!r} under {wrong[:30]!r}")
        devices.append(
            {name: value for name, value in row.items() if value > 0 or name == "device"}
        )
    if not devices:
        raise _damaged(path, "no row below the header")
    return devices


def read_metric_tables(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The tables that `rocprof-compute analyze` wrote as CSV, by number and name: `2.1
    Speed-of-Light` -> rows.
    """
    tables = {}
    for below in (folder, folder / "analyze"):
        for file in sorted(below.glob("*.csv")) if below.is_dir() else ():
            match = _TABLE_NAME.fullmatch(file.name)
            if match:
                name = f"{match[1]} {(match[2] or '').replace('_', ' ')}".strip()
                tables[name] = small_table(file)
    # By their numbers: as text, 10.1 would come before 2.1.
    names = sorted(tables, key=lambda name: [int(part) for part in name.split()[0].split(".")])
    return {name: tables[name] for name in names}


def tool_version(folder: Path) -> str | None:
    """The version that log.txt names, None if there is none."""
    log = folder / "log.txt"
    if not log.is_file():
        return None
    with log.open("rb") as file:
        match = _VERSION.search(file.read(2**20))
    return match[1].decode() if match else None


def planned_runs(folder: Path) -> int | None:
    """How often the program was to be run: once for each `pmc:` line of the counter requests in
    perfmon/.
    """
    requests: Iterable[Path] = sorted((folder / "perfmon").glob("*.txt"))
    lines = sum(_request_lines(file) for file in requests)
    return lines or None


def _request_lines(file: Path) -> int:
    with file.open("rb") as opened:
        return sum(line.lstrip().startswith(b"pmc:") for line in opened.read(2**20).splitlines())
