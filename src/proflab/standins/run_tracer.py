"""Stand-in for runTracer.sh of rocmProfileData (RPD).

Source: github.com/ROCm/rocmProfileData, rpd_tracer/runTracer.sh (2026, schema 3).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from proflab.standins import release
from tidyprof.errors import UserError


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """`-o FILE`, which counts only in front, and the program."""
    place = 2 if arguments[:1] == ["-o"] else 0
    return list(arguments[:place]), list(arguments[place:])


def _tracer() -> str:
    """The library that the tool is built on (rpd_tracer/Makefile): roctracer for ROCm 6 alone."""
    return "roctracer" if release.rocm().startswith("6.") else "rocprofiler-sdk"


def run(tool: str, options: argparse.Namespace, program: Sequence[str]) -> int:
    """Play and write. Returns 0. The file is replaced: ranks with the same name destroy each
    other's file, as with the tool.

    A launcher that the tool starts has all its ranks in one file; a tool that a launcher starts
    writes the file of its own rank.
    """
    if not program:
        raise UserError(
            f"no program to trace: {tool} [-o FILE.rpd] python3 -m cifar_train ...; -o must come"
            " first"
        )
    from proflab.standins.play import play

    played = play(tool, program, profiler="rpd")
    from gpumodel import writers

    target = Path(options.output)
    try:
        writers.write(
            "rpd",
            played.run,
            target.parent,
            rank=played.command.rank,
            name=target.name,
            tracer=_tracer(),
        )
    except OSError as error:
        raise UserError(
            f"{target} cannot be written ({error.strerror}); give another file to -o"
        ) from error
    return 0
