"""A Run's telemetry as system monitors write it: amd-smi, rocm-smi and omnistat.

Layouts: amd-smi 26.2 (ROCm 7.2; ROCm/rocm-systems, projects/amdsmi/amdsmi_cli), rocm-smi
(projects/rocm-smi-lib/python_smi_tools/rocm_smi.py), omnistat 1.6 (AMDResearch/omnistat, omnistat/query.py). What a
tool shows and the model does not know is N/A.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from cifar_train.errors import UserError
from gpumodel.run import Run
from gpumodel.writers.common.marker_file import write_marker
from gpumodel.writers.system.readings import Reading, readings, readings_at

FORMS = ("csv", "json")

_MEBIBYTE, _GIBIBYTE = 2**20, 2**30
"""Bytes of what AMD's tools call MB and GB."""

_SECOND_NS = 10**9
_NOT_AVAILABLE = "N/A"

Cell = tuple[Any, str]
"""A value and its unit, which is empty for numbers of devices."""


def write_amd_smi(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    command: str = "monitor",
    form: str = "csv",
    flags: str = "",
    interval_s: float = 1,
    output: str | None = None,
) -> list[Path]:
    """Write what `amd-smi monitor|metric --watch <interval> --csv|--json --file <output>` leaves.

    rank       -- only this rank's device. command -- monitor or metric. form -- csv or json.
    flags      -- letters of monitor's options, of `p t u m v`; without any its default columns.
    interval_s -- whole seconds, as the tool accepts. output -- name of the file; `amd-smi.<form>` if None.

    Returns the file and its marker; raises UserError for what the tool refuses.
    """
    _check_form(form)
    if command not in ("monitor", "metric"):
        raise UserError(f"amd-smi {command!r} reports no sensors over time; pass 'monitor' or 'metric'")
    if interval_s != int(interval_s):
        raise UserError(f"amd-smi samples every whole number of seconds, not every {interval_s:g} s; pass 1 or more")
    unknown = sorted(set(flags) - set(_MONITOR_COLUMNS))
    if unknown or (flags and command == "metric"):
        raise UserError(f"amd-smi {command} has no option {' '.join(unknown) or flags}; monitor has p, t, u, m and v")
    rows = readings(run, rank, interval_s)
    memory = run.device.memory_bytes
    if command == "monitor":
        columns = [_monitor(row, flags, memory, run.device.power_watt) for row in rows]
        text = _csv(columns) if form == "csv" else json.dumps([_with_units(row) for row in columns], indent=4) + "\n"
    elif form == "csv":
        text = _csv([_flattened(_metric(row, memory), row) for row in rows])
    else:
        text = json.dumps({"gpu_data": [_metric_entry(row, memory) for row in rows]}, indent=4) + "\n"
    return _written(run, folder, output or f"amd-smi.{form}", text)


def write_rocm_smi(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    form: str = "csv",
    time_ns: int | None = None,
    output: str | None = None,
) -> list[Path]:
    """Write one snapshot of `rocm-smi --showuse --showmemuse --showpower --showtemp --showclocks --showmeminfo vram`.

    time_ns -- the moment on the clock of the run; its end if None. output -- `rocm-smi.<form>` if None.
    All values are text, as the tool prints them. Returns the file and its marker; raises UserError.
    """
    _check_form(form)
    moment = np.array([run.end_ns if time_ns is None else time_ns], np.int64)
    shown = readings_at(run, rank, moment)
    cards = [(f"card{row.device}", _card(row, run.device.memory_bytes)) for row in shown]
    if form == "json":
        text = json.dumps(dict(cards)) + "\n"
    else:
        lines = [["device", *cards[0][1]], *([name, *values.values(), ""] for name, values in cards)]
        text = "".join(",".join(cell.replace(",", "") for cell in line) + "\n" for line in lines)
    return _written(run, folder, output or f"rocm-smi.{form}", text)


