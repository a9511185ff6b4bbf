"""The command line of each tool: its options, and how it refuses them.

Options are in the TOML file of the tool's module: data, so that a release differs in a line of a
table.

The table of releases (proflab.releases) leaves out options that the followed release lacks; its key
is the last name of an option. In a file, `[options]` holds the options of all tools of the module,
`[tool.NAME]` those of one tool, `[commands.NAME]` a sub-command, and `[shared.NAME]` options that
commands take with `like`. An option is its names, and its help or the arguments of
`argparse.ArgumentParser.add_argument`, where

    flag       -- it takes no value
    switch     -- a flag that also takes a truth value
    count      -- a flag that is counted
    append     -- its values are collected
    type       -- int, float, path, lower, upper, metric, block, or a name in `[choices]`
    variable   -- the environment variable that holds the default
    exclusive  -- not together with other exclusive options
    unmodelled -- the real tool has it, the stand-in refuses it: see `refused`
"""

from __future__ import annotations

import argparse
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from proflab import releases
from proflab.standins import release
from tidyprof.errors import UserError

FOLDER = Path(__file__).parent

FAMILIES = {
    "omnistat-query": "omnistat",
    "omnistat-usermode": "omnistat",
    "rocprof-sys-avail": "rocprof-sys-avail",
    "rocprof-sys-run": "rocprof-sys",
    "rocprof-sys-sample": "rocprof-sys",
    "runTracer.sh": "rpd",
}
"""Tool -> its name in the table of releases, if that differs."""


class ToolError(UserError):
    """A message with which the real tool would end; `exit_code` is the real tool's, too."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def at_dashes(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before the first `--` and those after it; all words and none if there is no
    `--`.
    """
    words = list(arguments)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


@cache
def _table(module: str) -> Mapping[str, Any]:
    return tomllib.loads((FOLDER / f"{module}.toml").read_text(encoding="utf-8"))


def build_parser(
    module: str, tool: str, kind: type[argparse.ArgumentParser] = argparse.ArgumentParser
) -> argparse.ArgumentParser:
    """The parser of a tool, of the class `kind`."""
    table = _table(module)
    family, rocm = FAMILIES.get(tool, tool), release.rocm()
    parser = kind(
        prog=tool,
        usage=table.get("usage"),
        description=f"Stand-in for {tool} of ROCm {rocm}. {table.get('description', '')}",
        epilog=table.get("epilog"),
        allow_abbrev=False,
    )
    own = {**table, "options": table.get("options", {}) | table.get("tool", {}).get(tool, {})}
    _add(parser, table, own, partial(_has, rocm, family, tool))
    if "commands" in table or "unmodelled_commands" in table:
        commands = parser.add_subparsers(
            dest=table.get("dest", "command"), metavar="COMMAND", parser_class=kind
        )
        unmodelled = table.get("unmodelled_commands", "").split()
        for name, entry in table["commands"].items():
            if not releases.has(family, name, rocm):
                continue
            command = commands.add_parser(
                name, aliases=entry.get("aliases", []), allow_abbrev=False
            )
            _add(command, table, entry, partial(_has, rocm, family, name))
            if name in unmodelled:
                command.set_defaults(refused=name)
        # With a prefix that nobody types, no word is taken for an option.
        for name in set(unmodelled) - set(table["commands"]):
            command = commands.add_parser(name, add_help=False, prefix_chars="\0")
            command.add_argument("rest", nargs="*")
            command.set_defaults(refused=name)
    return parser


def refuse_unmodelled(options: argparse.Namespace) -> None:
    """Raises UserError if the command line asks for something that only the real tool does."""
    if refused := getattr(options, "refused", None):
        raise UserError(
            f"{refused} is not modelled here; on a machine with ROCm the real tool does it"
        )


