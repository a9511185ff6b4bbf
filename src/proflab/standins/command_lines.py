"""A tool's command line: its own options, and the program that it starts. Reading one runs nothing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from proflab.standins import options as tables
from proflab.standins.tools import MODULE_OF_TOOL


def at_dashes(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before the first `--` and behind it; everything and nothing where there is none."""
    words = list(arguments)
    place = words.index("--") if "--" in words else len(words)
    return words[:place], words[place + 1 :]


def module_of(tool: str) -> Any:
    """The module of a tool in MODULE_OF_TOOL."""
    return import_module(f"proflab.standins.{MODULE_OF_TOOL[tool]}")


def build_parser(tool: str) -> argparse.ArgumentParser:
    """The options of a tool in MODULE_OF_TOOL."""
    return tables.build_parser(MODULE_OF_TOOL[tool], tool, getattr(module_of(tool), "PARSER", argparse.ArgumentParser))


def split(tool: str, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tool's own words, and those of the program that it is to start."""
    return getattr(module_of(tool), "split", at_dashes)(arguments)


def verify(tool: str, options: argparse.Namespace, program: Sequence[str]) -> None:
    """Raises ToolError where the tool itself would refuse these options together."""
    own_verify = getattr(module_of(tool), "verify", None)
    if own_verify and not getattr(options, "version", False):
        own_verify(tool, options, program)
