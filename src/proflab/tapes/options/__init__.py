"""Command-line parsers of the tools, read from one TOML file per tool family.

The release table (proflab.releases) removes options that the selected release doesn't support. In
the release table, the key of an option is the last of its names. A TOML file contains these
tables:

- `[options]`: options of all tools in the family
- `[tool.NAME]`: options of one tool
- `[commands.NAME]`: options of one subcommand
- `[shared.NAME]`: options that commands include with `like`

The key of an option contains its names. The value is either the help text or a table of arguments
for `argparse.ArgumentParser.add_argument`. An option can also have these keys:

- flag: the option doesn't take a value
- switch: the option is a flag that also accepts a truth value
- append: the option collects its values
- type: int, float, path, lower, upper, metric, or a name in `[choices]`
- variable: the environment variable that contains the default
- exclusive: the option can't be combined with other exclusive options
- role: place (output location), input (a file to read) or ignored (doesn't select a tape)
- sets: the rocprof-sys settings that the option's values set

The file also describes the behavior of a tool with these keys:

- family: name of the tool in the release table
- error_code and refusals: behavior for wrong command lines
- version: output of --version
- workload: tools whose program is named by an environment variable
- reads: prefix of the environment variables that the tool reads
- files: output locations of the tool
"""

from __future__ import annotations

import argparse
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from proflab import releases
from proflab.tapes import release
from tidyprof.errors import UserError

FOLDER = Path(__file__).parent

TOOLS = {
    "amd-smi": "amd_smi",
    "omnistat-query": "omnistat",
    "omnistat-usermode": "omnistat",
    "rocpd": "rocpd",
    "rocprof-compute": "rocprof_compute",
    "rocprof-sys-avail": "rocprof_sys_avail",
    "rocprof-sys-run": "rocprof_sys",
    "rocprof-sys-sample": "rocprof_sys",
    "rocprofv3": "rocprofv3",
    "rocprofv3-avail": "rocprofv3_avail",
    "rpd2tracing": "rpd2tracing",
    "runTracer.sh": "run_tracer",
}
"""TOML file with the options of each tool."""


class ToolError(UserError):
    """Error message of the real tool. `exit_code` is the real tool's exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ToolParser(argparse.ArgumentParser):
    """Argument parser that raises ToolError with the tool's own exit code.

    - roles: role of each option, by the option's dest
    - sets: settings that each option's values set, by the option's dest
    """

    code = 2

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.roles: dict[str, str] = {}
        self.sets: dict[str, list[str]] = {}

    def error(self, message: str) -> NoReturn:
        """Raise ToolError."""
        raise ToolError(f"{self.prog}: error: {message}", self.code)


@cache
def table_of(tool: str) -> Mapping[str, Any]:
    """Return a tool's table from its TOML file."""
    return tomllib.loads((FOLDER / f"{TOOLS[tool]}.toml").read_text(encoding="utf-8"))


def split(tool: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the tool's own arguments and the command line of the program that it starts."""
    words = list(arguments)
    if "--" not in words and table_of(tool).get("program_without_dashes"):
        words.insert(2 if words[:1] == ["-o"] else 0, "--")
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def build_parser(tool: str) -> ToolParser:
    """Return a tool's parser for the selected release."""
    table, rocm = table_of(tool), release.rocm()
    family = table.get("family", tool)

    def is_there(command: str, option: str) -> bool:
        return releases.has(family, f"{option} of {command}", rocm) and releases.has(
            family, option, rocm
        )

    parser = ToolParser(
        prog=tool,
        usage=table.get("usage"),
        description=f"Replay tapes of {tool} from ROCm {rocm}.",
        allow_abbrev=False,
    )
    parser.code = table.get("error_code", 2)
    own = {**table, "options": table.get("options", {}) | table.get("tool", {}).get(tool, {})}
    _add(parser, parser, table, own, lambda option: is_there(tool, option))
    if "commands" in table:
        commands = parser.add_subparsers(dest="command", metavar="COMMAND")
        for name, entry in table["commands"].items():
            if releases.has(family, name, rocm):
                command = commands.add_parser(
                    name,
                    aliases=entry.get("aliases", []),
                    allow_abbrev=False,
                    prefix_chars=entry.get("prefix", "-"),
                )
                command.code = parser.code
                _add(parser, command, table, entry, lambda option, of=name: is_there(of, option))
    return parser


def _add(
    roles: ToolParser,
    parser: argparse.ArgumentParser,
    table: Mapping[str, Any],
    entry: Mapping[str, Any],
    is_there: Callable[[str], bool],
) -> None:
    """Add the options of a tool or command that exist in this release."""
    exclusive: argparse._MutuallyExclusiveGroup | None = None
    rows = [row for name in entry.get("like", ()) for row in table["shared"][name].items()]
    for names, row in [*rows, *entry.get("options", {}).items()]:
        words = names.split()
        arguments = {"help": row} if isinstance(row, str) else dict(row)
        if not is_there(words[-1]):
            continue
        if "choices" in arguments:
            arguments["choices"] = [
                word for word in arguments["choices"] if is_there(f"{words[-1]} {word}")
            ]
        target: argparse._ActionsContainer = parser
        if arguments.pop("exclusive", False):
            target = exclusive = exclusive or parser.add_mutually_exclusive_group()
        role, sets = arguments.pop("role", ""), arguments.pop("sets", [])
        action = target.add_argument(*words, **_arguments(arguments, table.get("choices", {})))
        roles.roles[action.dest], roles.sets[action.dest] = role, sets


def _arguments(row: dict[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """Return an option's arguments for add_argument."""
    if kind := row.pop("type", None):
        row |= {"choices": choices[kind].split()} if kind in choices else {"type": _TYPES[kind]}
    # Users may also type uppercase choices in lowercase.
    if kind in choices and choices[kind].isupper():
        row["type"] = str.upper
    if variable := row.pop("variable", None):
        row["default"] = os.environ.get(variable, row.get("default"))
    if row.pop("switch", False):
        row |= {"nargs": "?", "const": True, "type": _truth, "metavar": "BOOL"}
    for word, action in (("append", "append"), ("flag", "store_true")):
        if row.pop(word, False):
            row["action"] = action
    return row


def _truth(text: str) -> bool:
    if text.lower() not in _YES + _NO:
        raise argparse.ArgumentTypeError(f"invalid truth value {text}")
    return text.lower() in _YES


def _metric(text: str) -> str:
    """Return the number of a block, table or metric, such as 2, 2.1 or 2.1.4."""
    if not re.fullmatch(r"\d+(\.\d{1,2}(\.\d{1,2})?)?", text):
        raise argparse.ArgumentTypeError(f"Invalid metric id: {text}")
    return text


_YES, _NO = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")

_TYPES: Mapping[str, Callable[[str], Any]] = {
    "float": float,
    "int": int,
    "lower": str.lower,
    "metric": _metric,
    "path": Path,
    "truth": _truth,
    "upper": str.upper,
}
