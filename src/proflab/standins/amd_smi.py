"""Stand-in for amd-smi: version and monitor, with the refusals of amdsmi_cli 26.2 (ROCm 7.2)."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from proflab.standins import release
from proflab.standins.options import ToolError
from tidyprof.errors import UserError
from tidyprof.whole_files import locked, whole_file

if TYPE_CHECKING:
    from proflab.standins.sensors import Node

MONITOR_FLAGS = "ptumv"
INVALID_COMMAND, INVALID_PARAMETER, NO_DEVICE, INVALID_VALUE, MISSING_VALUE = (
    255,
    254,
    253,
    251,
    250,
)
"""Exit codes: those of amd-smi's -1, -2, -3, -5 and -6."""

Cells = dict[str, tuple[Any, str]]
"""A row: key of the column -> value and unit."""

HEADERS = {
    "timestamp": "TIMESTAMP",
    "gpu": "GPU",
    "xcp": "XCP",
    "power_usage": "POWER",
    "max_power": "PWR_CAP",
    "hotspot_temperature": "GPU_T",
    "memory_temperature": "MEM_T",
    "gfx_clk": "GFX_CLK",
    "gfx": "GFX%",
    "mem": "MEM%",
    "mem_clock": "MEM_CLOCK",
    "encoder": "ENC%",
    "decoder": "DEC%",
    "vram_used": "VRAM_USED",
    "vram_free": "VRAM_FREE",
    "vram_total": "VRAM_TOTAL",
    "vram_percent": "VRAM%",
}
"""Key of a column of `amd-smi monitor`, in CSV and JSON -> its heading."""

_UNITS = {"C": "°C"}


class PARSER(argparse.ArgumentParser):
    """A parser that refuses as amd-smi does."""

    def error(self, message: str) -> NoReturn:
        """Raise ToolError with one line in amd-smi's words and its exit code."""
        # argparse tells only by its message what is wrong.
        value = message.rpartition(": ")[2].strip("'")
        what, code, status = f"Parameter '{value.split(' ')[0]}' is invalid", -2, INVALID_PARAMETER
        if message.startswith("argument COMMAND"):
            name = message.partition("invalid choice: '")[2].partition("'")[0]
            what, code, status = f"Command '{name}' is invalid", -1, INVALID_COMMAND
        elif "expected" in message and "argument" in message:
            name = message.removeprefix("argument ").partition(":")[0]
            what, code, status = f"Parameter '{name}' requires a value", -6, MISSING_VALUE
        elif message.startswith("argument ") and "invalid" in message:
            what, code, status = (
                f"Value '{value}' is not of valid type or format",
                -5,
                INVALID_VALUE,
            )
        raise ToolError(f"{what}. Run '--help' for more info. Error code: {code}", status)


def run(tool: str, options: argparse.Namespace, program: Sequence[str]) -> int:
    """Show the modelled node. Returns 0; raises ToolError with amd-smi's exit code for anything
    that the tool refuses.
    """
    if options.command == "version":
        print(_version(options))
        return 0
    from proflab.standins.sensors import Node, announce_node

    node = Node()
    devices = _devices(options.gpu, node)
    announce_node(tool, node)
    if not options.file:
        _monitor(node, devices, options)
        return 0
    log = Path(options.file)
    _refuse_to_ask(log, options)
    with _alone(log):
        _mark(log, node.device.name)
        _monitor(node, devices, options)
    return 0


