"""Functions that all command lines share: one-line errors, examples, the version, and tab
completion.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from tidyprof.errors import UserError, shortened
from tidyprof.standard_streams import tell


class Parser(argparse.ArgumentParser):
    """An argparse parser with one-line errors. Its help ends with examples.

    The parser adds the program's name in front of each example.
    """

    examples: Sequence[str] = ()
    hint = ""
    """Text after the message about an unknown option."""

    passes_on = False
    """True if unknown options are passed to another program."""

    def error(self, message: str) -> NoReturn:
        """Raise a one-line UserError. argparse would print a longer message and exit."""
        if self._subparsers and "required: " in message:
            message += f"; choose one of {', '.join(self._subparsers._group_actions[0].choices)}"
        # The types of options here complete a sentence that starts with the option's name.
        message = re.sub(r"^argument (\S+): (?=must|expects)", r"\1 ", shortened(message))
        raise UserError(f"{message}. See: {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reject unknown options here because the selected command knows its options."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and not self.passes_on:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self.hint}")
        return found, unknown

    def format_help(self) -> str:
        """Return the help and the examples."""
        lines = [f"  {self.prog} {example}".rstrip() + "\n" for example in self.examples]
        return "".join([super().format_help(), *(["\nexamples:\n"] if lines else []), *lines])


def add_version(parser: argparse.ArgumentParser, distribution: str) -> None:
    """Add an option that prints the version of an installed distribution."""
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
            return "has no known version because it isn't installed"


def program(module: str, command: str = "") -> str:
    """Return the program's name as the user typed it: the name of its command, or `python -m
    MODULE`.
    """
    started = getattr(sys.modules["__main__"], "__spec__", None)
    is_module = started is not None and module in (started.name, started.parent)
    return f"python -m {module}" if is_module or not command else command


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell's request for completions, and exit
    (https://kislyuk.github.io/argcomplete/).
    """
    if "_ARGCOMPLETE" in os.environ:
        import_module("argcomplete").autocomplete(parser)


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line, and return its options. An invalid option ends the program with one
    line and exit code 2.
    """
    complete(parser)
    try:
        return parser.parse_args(arguments)
    except UserError as error:
        tell(f"error: {error}")
        parser.exit(2)
