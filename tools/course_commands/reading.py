"""Whether a command is one that its tool would understand. Nothing is run, and torch is not imported."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from cifar_train.errors import UserError
from proflab.standins import command_lines
from proflab.standins.tools import MODULE_OF_TOOL
from tools.course_commands.shell import Command, Script, read_script
from tools.course_commands.tables import split_options, tables
from tools.course_commands.words import OPAQUE

_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
_PLACEHOLDER = re.compile(r"(?<![\w%{-])[A-Z][A-Z_]*(?![\w}])")
_STAND_IN = "1"
"""What is not known may be a number, a name or a path: this is all three."""


@dataclass
class Reading:
    """What a command was understood as: its tools from the outside in, and what is wrong with it.

    whole   -- required options and programs have to be there.
    strict  -- so do combinations that the tool itself accepts.
    defined -- names of the shell functions around the command.
    course  -- the course's folder, in which its scripts have to exist.
    """

    whole: bool = True
    strict: bool = True
    defined: frozenset[str] = frozenset()
    course: Path | None = None
    tools: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def is_tool(word: str) -> bool:
    """Whether a word names a program that has options of its own to check."""
    name = PurePath(word).name
    return name in MODULE_OF_TOOL or name in tables().tools or name == "cifar-train" or bool(_PYTHON.fullmatch(name))


def to_check(script: Script) -> list[Command]:
    """A script's commands, without the texts in variables that are neither a command nor a tool's options."""
    found = []
    for command in script.commands:
        if command.variable in tables().variables:
            words = [tables().variables[command.variable], *command.words]
            found.append(replace(command, words=words, whole=True))
        elif not command.variable or is_tool(command.words[0]):
            found.append(command)
    return found


def read_command(command: Command, defined: frozenset[str] = frozenset(), course: Path | None = None) -> Reading:
    """Read a command; words in capitals stand for anything, words that are not known also for none.

    One that is not whole may break off before the value of an option.
    """
    start = Reading(command.whole, command.whole and not command.may_fail, defined, course)
    words = command.words
    placed = [word if " " in word else _PLACEHOLDER.sub(OPAQUE, word) for word in words]
    attempts = [words, placed, [word for word in words if word != OPAQUE]]
    if not command.whole:
        attempts += [[*words, OPAQUE] for words in attempts]
    readings = []
    for words in attempts:
        reading = replace(start, tools=[], problems=[])
        _read(words, reading)
        if not reading.problems:
            return reading
        readings.append(reading)
    return readings[0]


def _read(words: Sequence[str], reading: Reading) -> None:
    if not words:
        return
    name = PurePath(words[0]).name
    rest = list(words[1:])
    if words[0].startswith("-"):
        reading.problems.append(f"{words[0]} stands where a program is due")
    elif name in MODULE_OF_TOOL:
        _read_stand_in(name, rest, reading)
    elif name == "cifar-train":
        _read_module("cifar_train", rest, reading)
    elif _PYTHON.fullmatch(name):
        _read_python(rest, reading)
    elif name in tables().tools:
        _read_table(name, rest, reading)
    elif name in ("bash", "sh"):
        _read_shell(rest, reading)
    elif name in tables().prefixes:
        _read(rest, reading)
    elif "/" in words[0]:
        _find_script(words[0], reading)
    elif OPAQUE not in name and name not in tables().harmless | reading.defined:
        reading.problems.append(f"{name} is no tool that the course knows")


def _read_stand_in(tool: str, words: Sequence[str], reading: Reading) -> None:
    reading.tools.append(tool)
    own, program = command_lines.split(tool, words)
    options = _parse(tool, command_lines.build_parser(tool), own, reading)
    if options is not None and reading.strict:
        with _problems_into(tool, reading):
            command_lines.verify(tool, options, program)
    _read(program, reading)


def _read_table(tool: str, words: Sequence[str], reading: Reading) -> None:
    reading.tools.append(tool)
    given, operands, problems = split_options(tool, words)
    reading.problems += problems
    kind = tables().tools[tool].operands
    if kind == "script" and operands:
        _find_script(operands[0], reading)
    if kind != "command":
        return
    if reading.whole and not operands:
        reading.problems.append(f"{tool} is given no program")
    if tool == "torchrun" and operands and "no-python" not in given:
        operands = ["python", *(["-m"] if given & {"m", "module"} else []), *operands]
    _read(operands, reading)


def _read_python(words: Sequence[str], reading: Reading) -> None:
    rest = list(words)
    while rest and rest[0] in ("-u", "-B"):
        rest.pop(0)
    if rest[:1] == ["-m"] and rest[1:]:
        _read_module(rest[1], rest[2:], reading)
    elif rest and PurePath(rest[0]).stem in MODULE_OF_TOOL:
        _read_stand_in(PurePath(rest[0]).stem, rest[1:], reading)
    elif rest and rest[0].startswith("-") and rest[0] not in ("-c", "-V", "--version"):
        reading.problems.append(f"python has no option {rest[0]}")
    elif rest and rest[0] != "-c":
        _find_script(rest[0], reading)


def _read_shell(words: Sequence[str], reading: Reading) -> None:
    if words[:1] != ["-c"] or not words[1:]:
        return
    for command in to_check(read_script(words[1], {"@": list(words[3:])})):
        _read(command.words, reading)


def _find_script(word: str, reading: Reading) -> None:
    path = re.sub(rf"^{OPAQUE}/|^\./", "", word)
    if reading.course and path.startswith("scripts/") and OPAQUE not in path and not (reading.course / path).is_file():
        reading.problems.append(f"there is no {path}")


def _read_module(module: str, words: Sequence[str], reading: Reading) -> None:
    if module == "torch.distributed.run":
        _read_table("torchrun", words, reading)
    elif module == "cifar_train":
        _read_trainer(words, reading)
    elif module in PARSERS:
        reading.tools.append(module)
        _parse(f"python -m {module}", PARSERS[module](), words, reading)
    elif module not in tables().modules and OPAQUE not in module:
        reading.problems.append(f"python -m {module} is no module that the course knows")


def _read_trainer(words: Sequence[str], reading: Reading) -> None:
    from cifar_train.config import TrainConfig, build_parser

    reading.tools.append("cifar_train")
    options = _parse("cifar_train", build_parser(), words, reading)
    if options is not None and reading.strict and not any(OPAQUE in word for word in words):
        with _problems_into("cifar_train", reading):
            TrainConfig(**vars(options))


def _parse(
    tool: str, parser: argparse.ArgumentParser, words: Sequence[str], reading: Reading
) -> argparse.Namespace | None:
    """The options, or None and a problem more."""
    if not reading.whole:
        _relax(parser)
    with _problems_into(tool, reading):
        return parser.parse_args([word.replace(OPAQUE, _STAND_IN) for word in words])
    return None


def _relax(parser: argparse.ArgumentParser) -> None:
    """Let everything be left out: prose shortens commands."""
    for action in parser._actions:
        action.required = False
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _relax(command)
    for group in parser._mutually_exclusive_groups:
        group.required = False


@contextlib.contextmanager
def _problems_into(tool: str, reading: Reading):
    """What a parser says against its words becomes a problem, in one line."""
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
        fatal = (line for line in lines if line.startswith("Fatal error"))  # after warnings, before a list
        reading.problems.append(f"{tool}: {next(fatal, lines[0])}")


def _tidyprof() -> argparse.ArgumentParser:
    from tidyprof.cli.main import build_parser

    return build_parser()


def _gpumodel() -> argparse.ArgumentParser:
    from gpumodel.cli import build_parser

    return build_parser()


def _proflab() -> argparse.ArgumentParser:
    from proflab.__main__ import build_parser

    return build_parser()


def _notebooks() -> argparse.ArgumentParser:
    from tools.notebooks import build_parser

    return build_parser()


def _matmul() -> argparse.ArgumentParser:
    from cifar_train.matmul import build_parser

    return build_parser()


PARSERS: Mapping[str, Callable[[], argparse.ArgumentParser]] = {
    "cifar_train.matmul": _matmul,
    "gpumodel": _gpumodel,
    "proflab": _proflab,
    "tools.notebooks": _notebooks,
    "tidyprof": _tidyprof,
}
"""The parsers of the course's own modules, imported when they are needed."""
