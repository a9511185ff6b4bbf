"""How the program is called: its name, its parser and its examples, and the error about a wrong use.

Only what every start needs is here; `proflab` has its parser from here, too.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

TOP_IN_TERMINAL = 20
"""Rows of long tables on a terminal; a pipe or a file gets all of them."""

EXPORTS = {"csv": "as comma-separated values", "json": "as JSON records", "parquet": "as Parquet (needs pyarrow)"}
"""Format of an exported table, which is also the name of its option -> what it is called in the help."""

EXAMPLES = {
    "summary": ("trace.json.gz", "traces_of_ranks", "trace.json.gz --steps 10-12"),
    "kernels": ("trace.json.gz --top 10", "out_of_rocprofv3 --per-device --csv kernels.csv"),
    "busy": ("trace.json.gz", "traces_of_ranks --from 100 --to 200"),
    "steps": ("trace.json.gz", "run.rpd --mark aten::conv2d --json steps.json"),
    "compare": ("before.json.gz after.json.gz", "on_mi300x.json.gz on_h100.json.gz --by operator"),
    "gate": ("runs_before runs_after --fail-above 3%", "base new --in-turns --junit gate.xml"),
    "triage": ("trace.json.gz", "traces_of_ranks monitoring.csv --html triage.html"),
    "hang": ("dumps", "dumps --json hang.json"),
    "isa": ("kernel.amdgcn", "~/.triton/cache --fail-on-spill"),
    "convert": ("run.rpd run.json.gz", "results.db trace.json"),
}
"""Command -> what may follow it, a line each."""

DISTRIBUTIONS = ("tidyprof", "rocm-profiling-course")
"""What can have been installed to bring this package."""


class UsageError(Exception):
    """A one-line message about what the user can put right."""


class Version(argparse.Action):
    """Shows the version of the installed distribution, which is tidyprof on its own or the course that has it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print it and end."""
        print(f"{parser.prog.split()[-1]} {_version()}")
        parser.exit()


def _version() -> str:
    metadata = import_module("importlib.metadata")
    for name in DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "of unknown version: it is not installed"


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, and with examples, which follow the program's name, below the help."""

    examples: Sequence[str] = ()

    def error(self, message: str) -> NoReturn:
        """End with one line instead of argparse's several."""
        self.exit(2, f"error: {message}{_meant(message)}; see {self.prog} --help\n")

    def format_help(self) -> str:
        """The help, and the examples."""
        lines = [f"  {self.prog} {example}".rstrip() + "\n" for example in self.examples]
        return "".join([super().format_help(), *(["\nexamples:\n"] if lines else []), *lines])


def _meant(message: str) -> str:
    """What a mistyped word probably was, which argparse suggests from Python 3.14 on; nothing where none is near."""
    found = re.search(r"invalid choice: '?(.+?)'? \(choose from (.+)\)", message)
    near = import_module("difflib").get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), n=1) if found else []
    return f"; did you mean {near[0]}?" if near else ""


def program(package: str) -> str:
    """The program's name as it was typed: `python -m PACKAGE`, or the command of that name."""
    started = getattr(sys.modules["__main__"], "__spec__", None)
    return f"python -m {package}" if started is not None and started.parent == package else package


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks what can be typed next (https://pypi.org/project/argcomplete/), and end."""
    if "_ARGCOMPLETE" in os.environ:
        import_module("argcomplete").autocomplete(parser)
