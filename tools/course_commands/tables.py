"""Tools that the course only names in commands: which options each has. The data are in tools.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpumodel.command import LAUNCHERS
from tools.course_commands.words import OPAQUE


@dataclass(frozen=True)
class Table:
    """One tool's options by name, without hyphens, and what else it takes; see tools.toml."""

    values: frozenset[str]
    flags: frozenset[str]
    pairs: frozenset[str]
    commands: frozenset[str]
    operands: str
    mixed: bool


@dataclass(frozen=True)
class Tables:
    """All of tools.toml."""

    tools: Mapping[str, Table]
    harmless: frozenset[str]
    prefixes: frozenset[str]
    modules: frozenset[str]
    variables: Mapping[str, str]


@cache
def tables() -> Tables:
    """The data, with the launchers' options that gpumodel knows."""
    data = tomllib.loads((Path(__file__).parent / "tools.toml").read_text(encoding="utf-8"))
    harmless = frozenset(f"{data.pop('harmless')} {data.pop('administration')}".split())
    prefixes = frozenset(data.pop("prefixes").split())
    modules, variables = frozenset(data.pop("modules")), data.pop("variables")
    return Tables({tool: _table(tool, data) for tool in data}, harmless, prefixes, modules, variables)


def _table(tool: str, data: Mapping[str, Mapping[str, str]]) -> Table:
    entry = data[tool]
    names = {}
    for kind in ("values", "flags", "pairs", "commands"):
        names[kind] = frozenset(entry.get(kind, "").split())
        names[kind] |= frozenset(data.get(entry.get("like", ""), {}).get(kind, "").split())
        names[kind] |= getattr(LAUNCHERS.get(tool), kind, frozenset())
    return Table(**names, operands=entry.get("operands", ""), mixed=bool(entry.get("mixed")))


def split_options(tool: str, words: Sequence[str]) -> tuple[set[str], list[str], list[str]]:
    """The names of the options in `words`, the operands, and what is wrong with either."""
    table = tables().tools[tool]
    given: set[str] = set()
    operands: list[str] = []
    problems: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            operands += rest
            break
        if not word.startswith("-"):
            operands.append(word)
            if not table.mixed:
                operands += rest
                break
            continue
        name, takes = _option(tool, table, word)
        given.add(name)
        if takes is None:
            problems.append(f"{tool} has no option {word}")
        elif takes > len(rest):
            problems.append(f"{tool} {word} needs a value")
        rest = rest[takes or 0 :]
    return given, operands, problems + _operand_problems(tool, table, operands)


def _option(tool: str, table: Table, word: str) -> tuple[str, int | None]:
    """The option's name, and how many of the words behind it are its values; None for an option that there is not."""
    name, equals, _ = word.lstrip("-").partition("=")
    if tool == "torchrun":  # it takes both spellings
        name = name.replace("_", "-")
    if name in table.flags:
        return name, None if equals else 0
    if name in table.values:
        return name, 0 if equals else 1
    if name in table.pairs:
        return name, 2
    short = not word.startswith("--")
    if short and name[:1] in table.values:  # -n4
        return name[0], 0
    if short and name and set(name) <= table.flags:
        return name, 0
    return name, None


def _operand_problems(tool: str, table: Table, operands: Sequence[str]) -> list[str]:
    if not operands or OPAQUE in operands[0]:
        return []
    if table.commands and operands[0] not in table.commands:
        return [f"{tool} is not known to have {operands[0]}; known are {', '.join(sorted(table.commands))}"]
    if not table.commands and not table.operands:
        return [f"{tool} takes options only, not {operands[0]}"]
    return []
