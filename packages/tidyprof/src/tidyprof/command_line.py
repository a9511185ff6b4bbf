"""What every command line here is made of: errors of one line, examples, the version, completion by
the Tab key.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, NoReturn

from tidyprof.errors import UserError, shortened
from tidyprof.standard_streams import tell


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, and with examples, which follow the program's name, below
    the help.
    """

    examples: Sequence[str] = ()
    hint = ""
    """What an unknown option probably is."""

    passes_on = False
    """Whether unknown options are for somebody else."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError, of one line, instead of ending with argparse's several."""
        if self._subparsers and "required: " in message:
            message += f"; choose one of {', '.join(self._subparsers._group_actions[0].choices)}"
        meant = "" if self.hint else _meant(message, self._option_string_actions)
        raise UserError(f"{shortened(message)}{meant}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse an unknown option where it stands: the command that was given knows which options
        it has.
        """
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and not self.passes_on:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self.hint}")
        return found, unknown

    def format_help(self) -> str:
        """The help, and the examples."""
        lines = [f"  {self.prog} {example}".rstrip() + "\n" for example in self.examples]
        return "".join([super().format_help(), *(["\nexamples:\n"] if lines else []), *lines])


def _meant(message: str, options: Iterable[str]) -> str:
    """What a mistyped word or option probably was; nothing where none is near. Python's own does so
    from 3.14 on.
    """
    found = re.search(
        r"invalid choice: '?(.+?)'? \(choose from (.+)\)|unrecognized arguments: (--[^\s=]+)",
        message,
    )
    if not found:
        return ""
    known = options if found[3] else re.findall(r"[\w-]+", found[2])
    # The hyphens of options are alike and count for nothing.
    plain = {word.lstrip("-"): word for word in known}
    typed = (found[1] or found[3]).lstrip("-")
    near = import_module("difflib").get_close_matches(typed, plain, n=1)
    return f"; did you mean {plain[near[0]]}?" if near else ""


def add_version(parser: argparse.ArgumentParser, distribution: str) -> None:
    """The option that shows the version of what is installed under this name."""
    parser.add_argument(
        "-V",
        "--version",
        action=_Version,
        nargs=0,
        const=distribution,
        default=argparse.SUPPRESS,
        help="show the version and exit",
    )


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"{parser.prog.split()[-1]} {self._version()}")
        parser.exit()

    def _version(self) -> str:
        metadata = import_module("importlib.metadata")
        try:
            return metadata.version(self.const)
        except metadata.PackageNotFoundError:
            return "of unknown version: it is not installed"


def program(module: str, command: str = "") -> str:
    """The program's name as it was typed: its command, where it has one, or `python -m MODULE`."""
    started = getattr(sys.modules["__main__"], "__spec__", None)
    is_module = started is not None and module in (started.name, started.parent)
    return f"python -m {module}" if is_module or not command else command


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks what can be typed next (https://kislyuk.github.io/argcomplete/), and
    end.
    """
    if "_ARGCOMPLETE" in os.environ:
        import_module("argcomplete").autocomplete(parser)


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command line; a wrong one ends the program with one line and exit code 2."""
    complete(parser)
    try:
        return parser.parse_args(arguments)
    except UserError as error:
        tell(f"error: {error}")
        parser.exit(2)
