"""The player's options of rocprofv3 against the option table of the
real tool.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import Any

import pytest

from proflab.tapes.options import build_parser

COURSE = Path(__file__).resolve().parents[2]
TABLE = tomllib.loads(
    Path(__file__).with_name("rocprofv3_options.toml").read_text(encoding="utf-8")
)

DIFFERENCES: dict[str, str] = {}
"""Longest name of an option -> why the player takes it otherwise than the tool."""


def rows() -> dict[str, dict[str, Any]]:
    """The real tool's options: their names -> arguments of add_argument."""
    kinds = {
        "flags": {"action": "store_true"},
        "truths": {"nargs": "?", "const": True},
        "texts": {},
        "numbers": {},
    }
    found = {names: dict(arguments) for kind, arguments in kinds.items() for names in TABLE[kind]}
    return found | {names: dict(arguments) for names, arguments in TABLE["others"].items()}


def real_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rocprofv3", allow_abbrev=False)
    for names, arguments in rows().items():
        kind = (
            {"type": int}
            if names in TABLE["numbers"]
            else {"type": str.lower}
            if "choices" in arguments
            else {}
        )
        parser.add_argument(*names.split(), **kind, **arguments)
    return parser


def shape(action: argparse.Action) -> tuple[Any, ...]:
    """What a command line can notice of an option."""
    choices = frozenset(action.choices) if action.choices else None
    return action.nargs, choices, action.type is int, isinstance(action, argparse._AppendAction)


def shapes(parser: argparse.ArgumentParser) -> dict[frozenset[str], tuple[Any, ...]]:
    return {
        frozenset(action.option_strings): shape(action)
        for action in parser._actions
        if action.dest != "help"
    }


def test_the_player_has_the_options_of_the_real_tool_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PROFLAB_ROCM", TABLE["release"])
    own, real = shapes(build_parser("rocprofv3")), shapes(real_parser())
    assert own.keys() == real.keys()
    different = {
        max(names, key=len): (own[names], taken)
        for names, taken in real.items()
        if own[names] != taken
    }
    assert different.keys() == DIFFERENCES.keys(), different
