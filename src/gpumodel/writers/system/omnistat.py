"""The CSV file of omnistat 1.6 (ROCm/omnistat, omnistat/query.py)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpumodel.run import Run
from gpumodel.writers.system.readings import Reading, csv_lines, readings, write_text
from tidyprof.errors import UserError

_SHORTEST_INTERVAL_S = 0.005

_OMNISTAT_METRICS: dict[str, Callable[[Reading, int], float | None]] = {
    "rocm_utilization_percentage": lambda row, memory: row.whole("gfx_activity"),
    "rocm_vram_used_percentage": lambda row, memory: _percent(row.values["memory_used"], memory),
    "rocm_temperature_celsius": lambda row, memory: row.values["temperature"],
    "rocm_sclk_clock_mhz": lambda row, memory: row.whole("gfx_clock"),
    "rocm_average_socket_power_watts": lambda row, memory: row.values["power"],
}
"""Exported metric -> its value."""


def write(run: Run, folder: Path, *, rank: int | None = None, interval_s: float = 1) -> list[Path]:
    """Write what `omnistat-query --interval <interval> --export` leaves about the GPUs, with times
    in UTC.

    interval_s -- in seconds, from 0.005 on, as omnistat accepts.

    Returns the file and its marker; raises UserError for an interval that omnistat refuses, and
    where `readings` does.
    """
    if interval_s < _SHORTEST_INTERVAL_S:
        raise UserError(
            f"omnistat samples every {_SHORTEST_INTERVAL_S} s at the most often, not every"
            f" {interval_s:g} s"
        )
    rows = readings(run, rank, interval_s)
    devices = len({row.device for row in rows})
    columns = [(metric, place) for metric in _OMNISTAT_METRICS for place in range(devices)]
    lines: list[list[Any]] = [
        ["metric", *(metric for metric, _ in columns)],
        ["instance", *(run.hostname for _ in columns)],
        ["card", *(rows[place].device for _, place in columns)],
        ["timestamp", *("" for _ in columns)],
    ]
    for start in range(0, len(rows), devices):
        moment = rows[start : start + devices]
        values = (
            _OMNISTAT_METRICS[metric](moment[place], run.device.memory_bytes)
            for metric, place in columns
        )
        lines.append(
            [_date(moment[0].unix_ns), *("" if value is None else float(value) for value in values)]
        )
    return write_text(run, folder, "omnistat-rocm.gpu.csv", csv_lines(lines))


def _percent(value: float | None, total: int) -> float | None:
    return None if value is None else 100 * value / total


def _date(unix_ns: int) -> str:
    """A time in UTC as pandas writes it: with a fraction only where that is not 0."""
    moment = datetime.fromtimestamp(unix_ns // 10**9, UTC).replace(tzinfo=None)
    return str(moment + timedelta(milliseconds=unix_ns % 10**9 // 10**6))
