"""What amd-smi's commands print of the modelled node."""

from __future__ import annotations

import argparse
import csv
import io
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cifar_train.errors import UserError
from gpumodel.writers.system import amd_smi
from proflab.standins.amd_smi import MODELLED_FLAGS, MONITOR_FLAGS

if TYPE_CHECKING:
    from proflab.standins.sensors import Node

Cells = dict[str, tuple[Any, str]]

HEADERS = {
    "timestamp": "TIMESTAMP", "gpu": "GPU", "xcp": "XCP", "power_usage": "POWER", "max_power": "PWR_CAP",
    "hotspot_temperature": "GPU_T", "memory_temperature": "MEM_T", "gfx_clk": "GFX_CLK", "gfx": "GFX%",
    "mem": "MEM%", "mem_clock": "MEM_CLOCK", "encoder": "ENC%", "decoder": "DEC%", "vram_used": "VRAM_USED",
    "vram_free": "VRAM_FREE", "vram_total": "VRAM_TOTAL", "vram_percent": "VRAM%",
}  # fmt: skip
"""Columns of `amd-smi monitor` by their keys in CSV and JSON."""

_WATCH_LINE = "'CTRL' + 'C' to stop watching output:"
_UNITS = {"C": "°C"}


def monitor(node: Node, devices: Sequence[int], options: argparse.Namespace) -> int:
    """`amd-smi monitor`: one row per device."""
    asked = [letter for letter in MONITOR_FLAGS if getattr(options, f"show_{letter}")]
    missing = [MONITOR_FLAGS[letter][0] for letter in asked if letter not in MODELLED_FLAGS]
    if missing:
        raise UserError(f"monitor --{missing[0]} is not modelled; there are -p, -t, -u, -m and -v")

    def sample() -> list[Cells]:
        memory, limit = node.device.memory_bytes, node.device.power_watt
        rows = [row for row in node.readings() if row.device in devices]
        found = [amd_smi.monitor(row, "".join(asked), memory, limit) for row in rows]
        return found if options.watch else [_without_time(cells) for cells in found]

    return _watched(sample, options, _table, _monitor_json)