def write_omnistat(
    run: Run, folder: Path, *, rank: int | None = None, interval_s: float = 1, output: str = "omnistat-rocm.gpu.csv"
) -> list[Path]:
    """Write what `omnistat-query --interval <interval> --export` leaves of the GPUs, times in UTC.

    interval_s -- seconds, from 0.005 on, as omnistat accepts.
    Returns the file and its marker; raises UserError.
    """
    if interval_s < _SHORTEST_OMNISTAT_S:
        raise UserError(
            f"omnistat samples every {_SHORTEST_OMNISTAT_S} s at the most often, not every {interval_s:g} s"
        )
    rows = readings(run, rank, interval_s)
    devices = _devices(rows)
    columns = [(metric, place) for metric in _OMNISTAT_METRICS for place in range(devices)]
    lines: list[list[Any]] = [
        ["metric", *(metric for metric, _ in columns)],
        ["instance", *(run.hostname for _ in columns)],
        ["card", *(rows[place].device for _, place in columns)],
        ["timestamp", *("" for _ in columns)],
    ]
    for start in range(0, len(rows), devices):
        moment = rows[start : start + devices]
        values = (_OMNISTAT_METRICS[metric](moment[place], run.device.memory_bytes) for metric, place in columns)
        lines.append([_date(moment[0].unix_ns), *("" if value is None else float(value) for value in values)])
    return _written(run, folder, output, _lines(lines))


_SHORTEST_OMNISTAT_S = 0.005

_OMNISTAT_METRICS: dict[str, Callable[[Reading, int], float | None]] = {
    "rocm_utilization_percentage": lambda row, memory: row.whole("gfx_activity"),
    "rocm_vram_used_percentage": lambda row, memory: _share(row.values["memory_used"], memory),
    "rocm_temperature_celsius": lambda row, memory: row.values["temperature"],
    "rocm_sclk_clock_mhz": lambda row, memory: row.whole("gfx_clock"),
    "rocm_average_socket_power_watts": lambda row, memory: row.values["power"],
}
"""Exported metric -> its value."""


