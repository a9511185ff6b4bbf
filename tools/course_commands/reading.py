"""Whether a tool would understand a command. Nothing is run, and torch is not imported.

The course's tools and the stand-ins have parsers of their own; parsers of other tools are made of
tools.toml.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path, PurePath
from typing import Any

from gpumodel.command import LAUNCHERS
from proflab.standins.tools import MODULE_OF_TOOL, split, verify
from proflab.standins.tools import build_parser as standin_parser
from tidyprof.errors import UserError
from tools.course_commands.shell import OPAQUE, Command, commands_in

_OWN = ("cifar-train", "proflab", "tidyprof")
"""Commands of the course; each starts the module of its name."""

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
_PLACEHOLDER = re.compile(r"(?<![\w%{-])[A-Z][A-Z_]*(?![\w}])")


@dataclass
class Reading:
    """How a command was understood: its tools from the outside in, and its faults.

    whole  -- whether required options and programs have to be there.
    strict -- whether a tool's own rules for options together apply, too.
    course -- the course's folder, in which its scripts have to exist.
    """

    whole: bool = True
    strict: bool = True
    course: Path | None = None
    tools: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@cache
def tables() -> Mapping[str, Any]:
    """The whole of tools.toml, with texts of several words as sets."""
    data = tomllib.loads((Path(__file__).parent / "tools.toml").read_text(encoding="utf-8"))
    return {
        name: frozenset(value.split()) if isinstance(value, str) else value
        for name, value in data.items()
    }


def is_tool(word: str) -> bool:
    """Whether a word names a program whose options can be checked."""
    name = PurePath(word).name
    return (
        name in MODULE_OF_TOOL
        or name in tables()["tool"]
        or name in _OWN
        or bool(_PYTHON.fullmatch(name))
    )


def read_command(command: Command, course: Path | None = None) -> Reading:
    """Read a command; words in capitals stand for any word, and unknown words also for none.

    A command that is not whole may break off before the value of an option.
    """
    words = list(command.words)
    if command.variable in tables()["variables"]:
        words = [tables()["variables"][command.variable], *words]
    placed = [word if " " in word else _PLACEHOLDER.sub(OPAQUE, word) for word in words]
    # Unknown text may also be empty, alone or at the beginning of a word, in the whole command or
    # among the options.
    attempts = [words, placed, [word.lstrip(OPAQUE) for word in words if word.strip(OPAQUE)]]
    program = words.index("--") if "--" in words else len(words)
    attempts.append([word for word in words[:program] if word.strip(OPAQUE)] + words[program:])
    if not command.whole:
        attempts += [[*words, OPAQUE] for words in attempts]
    readings = []
    for words in attempts:
        reading = Reading(command.whole, command.whole and not command.may_fail, course)
        _read(words, reading)
        if not reading.problems:
            return reading
        readings.append(reading)
    return readings[0]


def _read(words: Sequence[str], reading: Reading) -> None:
    if not words:
        return
    name, rest = PurePath(words[0]).name, list(words[1:])
    if words[0].startswith("-"):
        reading.problems.append(f"{words[0]} stands where a program is due")
    elif name in MODULE_OF_TOOL:
        _read_stand_in(name, rest, reading)
    elif name in _OWN:
        _read_module(name.replace("-", "_"), rest, reading)
    elif _PYTHON.fullmatch(name):
        _read_python(rest, reading)
    elif name in tables()["tool"]:
        _read_other(name, rest, reading)
    elif name in ("bash", "sh"):
        if rest[:1] == ["-c"] and rest[1:]:
            for command in commands_in(rest[1]):
                _read([word for word in command.words if word != OPAQUE], reading)
            _read(rest[3:], reading)  # what "$@" stands for
    elif name in tables()["prefixes"]:
        _read(rest, reading)
    elif "/" in words[0]:
        _find_script(words[0], reading)
    elif OPAQUE not in name and name not in tables()["harmless"] | tables()["administration"]:
        reading.problems.append(f"{name} is no tool that the course knows")


def _read_stand_in(tool: str, words: Sequence[str], reading: Reading) -> None:
    reading.tools.append(tool)
    own, program = split(tool, words)
    options = _parse(tool, standin_parser(tool), own, reading)
    if options is not None and reading.strict:
        with _problems_into(tool, reading):
            verify(tool, options, program)
    _read(program, reading)


def _read_other(tool: str, words: Sequence[str], reading: Reading) -> None:
    """Read a tool of tools.toml, and the program that it starts."""
    reading.tools.append(tool)
    kind, parser = tables()["tool"][tool].get("operands"), _parser(tool)
    if tool == "torchrun":  # it takes both spellings
        words = [
            re.sub(r"(?<=\w)_(?=[\w-]+)", "-", word) if word.startswith("--") else word
            for word in words
        ]
    place = _program_begins(parser, words) if kind in ("command", "script") else len(words)
    options = _parse(tool, parser, words[:place], reading, mixed=True)
    program = words[place:]
    if options is None:
        return
    if kind == "script":
        _find_script(*program[:1] or [""], reading)
        return
    if kind == "command" and reading.whole and not program:
        reading.problems.append(f"{tool} is given no program")
    if tool == "torchrun" and program and not options.no_python:
        program = ["python", *(["-m"] if options.m or options.module else []), *program]
    _read(program, reading)


def _program_begins(parser: argparse.ArgumentParser, words: Sequence[str]) -> int:
    """The place of the first word that is neither an option nor an option's value."""
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "--":
        # argparse has no public way to ask for one option.
        option = parser._option_string_actions.get(words[place])
        place += 1 + (0 if option is None else 1 if option.nargs is None else option.nargs)
    return min(place, len(words))


