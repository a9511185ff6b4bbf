"""What a command line asks of a tool: the options that select a tape, and where output goes."""

from __future__ import annotations

import argparse
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from proflab.tapes import release
from proflab.tapes.options import ToolError, ToolParser, build_parser, split, table_of
from proflab.tapes.programs import Program, read_program
from proflab.tapes.settings import IGNORED, settings_of

WORKLOAD = "PROFLAB_WORKLOAD"
"""Variable with the program that runs while a monitor watches."""

SHA = "sha256:"
"""In a tape's arguments, start of the digest that stands for an input file."""


@cache
def _parser_in(tool: str, rocm: str) -> ToolParser:
    return build_parser(tool)


def _parser(tool: str) -> ToolParser:
    return _parser_in(tool, release.rocm())


@dataclass(frozen=True)
class Request:
    """A command line that its tool accepts.

    key    -- what selects a tape: equal keys ask for equal output.
    places -- name of an option that says where output goes -> its value.
    """

    tool: str
    options: argparse.Namespace
    program: Program
    key: Mapping[str, Any]
    places: Mapping[str, str]


def parse(tool: str, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the tool's options and the words of the program that it starts.

    Raises ToolError if the tool of the followed release refuses the command line.
    """
    own, program = split(tool, arguments)
    options = _parser(tool).parse_args(own)
    given = {name for name, value in vars(options).items() if value not in (None, False, [])}
    given |= {"program"} if program else set()
    if not {"version", "list_avail"} & given:
        for row in table_of(tool).get("refusals", ()):
            asked = not row.get("given") or given & {*row["given"]}
            if asked and not given & {*row["missing"]} and options_command(options, row):
                raise ToolError(row["message"], row["exit_code"])
    return options, program


def options_command(options: argparse.Namespace, row: Mapping[str, Any]) -> bool:
    """Return True if a refusal concerns the subcommand of these options."""
    return row.get("command") in (None, getattr(options, "command", None))


def understand(tool: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Request:
    """Return what a command line asks of a tool. Raises ToolError if the tool refuses it."""
    options, words = parse(tool, arguments)
    table, parser = table_of(tool), _parser(tool)
    if tool in table.get("workload", ()) and not words:
        words = shlex.split(environment.get(WORKLOAD, ""))
    program = read_program(words, environment)
    key: dict[str, Any] = {"program": program.key, "ranks": program.ranks}
    places: dict[str, str] = {}
    chosen: dict[str, str] = dict(table.get("implied", {}).get(tool, {}))
    for name, value in vars(options).items():
        role = parser.roles.get(name, "")
        if parser.sets.get(name):
            values = value if isinstance(value, list) else [value]
            given = [] if value in (None, False) else values or ["true"]
            chosen |= {
                setting: str(one).lower() if one is True else str(one)
                for setting, one in zip(parser.sets[name], given, strict=False)
            }
        elif role == "place":
            places |= {} if value is None else {name: str(value)}
        elif role == "input" and name != "config":
            key[name] = [digest(Path(path)) for path in _flat(value)]
        elif not role:
            key[name] = sorted(map(str, value)) if isinstance(value, list) else value
    if "settings" in table:
        settings = settings_of(options.config, environment, chosen)
        places |= {name: settings.pop(name) for name in table["settings"]}
        key |= {name: value for name, value in settings.items() if name not in IGNORED}
    if program.run_folder:
        places["run_dir"] = program.run_folder
    return Request(tool, options, program, key, places)


def digest(path: Path) -> str:
    """Return the digest of a file's content, or of all files in a folder with their names.

    A path that is a digest already, or that doesn't exist, is returned as it is.
    """
    if path.is_file():
        return SHA + hashlib.sha256(path.read_bytes()).hexdigest()
    if not path.is_dir():
        return str(path)
    found = hashlib.sha256()
    for file in sorted(one for one in path.rglob("*") if one.is_file()):
        found.update(f"{file.relative_to(path)} {digest(file)}\n".encode())
    return SHA + found.hexdigest()


def _flat(value: Any) -> list[str]:
    if isinstance(value, list):
        return [text for one in value for text in _flat(one)]
    return [] if value is None else [str(value)]
