"""Parse the command line, run a command and return an exit code. Each command imports only the
modules that it needs.
"""

from __future__ import annotations

import argparse
import math
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from tidyprof.command_line import Parser, add_version, parsed, program
from tidyprof.errors import LONGEST_LINE, ProfileReadError, UserError
from tidyprof.escaping import printable
from tidyprof.gate.metrics import METRICS
from tidyprof.package_data import table_of
from tidyprof.standard_streams import tell

BUG = 3
"""The exit code after a bug. Python uses exit code 1 for exceptions, but here exit code 1 means
that the gate fails.
"""

DISTRIBUTION = "tidyprof"
"""The name of the distribution that installs this package."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Exit code 0 means success. Exit code 1 means that the gate fails or that `isa --fail-on-spill`
    finds a spill. Exit code 2 means an error that the user can fix, 3 a bug, and 130 that the user
    pressed Ctrl-C.
    """
    try:
        return _run(parsed(build_parser(), arguments))
    except KeyboardInterrupt:
        return 130
    except Exception:
        tell(traceback.format_exc().rstrip())
        return BUG


def _run(options: argparse.Namespace) -> int:
    commands = import_module(f"tidyprof.cli.{'run' if options.command == 'run' else 'commands'}")
    try:
        return commands.COMMANDS[options.command](options) or 0
    except (UserError, ProfileReadError) as error:
        tell(f"error: {printable(str(error), LONGEST_LINE)}")
        return 2


def build_parser() -> argparse.ArgumentParser:
    """Return the parser for all commands and their options, as described in commands.toml."""
    described = table_of("cli/commands.toml")
    common = described.pop("common")
    parser = Parser(
        prog=program("tidyprof", "tidyprof"),
        description=(
            "Read the output of any profiler, find the bottleneck of a run, and compare two"
            " versions of a program."
        ),
        epilog="Formats are recognized by content. Exported tables contain times in nanoseconds.",
    )
    add_version(parser, DISTRIBUTION)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for name, command in described.items():
        _add(commands, name, command, common)
    return parser


def _add(commands: Any, name: str, command: dict[str, Any], common: dict[str, Any]) -> None:
    """Add a command, or a table of the command `table`."""
    text = command["help"]
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    parser.examples, parser.hint = command.get("examples", ()), command.get("hint", "")
    parser.usage = command.get("usage")
    if "names" in command:
        tables = parser.add_subparsers(required=True, metavar="NAME", dest="table")
        for table, described in command["names"].items():
            _add(tables, table, described, common)
    for place in command.get("pair", ()):
        parser.add_argument("files", action="append", metavar=place, **command["files"])
    single = () if "pair" in command else ("files", "program")
    for place in (one for one in single if one in command):
        parser.add_argument(place, **command[place])
    options = command.get("options", {}) | {one: common[one] for one in command.get("common", ())}
    exclusive = command.get("exclusive", ())
    either = parser.add_mutually_exclusive_group() if exclusive else parser
    for option, arguments in options.items():
        group = either if option in exclusive else parser
        kind = {"type": TYPES[arguments["type"]]} if "type" in arguments else {}
        choices = {"choices": METRICS} if option == "metric" else {}
        group.add_argument(f"--{option}", **arguments | kind | choices)


def _at_least(kind: Callable[[str], float], least: float) -> Callable[[str], float]:
    """Return an argument type that accepts numbers of at least `least`."""

    def number(text: str) -> float:
        try:
            found = kind(text.removesuffix("%"))
        except ValueError:
            found = math.nan
        if not least <= found < math.inf:
            raise argparse.ArgumentTypeError(
                f"must be a number of at least {least:g}, but you passed {text!r}"
            )
        return found

    return number


TYPES: dict[str, Callable[[str], float]] = {
    "count": _at_least(int, 0),
    "percent": _at_least(float, 0),
    "milliseconds": _at_least(float, 1e-6),
    "traced": _at_least(int, 1),
    "warm_up": _at_least(int, 3),
}
"""The functions that check and convert the values of options, by their names in commands.toml."""
