"""Stand-in for runTracer.sh of rocmProfileData (RPD).

Source: github.com/ROCm/rocmProfileData, rpd_tracer/runTracer.sh (2026, schema 3).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from cifar_train.errors import UserError

DEFAULT_FILE = "trace.rpd"
SCHEMA = 3


def main(tool: str, arguments: list[str]) -> int:
    """Run the stand-in; 0. The file is replaced: ranks with the same name destroy each other's, as with the tool.

    Behind the tool a launcher's ranks all go into one file; inside a launcher each rank writes its own.
    """
    own, program = split(arguments)
    if len(own) == 1:
        raise UserError("-o needs a file name")
    output = build_parser(tool).parse_args(own).output
    if not program:
        raise UserError(f"no program to trace: {tool} [-o FILE.rpd] python3 -m cifar_train ...; -o must come first")
    from proflab.standins.play import play

    played = play(tool, program, profiler="rpd")
    from gpumodel import writers

    target = Path(output)
    target.unlink(missing_ok=True)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        writers.write("rpd", played.run, target.parent, rank=played.command.rank, name=target.name, schema=SCHEMA)
    except OSError as error:
        raise UserError(f"{target} cannot be written ({error.strerror}); give another file to -o") from error
    return 0


def build_parser(tool: str) -> argparse.ArgumentParser:
    """Its one option."""
    parser = argparse.ArgumentParser(prog=tool, description=f"Stand-in for {tool} of rocmProfileData.")
    parser.add_argument("-o", dest="output", default=DEFAULT_FILE, metavar="FILE.rpd", help="default: %(default)s")
    return parser


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """`-o FILE`, which only counts in front, and the program."""
    place = 2 if arguments[:1] == ["-o"] else 0
    return list(arguments[:place]), list(arguments[place:])