def _monitor(row: Reading, flags: str, memory: int, limit_watt: float) -> dict[str, Cell]:
    """The columns of `amd-smi monitor`; memory in GB with one digit by default, in MB with -v."""
    found: dict[str, Cell] = {"timestamp": (row.unix_ns // _SECOND_NS, ""), "gpu": (row.device, ""), "xcp": (0, "")}
    used = row.values["memory_used"]
    if flags:
        available = _all_columns(row, memory, limit_watt)
        names = [name for flag, names in _MONITOR_COLUMNS.items() if flag in flags for name in names]
        return found | {name: available[name] for name in names}
    available = _all_columns(row, memory, limit_watt) | {
        "vram_used": (None if used is None else round(used / _GIBIBYTE, 1), "GB"),
        "vram_total": (round(memory / _GIBIBYTE, 1), "GB"),
    }
    return found | {name: available[name] for name in _DEFAULT_COLUMNS}


_DEFAULT_COLUMNS = (
    *("power_usage", "hotspot_temperature", "memory_temperature", "gfx_clk", "gfx", "mem", "encoder", "decoder"),
    *("vram_used", "vram_total"),
)
_MONITOR_COLUMNS = {
    "p": ("power_usage", "max_power"),
    "t": ("hotspot_temperature", "memory_temperature"),
    "u": ("gfx_clk", "gfx"),
    "m": ("mem", "mem_clock"),
    "v": ("vram_used", "vram_free", "vram_total", "vram_percent"),
}
"""Option of monitor -> columns."""


def _all_columns(row: Reading, memory: int, limit_watt: float) -> dict[str, Cell]:
    used, total = row.whole("memory_used", _MEBIBYTE), memory // _MEBIBYTE
    return {
        "power_usage": (row.whole("power"), "W"),
        "max_power": (round(limit_watt), "W"),
        "hotspot_temperature": (row.whole("temperature"), "C"),
        "memory_temperature": (None, "C"),
        "gfx_clk": (row.whole("gfx_clock"), "MHz"),
        "gfx": (row.whole("gfx_activity"), "%"),
        "mem": (row.whole("memory_activity"), "%"),
        "mem_clock": (row.whole("memory_clock"), "MHz"),
        "encoder": (None, "%"),
        "decoder": (None, "%"),
        "vram_used": (used, "MB"),
        "vram_free": (None if used is None else total - used, "MB"),
        "vram_total": (total, "MB"),
        "vram_percent": (None if used is None else round(100 * used / total, 2), "%"),
    }


def _metric(row: Reading, memory: int) -> dict[str, dict[str, Any]]:
    """The groups of `amd-smi metric`, each value with its unit."""
    columns = _all_columns(row, memory, 0)
    return {
        "usage": {"gfx_activity": columns["gfx"], "umc_activity": columns["mem"], "mm_activity": (None, "%")},
        "power": {"socket_power": columns["power_usage"]},
        "clock": {"gfx_0": {"clk": columns["gfx_clk"]}, "mem_0": {"clk": columns["mem_clock"]}},
        "temperature": {"edge": (None, "C"), "hotspot": columns["hotspot_temperature"], "mem": (None, "C")},
        "mem_usage": {
            "total_vram": columns["vram_total"],
            "used_vram": columns["vram_used"],
            "free_vram": columns["vram_free"],
        },
    }


def _metric_entry(row: Reading, memory: int) -> dict[str, Any]:
    place = {"timestamp": row.unix_ns // _SECOND_NS, "gpu": row.device}
    return place | {group: _with_units(cells) for group, cells in _metric(row, memory).items()}


def _with_units(cells: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON has them: with their unit, or N/A."""
    found: dict[str, Any] = {}
    for name, cell in cells.items():
        if isinstance(cell, dict):
            found[name] = _with_units(cell)
        else:
            value, unit = cell
            found[name] = _NOT_AVAILABLE if value is None else {"value": value, "unit": unit} if unit else value
    return found


def _flattened(groups: dict[str, dict[str, Any]], row: Reading) -> dict[str, Cell]:
    """The groups of `amd-smi metric` as columns, named without their group."""
    found: dict[str, Cell] = {"timestamp": (row.unix_ns // _SECOND_NS, ""), "gpu": (row.device, "")}
    for group, cells in groups.items():
        for name, cell in cells.items():
            if group == "clock":
                found[f"{name}_clk"] = cell["clk"]
            else:
                found[name] = cell
    return found


def _card(row: Reading, memory: int) -> dict[str, str]:
    """What rocm-smi prints of one device, all as text."""
    used, values = row.whole("memory_used"), row.values
    return {
        "GPU use (%)": _text(row.whole("gfx_activity")),
        "GPU Memory Allocated (VRAM%)": _text(None if used is None else round(100 * used / memory)),
        "GPU Memory Read/Write Activity (%)": _text(row.whole("memory_activity")),
        "Current Socket Graphics Package Power (W)": _text(_tenth(values["power"])),
        "Temperature (Sensor edge) (C)": _NOT_AVAILABLE,
        "Temperature (Sensor junction) (C)": _text(_tenth(values["temperature"])),
        "Temperature (Sensor memory) (C)": _NOT_AVAILABLE,
        "sclk clock speed:": _clock(row.whole("gfx_clock")),
        "mclk clock speed:": _clock(row.whole("memory_clock")),
        "VRAM Total Memory (B)": str(memory),
        "VRAM Total Used Memory (B)": _text(used),
    }


def _tenth(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _clock(megahertz: int | None) -> str:
    return _NOT_AVAILABLE if megahertz is None else f"({megahertz}Mhz)"


def _text(value: float | None) -> str:
    return _NOT_AVAILABLE if value is None else str(value)


def _share(value: float | None, total: int) -> float | None:
    return None if value is None else 100 * value / total


def _date(unix_ns: int) -> str:
    """A time in UTC as pandas writes it: with a fraction only where there is one."""
    moment = datetime.fromtimestamp(unix_ns // _SECOND_NS, UTC).replace(tzinfo=None)
    return str(moment + timedelta(milliseconds=unix_ns % _SECOND_NS // 10**6))


def _devices(rows: Sequence[Reading]) -> int:
    """How many devices are read at one moment."""
    return len(list(next(groupby(rows, key=lambda row: row.unix_ns))[1]))


def _csv(rows: Sequence[dict[str, Cell]]) -> str:
    values = ([_NOT_AVAILABLE if value is None else value for value, _ in row.values()] for row in rows)
    return _lines([list(rows[0]), *values])


def _lines(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _check_form(form: str) -> None:
    if form not in FORMS:
        raise UserError(f"no form {form!r}; there are {' and '.join(FORMS)}")


def _written(run: Run, folder: Path, name: str, text: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return [path, write_marker(run, folder)]
