"""A tool's command line: its own options, and the program that it starts. Reading one runs nothing.

Each stand-in's module has `build_parser(tool)`. Where the tool starts a program the module has
`split(arguments) -> (own, program)`, and where the tool refuses combinations
`verify(tool, options, program)`, which raises ToolError with the tool's own words.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

from proflab.standins.tools import MODULE_OF_TOOL


def at_dashes(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before the first `--` and behind it; everything and nothing where there is none."""
    words = list(arguments)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def build_parser(tool: str) -> argparse.ArgumentParser:
    """The options of a tool in MODULE_OF_TOOL."""
    return _module(tool).build_parser(tool)


def split(tool: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tool's own words, and those of the program that it is to start."""
    own_split = getattr(_module(tool), "split", None)
    return own_split(arguments) if own_split else (list(arguments), [])


def verify(tool: str, options: argparse.Namespace, program: Sequence[str]) -> None:
    """Raises ToolError where the tool itself would refuse these options together."""
    own_verify = getattr(_module(tool), "verify", None)
    if own_verify:
        own_verify(tool, options, program)


def _module(tool: str):
    return import_module(f"proflab.standins.{MODULE_OF_TOOL[tool]}")
