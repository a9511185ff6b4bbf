"""Requests in command lines: the options that select a tape, and the output locations."""

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
from proflab.tapes.programs import IGNORED, Program, read_program
from proflab.tapes.settings import settings_of

WORKLOAD = "PROFLAB_WORKLOAD"
"""Environment variable that names the program to run while a monitor records."""

SHA = "sha256:"
"""Prefix of a digest that represents an input file in a tape's arguments."""


@dataclass(frozen=True)
class Request:
    """Command line that the tool accepts.

    - key: the part that selects a tape. Equal keys request the same output.
    - places: values of the options that set output locations, by option name.
    """

    tool: str
    options: argparse.Namespace
    program: Program
    key: Mapping[str, Any]
    places: Mapping[str, str]


@cache
def _parser(tool: str, rocm: str) -> ToolParser:
    return build_parser(tool)


def parse(tool: str, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the tool's options and the command line of the program that it starts.

    Raises ToolError if the tool's selected release rejects the command line.
    """
    own, program = split(tool, arguments)
    options = _parser(tool, release.rocm()).parse_args(own)
    asked = vars(options) | {"program": program}
    given = {name for name, value in asked.items() if value not in (None, False, [])}
    for row in table_of(tool).get("refusals", ()):
        concerned = row.get("command") in (None, asked.get("command"))
        concerned &= "given" not in row or not given.isdisjoint(row["given"])
        if concerned and given.isdisjoint([*row["missing"], "version"]):
            raise ToolError(row["message"], row["exit_code"])
    return options, program


def understand(tool: str, arguments: Sequence[str], environment: Mapping[str, str]) -> Request:
    """Return the request in a tool's command line.

    Raises ToolError if the tool rejects the command line.
    """
    options, words = parse(tool, arguments)
    table, parser = table_of(tool), _parser(tool, release.rocm())
    if tool in table.get("workload", ()) and not words:
        words = shlex.split(environment.get(WORKLOAD, ""))
    program = read_program(words, environment)
    asked = {name: words for name, words in program.options.items() if name not in IGNORED}
    key: dict[str, Any] = {"program": asked, "ranks": program.ranks}
    places = dict(zip(["run_dir"], program.options.get("--run-dir", ()), strict=False))
    chosen: dict[str, str] = dict(table.get("implied", {}).get(tool, {}))
    for name, value in vars(options).items():
        role, values = parser.roles.get(name), value if isinstance(value, list) else [value]
        if parser.sets.get(name):
            if value not in (None, False):
                texts = [str(one).replace("True", "true") for one in values or [True]]
                chosen |= dict(zip(parser.sets[name], texts, strict=False))
        elif role == "place":
            places |= {} if value is None else {name: str(value)}
        elif role == "input":
            # The option -p of `rocprof-compute analyze` collects lists.
            flat = [one for each in values for one in (each if isinstance(each, list) else [each])]
            key[name] = [digest(Path(one)) for one in flat]
        elif not role:
            key[name] = sorted(map(str, values)) if values is value else value
    if "settings" in table:
        key |= settings_of(options.config, environment, chosen)
        places |= {name: key.pop(name) for name in table["settings"]}
    return Request(tool, options, program, key, places)


def digest(path: Path) -> str:
    """Return the digest of a file's content, or of all names and contents in a folder.

    A path that doesn't exist, or that is already a digest, is returned unchanged.
    """
    if path.is_file():
        return SHA + hashlib.sha256(path.read_bytes()).hexdigest()
    if not path.is_dir():
        return str(path)
    files = sorted(one for one in path.rglob("*") if one.is_file())
    listed = "".join(f"{file.relative_to(path)} {digest(file)}\n" for file in files)
    return SHA + hashlib.sha256(listed.encode()).hexdigest()