@contextmanager
def _alone(log: Path) -> Iterator[None]:
    """Hold the log: of two monitors, each would replace the other's text. Raises UserError if
    another one holds it.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(log.with_name(f".{log.name}.lock")))
        except BlockingIOError as error:
            raise UserError(
                f"{log} is in use by another amd-smi; wait for its end, or give another --file"
            ) from error
        except OSError as error:
            raise _unwritable(log, error) from error
        yield


def _unwritable(log: Path, error: OSError) -> UserError:
    return UserError(f"{log} cannot be written ({error.strerror}); give another --file")


def _refuse_to_ask(log: Path, options: argparse.Namespace) -> None:
    """Newer releases ask whether to overwrite or append; without a terminal they refuse, since they
    would wait for ever. Raises ToolError.
    """
    asks = release.has("amd-smi", "--append") and not (options.overwrite or options.append)
    if log.exists() and asks and not sys.stdin.isatty():
        raise ToolError(
            f"File '{log}' exists and stdin is not a TTY; cannot prompt to overwrite or append."
            " Re-run with --overwrite or --append.",
            1,
        )


def _mark(log: Path, device: str) -> None:
    """Leave a note beside a log that it is modelled. Raises UserError if the note cannot be
    written.
    """
    from gpumodel.devices import model_error

    note = {"modelled": {"by": "gpumodel", "device": device, "error": model_error()}}
    try:
        with whole_file(log.with_name(f"{log.stem}_modelled.json")) as partial:
            partial.write_text(json.dumps(note) + "\n", encoding="utf-8")
    except OSError as error:
        raise _unwritable(log, error) from error


def _devices(wanted: list[str], node: Node) -> list[int]:
    if wanted == ["all"]:
        return list(node.devices)
    for text in wanted:
        if not text.isdecimal() or int(text) not in node.devices:
            raise ToolError(
                f"GPU Device with GPU_INDEX '{text}' cannot be found on the system. Error code: -3",
                NO_DEVICE,
            )
    return [int(text) for text in wanted]


def _version(options: argparse.Namespace) -> str:
    values = {
        "tool": "AMDSMI Tool",
        "version": f"{release.version_of('amd-smi')}+{release.REVISION}",
        "amdsmi_library_version": release.version_of("amd-smi"),
        "rocm_version": release.rocm(),
    }
    if options.json:
        return json.dumps([values], indent=4)
    if options.csv:
        return f"{','.join(values)}\n{','.join(values.values())}"
    names = ("AMDSMI Tool", "AMDSMI Library version", "ROCm version")
    return " | ".join(
        f"{name}: {value}" for name, value in zip(names, list(values.values())[1:], strict=True)
    )


def _monitor(node: Node, devices: Sequence[int], options: argparse.Namespace) -> None:
    """One sample, or one every -w seconds for -W seconds or -i times; in real time, as the tool
    does.
    """
    if not options.watch:
        _out(_text(_sample(node, devices, options), options), options, append=not options.overwrite)
        return
    if options.file is None:
        print("'CTRL' + 'C' to stop watching output:")
    rows: list[Cells] = []
    begin, count = time.monotonic(), 0
    while True:
        new = _sample(node, devices, options)
        rows += new
        count += 1
        # A file is rewritten with all samples; on a terminal each sample has its own header.
        _out(_text(rows if options.file else new, options), options, append=False)
        next_sample = begin + count * options.watch
        over = options.watch_time is not None and next_sample - begin >= options.watch_time
        if over or (options.iterations is not None and count >= options.iterations):
            return
        time.sleep(max(0.0, next_sample - time.monotonic()))


def _sample(node: Node, devices: Sequence[int], options: argparse.Namespace) -> list[Cells]:
    from gpumodel.writers.system import amd_smi

    asked = "".join(letter for letter in MONITOR_FLAGS if getattr(options, f"show_{letter}"))
    memory, limit = node.device.memory_bytes, node.device.power_watt
    found = [
        amd_smi.monitor(row, asked, memory, limit)
        for row in node.readings()
        if row.device in devices
    ]
    hidden = () if options.watch else ("timestamp",)
    return [{name: cell for name, cell in cells.items() if name not in hidden} for cells in found]


def _text(rows: list[Cells], options: argparse.Namespace) -> str:
    if options.json:
        from gpumodel.writers.system.amd_smi import with_units

        return json.dumps([with_units(row) for row in rows], indent=4) + "\n"
    return _csv(rows) if options.csv else _table(rows)


def _out(text: str, options: argparse.Namespace, append: bool) -> None:
    if options.file is None:
        print(text, end="", flush=True)
        return
    log = Path(options.file)
    try:
        with whole_file(log) as partial:
            partial.write_text((log.read_text() if append and log.exists() else "") + text)
    except OSError as error:
        raise _unwritable(log, error) from error


def _csv(rows: list[Cells]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n", restval="N/A")
    writer.writeheader()
    writer.writerows(
        {name: "N/A" if value is None else value for name, (value, _) in row.items()}
        for row in rows
    )
    return text.getvalue()


def _shown(cell: tuple[Any, str]) -> str:
    value, unit = cell
    return "N/A" if value is None else f"{value} {_UNITS.get(unit, unit)}".strip()


def _table(rows: list[Cells]) -> str:
    """The table on a terminal; without options it has used and total memory in one column."""
    columns = [_joined_memory(row) for row in rows]
    names = list(columns[0])
    widths = {name: max(len(name), *(len(row[name]) for row in columns)) for name in names}
    lines = ["  ".join(name.rjust(widths[name]) for name in names)]
    lines += ["  ".join(row[name].rjust(widths[name]) for name in names) for row in columns]
    return "\n".join(lines) + "\n"


def _joined_memory(row: Cells) -> dict[str, str]:
    if "vram_percent" in row or "vram_used" not in row:
        return {HEADERS[name]: _shown(cell) for name, cell in row.items()}
    shown = {
        HEADERS[name]: _shown(cell) for name, cell in row.items() if not name.startswith("vram")
    }
    (used, _), (total, _) = row["vram_used"], row["vram_total"]
    return shown | {"VRAM_USAGE": f"{'N/A' if used is None else used}/{total} GB"}
