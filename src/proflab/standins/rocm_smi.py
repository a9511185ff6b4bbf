"""Stand-in for rocm-smi.

Options and keys: github.com/ROCm/rocm-systems, projects/rocm-smi-lib, python_smi_tools/rocm_smi.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cifar_train.errors import UserError
from proflab.standins import release

if TYPE_CHECKING:
    from proflab.standins.sensors import Node

KEYS = {
    "showuse": ("GPU use (%)",),
    "showmemuse": ("GPU Memory Allocated (VRAM%)", "GPU Memory Read/Write Activity (%)"),
    "showpower": ("Current Socket Graphics Package Power (W)",),
    "showtemp": (
        "Temperature (Sensor edge) (C)",
        "Temperature (Sensor junction) (C)",
        "Temperature (Sensor memory) (C)",
    ),
    "showclocks": ("sclk clock speed:", "mclk clock speed:"),
    "showmeminfo": ("VRAM Total Memory (B)", "VRAM Total Used Memory (B)"),
    "showmaxpower": ("Max Graphics Package Power (W)",),
}
"""Option -> the keys that it shows."""


def main(tool: str, arguments: list[str]) -> int:
    """Run the stand-in; 0, or 2 for a wrong option."""
    options = build_parser(tool).parse_args(arguments)
    if options.version:
        _print_version(options)
        return 0
    from proflab.standins.sensors import Node, announce_node

    node = Node()
    announce_node(tool, node)
    wanted = [key for name, keys in KEYS.items() if getattr(options, name) for key in keys]
    if options.showpids:
        _print_processes(node)
    elif not wanted:
        print("NOT_SUPPORTED" if options.json or options.csv else _overview(node))
    else:
        _print_cards(node, wanted, options)
    return 0


def build_parser(tool: str) -> argparse.ArgumentParser:
    """The options that are modelled."""
    parser = argparse.ArgumentParser(
        prog=tool, description=f"Stand-in for {tool} of ROCm {release.ROCM}.", allow_abbrev=False
    )
    parser.add_argument("-V", "--version", action="store_true", help="print versions and exit")
    parser.add_argument("-d", "--device", type=int, nargs="+", help="numbers of devices")
    parser.add_argument("-u", "--showuse", action="store_true", help="activity")
    parser.add_argument("--showmemuse", action="store_true", help="memory in use and its activity")
    parser.add_argument("-P", "--showpower", action="store_true", help="power")
    parser.add_argument("-t", "--showtemp", action="store_true", help="temperatures")
    parser.add_argument("-c", "--showclocks", action="store_true", help="clocks")
    parser.add_argument("--showmeminfo", nargs="+", choices=("vram", "vis_vram", "gtt", "all"), help="bytes of memory")
    parser.add_argument("-M", "--showmaxpower", action="store_true", help="limit of power")
    parser.add_argument("--showpids", nargs="?", const="summary", help="processes")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--csv", action="store_true", help="print CSV")
    return parser


def _print_version(options: argparse.Namespace) -> None:
    values = {
        "ROCM-SMI version": f"{release.ROCM_SMI}+{release.REVISION}",
        "ROCM-SMI-LIB version": release.ROCM_SMI_LIBRARY,
    }
    if options.json:
        print(json.dumps(values))
        return
    separator = ", " if options.csv else ": "
    print("\n".join(f"{name}{separator}{value}" for name, value in values.items()))


def _cards(node: Node, options: argparse.Namespace) -> dict[int, dict[str, str]]:
    from gpumodel.writers.system.rocm_smi import card as shown_of

    limit = {"Max Graphics Package Power (W)": str(node.device.power_watt)}
    cards = {row.device: shown_of(row, node.device.memory_bytes) | limit for row in node.readings()}
    for number in options.device or ():
        if number not in cards:
            raise UserError(f"there is no device {number}; the modelled node has 0 to {len(cards) - 1}")
    return {number: card for number, card in cards.items() if not options.device or number in options.device}


def _print_cards(node: Node, wanted: Iterable[str], options: argparse.Namespace) -> None:
    shown = {f"card{number}": {key: card[key] for key in wanted} for number, card in _cards(node, options).items()}
    if options.json:
        print(json.dumps(shown))
    elif options.csv:
        print(",".join(["device", *wanted]))
        for name, card in shown.items():
            print(",".join([name, *card.values(), ""]))
    else:
        for name, card in shown.items():
            print("\n".join(f"GPU[{name.removeprefix('card')}]\t\t: {key}: {value}" for key, value in card.items()))


def _overview(node: Node) -> str:
    """The table without options; columns that the model does not know are left out."""
    head = ["Device", "Temp", "Power", "SCLK", "MCLK", "PwrCap", "VRAM%", "GPU%"]
    rows = [head]
    from gpumodel.writers.system.rocm_smi import card as shown_of

    for row in node.readings():
        card = shown_of(row, node.device.memory_bytes)
        rows.append(
            [
                str(row.device),
                _with(card["Temperature (Sensor junction) (C)"], "°C"),
                _with(card["Current Socket Graphics Package Power (W)"], "W"),
                card["sclk clock speed:"].strip("()"),
                card["mclk clock speed:"].strip("()"),
                f"{node.device.power_watt}W",
                _with(card["GPU Memory Allocated (VRAM%)"], "%"),
                _with(card["GPU use (%)"], "%"),
            ]
        )
    widths = [max(len(line[place]) for line in rows) for place in range(len(head))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in rows)


def _with(value: str, unit: str) -> str:
    return value if value == "N/A" else f"{value}{unit}"


def _print_processes(node: Node) -> None:
    print("KFD process information:")
    ranks = node.run.ranks if node.run else ()
    if not ranks:
        print("No KFD PIDs currently running")
        return
    print("PID\tPROCESS NAME\tGPU(s)")
    for rank in ranks:
        print(f"{rank.process_id}\tpython3\t{rank.device}")