class _Unmodelled(argparse.Action):
    """Takes an option of the real tool, and records its name."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, values)
        namespace.refused = option_string


def _has(rocm: str, family: str, command: str, option: str) -> bool:
    """Whether a tool or its command has an option in a release; the table may have a key such as
    `--path of profile`.
    """
    return releases.has(family, f"{option} of {command}", rocm) and releases.has(
        family, option, rocm
    )


def _add(
    parser: argparse.ArgumentParser,
    table: Mapping[str, Any],
    entry: Mapping[str, Any],
    is_there: Callable[[str], bool],
) -> None:
    """Add the options of a tool or a command that this release has."""
    exclusive: argparse._MutuallyExclusiveGroup | None = None
    absent: dict[str, Any] = {}
    rows = [row for name in entry.get("like", ()) for row in table["shared"][name].items()]
    for names, row in [*rows, *entry.get("options", {}).items()]:
        words = names.split()
        arguments = {"help": row} if isinstance(row, str) else dict(row)
        if not is_there(words[-1]):
            name = next((word for word in words if word.startswith("--")), words[0])
            absent.setdefault(
                arguments.get("dest", name.lstrip("-").replace("-", "_")), arguments.get("default")
            )
            continue
        if "choices" in arguments:
            arguments["choices"] = [
                word for word in arguments["choices"] if is_there(f"{words[-1]} {word}")
            ]
        target: argparse._ActionsContainer = parser
        if arguments.pop("exclusive", False):
            target = exclusive = exclusive or parser.add_mutually_exclusive_group()
        action = target.add_argument(*words, **_arguments(arguments, table.get("choices", {})))
        absent.pop(action.dest, None)
    # The code that reads the options need not know which of them this release has.
    parser.set_defaults(**absent)


def _arguments(row: dict[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of add_argument."""
    if kind := row.pop("type", None):
        row |= {"choices": choices[kind].split()} if kind in choices else {"type": _TYPES[kind]}
    # Choices in capitals may be typed in small letters, too.
    if kind in choices and choices[kind].isupper():
        row["type"] = str.upper
    if variable := row.pop("variable", None):
        row["default"] = os.environ.get(variable)
    if row.pop("switch", False):
        row |= {"nargs": "?", "const": True, "type": _truth, "metavar": "BOOL"}
    flag = row.pop("flag", False)
    if row.pop("unmodelled", False):
        return row | {"action": _Unmodelled} | ({"nargs": 0} if flag else {})
    for word, action in (("count", "count"), ("append", "append")):
        if row.pop(word, False):
            row |= {"action": action} | ({"default": 0} if word == "count" else {})
    return row | ({"action": "store_true"} if flag else {})


def _truth(text: str) -> bool:
    if text.lower() not in _YES + _NO:
        raise argparse.ArgumentTypeError(f"invalid truth value {text}")
    return text.lower() in _YES


def _metric(text: str) -> str:
    """A block, table or metric such as 2, 2.1 or 2.1.4."""
    if not re.fullmatch(r"\d+(\.\d{1,2}(\.\d{1,2})?)?", text):
        what = "metric id" if release.is_at_least("7.1") else "hardware block or metric id"
        raise argparse.ArgumentTypeError(f"Invalid {what}: {text}")
    return text


def _block(text: str) -> str:
    """A value of `--block` of `rocprof-compute profile`: hardware blocks before ROCm 7.1, numbers
    since 7.0.
    """
    from gpumodel.writers.rocprof_compute.counters import HARDWARE_BLOCKS

    if text in HARDWARE_BLOCKS and release.has("rocprof-compute", "--block SQ"):
        return text
    if not release.has("rocprof-compute", "--block NUMBER of profile"):
        raise argparse.ArgumentTypeError(
            f"invalid choice: {text!r} (choose from {', '.join(HARDWARE_BLOCKS)})"
        )
    return _metric(text)


_YES, _NO = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")

_TYPES: Mapping[str, Callable[[str], Any]] = {
    "block": _block,
    "float": float,
    "int": int,
    "lower": str.lower,
    "metric": _metric,
    "path": Path,
    "truth": _truth,
    "upper": str.upper,
}
