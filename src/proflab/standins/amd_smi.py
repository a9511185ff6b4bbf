"""Stand-in for amd-smi: version, list, static, metric, monitor, process.

Options and errors: github.com/ROCm/rocm-systems, projects/amdsmi, amdsmi_cli (26.2, ROCm 7.2).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cifar_train.errors import UserError
from proflab.standins import release
from proflab.standins.errors import ToolError

if TYPE_CHECKING:
    from proflab.standins.sensors import Node

MONITOR_FLAGS = {
    "p": ("power-usage", "power and its limit"),
    "t": ("temperature", "temperatures"),
    "u": ("gfx", "activity and clock of the compute units"),
    "m": ("mem", "activity and clock of the memory"),
    "n": ("encoder", "encoder"),
    "d": ("decoder", "decoder"),
    "e": ("ecc", "ECC errors"),
    "v": ("vram-usage", "memory in use"),
    "r": ("pcie", "PCIe bandwidth"),
    "q": ("process", "processes"),
    "V": ("violation", "throttling"),
}
MODELLED_FLAGS = "ptumv"
INVALID_COMMAND, INVALID_PARAMETER, NO_DEVICE, INVALID_VALUE, MISSING_VALUE = 255, 254, 253, 251, 250
"""Exit codes: amd-smi ends with -1, -2, -3, -5 and -6."""

COMMANDS = ("version", "list", "static", "metric", "monitor", "dmon", "process")
KNOWN_BUT_NOT_MODELLED = (
    "firmware", "ucode", "bad-pages", "event", "topology", "set", "reset", "xgmi", "partition", "ras", "node",
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line with amd-smi's words and exit code."""
        subject = message.rpartition(": ")[2].split(" ")[0]
        if "expected" in message and "argument" in message:
            name = message.removeprefix("argument ").partition(":")[0]
            raise ToolError(
                f"Parameter '{name}' requires a value. Run '--help' for more info. Error code: -6", MISSING_VALUE
            )
        if message.startswith("argument ") and "invalid" in message:
            value = message.rpartition(": ")[2].strip("'")
            raise ToolError(
                f"Value '{value}' is not of valid type or format. Run '--help' for more info. Error code: -5",
                INVALID_VALUE,
            )
        raise ToolError(
            f"Parameter '{subject}' is invalid. Run '--help' for more info. Error code: -2", INVALID_PARAMETER
        )


def main(tool: str, arguments: list[str]) -> int:
    """Run the stand-in; 0, or amd-smi's exit code for what it refuses."""
    if not arguments or arguments[0] in ("-h", "--help"):
        build_parser(tool).print_help()
        return 0
    if arguments[0] not in COMMANDS:
        if arguments[0] in KNOWN_BUT_NOT_MODELLED:
            raise ToolError(f"{tool}: stand-in: {arguments[0]} is not modelled; there are {', '.join(COMMANDS)}", 2)
        raise ToolError(
            f"Command '{arguments[0]}' is invalid. Run '--help' for more info. Error code: -1", INVALID_COMMAND
        )
    options = build_parser(tool).parse_args(arguments)
    if options.command == "version":
        print(_version(options))
        return 0
    from proflab.standins import amd_smi_reports
    from proflab.standins.sensors import Node, announce_node

    node = Node()
    devices = _devices(options.gpu, node)
    announce_node(tool, node)
    if getattr(options, "file", None):
        _mark(Path(options.file), node.device.name)
    return amd_smi_reports.REPORTS[options.command](node, devices, options)


def _mark(log: Path, device: str) -> None:
    """Leave a note beside a log that it is modelled. Raises UserError where that cannot be written."""
    from gpumodel.known_error import model_error

    note = {"modelled": {"by": "gpumodel", "device": device, "error": model_error()}}
    try:
        log.with_name(f"{log.stem}_modelled.json").write_text(json.dumps(note) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{log} cannot be written ({error.strerror}); give another --file") from error


def build_parser(tool: str) -> argparse.ArgumentParser:
    """The commands that are modelled with their options, and the others' names."""
    parser = _Parser(
        prog=tool, description=f"Stand-in for {tool} {release.AMD_SMI} (ROCm {release.ROCM}).", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", parser_class=_Parser, metavar="COMMAND")
    for name, text in (
        ("version", "versions"),
        ("list", "devices"),
        ("static", "what does not change"),
        ("metric", "sensors, one device after another"),
        ("monitor", "sensors as a table"),
        ("process", "processes on the devices"),
    ):
        command = commands.add_parser(
            name, help=text, aliases=["dmon"] if name == "monitor" else [], allow_abbrev=False
        )
        _add_common(command, watch=name in ("metric", "monitor", "process"))
        _OWN_OPTIONS.get(name, lambda command: None)(command)
    for name in KNOWN_BUT_NOT_MODELLED:  # without hyphens for options, whatever follows is taken as it is
        commands.add_parser(name, add_help=False, prefix_chars="\0").add_argument("rest", nargs="*")
    return parser


def _add_common(command: argparse.ArgumentParser, watch: bool) -> None:
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--csv", action="store_true", help="print CSV")
    command.add_argument("--file", help="write into a file")
    command.add_argument("--loglevel", choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))
    command.add_argument("-g", "--gpu", nargs="+", default=["all"], help="numbers of devices, or all")
    if watch:
        command.add_argument("-w", "--watch", type=int, metavar="SECONDS", help="repeat every so many seconds")
        command.add_argument("-W", "--watch_time", type=int, metavar="SECONDS", help="for so long")
        command.add_argument("-i", "--iterations", type=int, metavar="N", help="so many times")


def _add_monitor(command: argparse.ArgumentParser) -> None:
    for letter, (name, text) in MONITOR_FLAGS.items():
        command.add_argument(f"-{letter}", f"--{name}", dest=f"show_{letter}", action="store_true", help=text)


def _add_metric(command: argparse.ArgumentParser) -> None:
    for letter, name in (("u", "usage"), ("p", "power"), ("c", "clock"), ("t", "temperature"), ("m", "mem-usage")):
        command.add_argument(f"-{letter}", f"--{name}", action="store_true", help=f"{name} only")


def _add_list(command: argparse.ArgumentParser) -> None:
    command.add_argument("-e", action="store_true", dest="numbers", help="numbers that HSA and HIP use")


def _add_static(command: argparse.ArgumentParser) -> None:
    for letter, name in (("a", "asic"), ("v", "vram"), ("l", "limit")):
        command.add_argument(f"-{letter}", f"--{name}", action="store_true", help=f"{name} only")


_OWN_OPTIONS = {"monitor": _add_monitor, "metric": _add_metric, "list": _add_list, "static": _add_static}


def _devices(wanted: list[str], node: Node) -> list[int]:
    if wanted == ["all"]:
        return list(node.devices)
    for text in wanted:
        if not text.isdecimal() or int(text) not in node.devices:
            raise ToolError(
                f"GPU Device with GPU_INDEX '{text}' cannot be found on the system. Error code: -3", NO_DEVICE
            )
    return [int(text) for text in wanted]


def _version(options: argparse.Namespace) -> str:
    values: dict[str, Any] = {
        "tool": "AMDSMI Tool",
        "version": f"{release.AMD_SMI}+{release.REVISION}",
        "amdsmi_library_version": release.AMD_SMI,
        "rocm_version": release.ROCM,
    }
    if options.json:
        return json.dumps([values], indent=4)
    if options.csv:
        return f"{','.join(values)}\n{','.join(values.values())}"
    return (
        f"AMDSMI Tool: {values['version']} | AMDSMI Library version: {release.AMD_SMI} | ROCm version: {release.ROCM}"
    )