@cache
def _parser(tool: str) -> argparse.ArgumentParser:
    """The parser of a tool in tools.toml, with the launcher's options that gpumodel knows."""
    entry = tables()["tool"][tool]
    sources = [entry, tables()["tool"].get(entry.get("like"), {})]
    parser = argparse.ArgumentParser(prog=tool, add_help=False, allow_abbrev=False)
    for kind, more in (
        ("values", {}),
        ("pairs", {"nargs": 2}),
        ("flags", {"action": "store_true"}),
    ):
        names = {name for source in sources for name in source.get(kind, "").split()}
        for name in sorted(names | getattr(LAUNCHERS.get(tool), kind, frozenset())):
            # Some launchers, such as mpirun, take a long option with one hyphen, too.
            spellings = {f"-{name}", f"--{name}"} if len(name) > 1 else {f"-{name}"}
            parser.add_argument(*spellings, dest=name.replace("-", "_"), **more)
    if "commands" in entry:
        parser.add_argument("command", choices=entry["commands"].split(), nargs="?")
    if "commands" in entry or entry.get("operands") == "any":
        parser.add_argument("operands", nargs="*")
    return parser


def _read_python(words: Sequence[str], reading: Reading) -> None:
    rest = list(words)
    while rest and rest[0] in ("-u", "-B", "-X"):
        rest = rest[2:] if rest[0] == "-X" else rest[1:]
    if rest[:1] == ["-m"] and rest[1:]:
        _read_module(rest[1], rest[2:], reading)
    elif rest and PurePath(rest[0]).stem in MODULE_OF_TOOL:
        _read_stand_in(PurePath(rest[0]).stem, rest[1:], reading)
    elif rest and rest[0].startswith("-") and rest[0] not in ("-c", "-V", "--version"):
        reading.problems.append(f"python has no option {rest[0]}")
    elif rest and rest[0] != "-c":
        _find_script(rest[0], reading)


def _find_script(word: str, reading: Reading) -> None:
    path = re.sub(rf"^{OPAQUE}/|^\./", "", word)
    if (
        reading.course
        and path.startswith("scripts/")
        and OPAQUE not in path
        and not (reading.course / path).is_file()
    ):
        reading.problems.append(f"there is no {path}")


def _read_module(module: str, words: Sequence[str], reading: Reading) -> None:
    if module == "torch.distributed.run":
        _read_other("torchrun", words, reading)
    elif module == "cifar_train":
        _read_trainer(words, reading)
    elif module in tables()["parsers"]:
        reading.tools.append(module)
        parser = import_module(tables()["parsers"][module]).build_parser()
        _parse(f"python -m {module}", parser, words, reading)
    elif module not in tables()["modules"] and OPAQUE not in module:
        reading.problems.append(f"python -m {module} is no module that the course knows")


def _read_trainer(words: Sequence[str], reading: Reading) -> None:
    from cifar_train.config import TrainConfig, build_parser

    reading.tools.append("cifar_train")
    options = _parse("cifar_train", build_parser(), words, reading)
    if options is not None and reading.strict and not any(OPAQUE in word for word in words):
        with _problems_into("cifar_train", reading):
            TrainConfig(**vars(options))


def _parse(
    tool: str,
    parser: argparse.ArgumentParser,
    words: Sequence[str],
    reading: Reading,
    mixed: bool = False,
) -> argparse.Namespace | None:
    """The options, or None and one more problem."""
    for own in _parsers(parser):
        for action in own._actions:
            _take_what_is_unknown(action)
            action.required = action.required and reading.whole
        for group in own._mutually_exclusive_groups:
            group.required = group.required and reading.whole
    with _problems_into(tool, reading):
        return parser.parse_intermixed_args(words) if mixed else parser.parse_args(words)
    return None


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and those of its sub-commands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _parsers(command)


class _Choices(list):
    """Choices, of which unknown text may be any."""

    def __contains__(self, word: object) -> bool:
        return (isinstance(word, str) and OPAQUE in word) or super().__contains__(word)


def _take_what_is_unknown(action: argparse.Action) -> None:
    """Let OPAQUE pass for a value of any type. A second call for the same action changes
    nothing.
    """
    if isinstance(action, argparse._SubParsersAction) or isinstance(action.choices, _Choices):
        return
    if convert := action.type:
        action.type = lambda word: word if OPAQUE in word else convert(word)
        action.type.__name__ = getattr(convert, "__name__", repr(convert))
    action.choices = None if action.choices is None else _Choices(action.choices)


@contextlib.contextmanager
def _problems_into(tool: str, reading: Reading):
    """A context in which a parser's refusal becomes a problem, in one line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            yield
    except SystemExit as end:
        if end.code:
            lines = said.getvalue().strip().splitlines() or [f"ends with {end.code}"]
            reading.problems.append(f"{tool}: {lines[-1]}")
    except UserError as error:
        lines = str(error).splitlines()
        # It comes after warnings, and before a list.
        fatal = (line for line in lines if line.startswith("Fatal error"))
        reading.problems.append(f"{tool}: {next(fatal, lines[0])}")