def metric(node: Node, devices: Sequence[int], options: argparse.Namespace) -> int:
    """`amd-smi metric`: groups of sensors of each device."""
    groups = [name for name in ("usage", "power", "clock", "temperature", "mem_usage") if getattr(options, name)]

    def sample() -> list[dict[str, Any]]:
        found = []
        for row in (row for row in node.readings() if row.device in devices):
            values = amd_smi.metric(row, node.device.memory_bytes)
            chosen = {name: values[name] for name in groups or values}
            place = {"timestamp": (row.unix_ns // 10**9, "")} if options.watch else {}
            found.append({**place, "gpu": (row.device, ""), **chosen})
        return found

    if options.csv:
        return _watched(lambda: [_flat(row) for row in sample()], options, _listing, _monitor_json)
    return _watched(sample, options, _listing, lambda rows: {"gpu_data": [amd_smi.with_units(row) for row in rows]})


def static(node: Node, devices: Sequence[int], options: argparse.Namespace) -> int:
    """`amd-smi static`: what the data of the device say."""
    device = node.device
    groups: dict[str, dict[str, Any]] = {
        "asic": {
            "market_name": (device.marketing_name, ""),
            "num_compute_units": (device.compute_units, ""),
            "target_graphics_version": (device.gfx, ""),
        },
        "vram": {
            "size": (device.memory_bytes // 2**20, "MB"),
            "max_bandwidth": (device.memory_bandwidth / 1e9, "GB/s"),
        },
        "limit": {"max_power": (round(device.power_watt), "W")},
    }
    chosen = {name: cells for name, cells in groups.items() if getattr(options, name)} or groups
    rows = [{"gpu": (number, ""), **chosen} for number in devices]
    return _once([_flat(row) for row in rows] if options.csv else rows, options)


def list_devices(node: Node, devices: Sequence[int], options: argparse.Namespace) -> int:
    """`amd-smi list`: numbers of the devices; HSA counts the two CPUs first."""
    rows = [
        {"gpu": (number, "")} | ({"hip_id": (number, ""), "hsa_id": (number + 2, "")} if options.numbers else {})
        for number in devices
    ]
    return _once(rows, options)


def process(node: Node, devices: Sequence[int], options: argparse.Namespace) -> int:
    """`amd-smi process`: the workload that is running."""
    ranks = node.run.ranks if node.run else ()
    rows: list[dict[str, Any]] = []
    for number in devices:
        own = [rank for rank in ranks if rank.device == number]
        if not own:
            rows.append({"gpu": (number, ""), "process_info": ("No running processes detected", "")})
        rows += [
            {"gpu": (number, ""), "process_info": {"name": ("python3", ""), "pid": (rank.process_id, "")}}
            for rank in own
        ]
    return _once([_flat(row) for row in rows] if options.csv else rows, options)


REPORTS: dict[str, Callable[[Node, Sequence[int], argparse.Namespace], int]] = {
    "monitor": monitor,
    "dmon": monitor,
    "metric": metric,
    "static": static,
    "list": list_devices,
    "process": process,
}


def _without_time(cells: Cells) -> Cells:
    return {name: cell for name, cell in cells.items() if name != "timestamp"}


def _flat(row: dict[str, Any]) -> Cells:
    found: Cells = {}
    for name, cell in row.items():
        if isinstance(cell, dict):
            # Two clocks have the same name below their domain.
            found |= {f"{name}_{key}" if key == "clk" else key: value for key, value in _flat(cell).items()}
        else:
            found[name] = cell
    return found


def _once(rows: list[dict[str, Any]], options: argparse.Namespace) -> int:
    text = _text(rows, options, _listing, lambda rows: [amd_smi.with_units(row) for row in rows])
    _out(text, options, append=True)
    return 0


def _watched(
    sample: Callable[[], list[dict[str, Any]]],
    options: argparse.Namespace,
    plain: Callable[[list[dict[str, Any]]], str],
    as_json: Callable[[list[dict[str, Any]]], Any],
) -> int:
    """One sample, or one every -w seconds for -W seconds or -i times; real seconds, as with the tool."""
    if not options.watch:
        _out(_text(sample(), options, plain, as_json), options, append=True)
        return 0
    if options.file is None:
        print(_WATCH_LINE)
    rows: list[dict[str, Any]] = []
    begin, count = time.monotonic(), 0
    while True:
        new = sample()
        rows += new
        count += 1
        # A file is rewritten with all samples; on a terminal each has its own header.
        _out(_text(rows if options.file else new, options, plain, as_json), options, append=False)
        next_sample = begin + count * options.watch
        over = options.watch_time is not None and next_sample - begin >= options.watch_time
        if over or (options.iterations is not None and count >= options.iterations):
            return 0
        time.sleep(max(0.0, next_sample - time.monotonic()))


def _text(
    rows: list[dict[str, Any]],
    options: argparse.Namespace,
    plain: Callable[[list[dict[str, Any]]], str],
    as_json: Callable[[list[dict[str, Any]]], Any],
) -> str:
    if options.json:
        return json.dumps(as_json(rows), indent=4) + "\n"
    return _csv(rows) if options.csv else plain(rows)


def _out(text: str, options: argparse.Namespace, append: bool) -> None:
    if options.file is None:
        print(text, end="", flush=True)
        return
    try:
        with Path(options.file).open("a" if append else "w") as target:
            target.write(text)
    except OSError as error:
        raise UserError(f"{options.file} cannot be written ({error.strerror}); give another --file") from error


def _monitor_json(rows: list[Cells]) -> list[dict[str, Any]]:
    return [amd_smi.with_units(row) for row in rows]


def _csv(rows: list[Cells]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n", restval="N/A")
    writer.writeheader()
    writer.writerows({name: "N/A" if value is None else value for name, (value, _) in row.items()} for row in rows)
    return text.getvalue()


def _shown(cell: tuple[Any, str]) -> str:
    value, unit = cell
    return "N/A" if value is None else f"{value} {_UNITS.get(unit, unit)}".strip()


def _table(rows: list[Cells]) -> str:
    """`amd-smi monitor` on a terminal; the default view has used and total memory in one column."""
    columns = [_joined_memory(row) for row in rows]
    names = list(columns[0])
    widths = {name: max(len(name), *(len(row[name]) for row in columns)) for name in names}
    lines = ["  ".join(name.rjust(widths[name]) for name in names)]
    lines += ["  ".join(row[name].rjust(widths[name]) for name in names) for row in columns]
    return "\n".join(lines) + "\n"


def _joined_memory(row: Cells) -> dict[str, str]:
    if "vram_percent" in row or "vram_used" not in row:
        return {HEADERS[name]: _shown(cell) for name, cell in row.items()}
    shown = {HEADERS[name]: _shown(cell) for name, cell in row.items() if not name.startswith("vram")}
    (used, _), (total, _) = row["vram_used"], row["vram_total"]
    return shown | {"VRAM_USAGE": f"{'N/A' if used is None else used}/{total} GB"}


def _listing(rows: list[dict[str, Any]]) -> str:
    """Names in capitals, indented by depth, one device after another."""
    return "\n".join("\n".join(_indented(row, 0)) + "\n" for row in rows)


def _indented(cells: dict[str, Any], depth: int) -> list[str]:
    lines = []
    for name, cell in cells.items():
        head = f"{'    ' * depth}{name.upper()}:"
        if isinstance(cell, dict):
            lines += [head, *_indented(cell, depth + 1)]
        else:
            lines.append(f"{head} {_shown(cell)}")
        if name == "gpu":
            depth += 1
    return lines
