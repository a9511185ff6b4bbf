"""Functions that find each rank's flight recorder dump in a folder."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tidyprof.errors import ProfileReadError
from tidyprof.io.byte_stream import head_or_nothing, is_pickle

_NAMED = re.compile(r"rank[_.-]?([0-9]{1,6})(?![0-9])(?!.*rank[_.-]?[0-9])", re.IGNORECASE)
_AT_END = re.compile(r"(?<![0-9])([0-9]{1,6})(?:\.[A-Za-z]+){0,2}$")
"""Patterns for the rank in a file name. The rank comes after the word `rank`, because host names
also contain numbers. In names from PyTorch's `DebugInfoWriter`, the rank is at the end. File name
extensions can come after the rank. A number with more digits isn't a rank but a time.
"""

_JSON = re.compile(
    rb'\s*\{.*"(comm_lib_version|entries|pg_status|collective_seq_id)"\s*:', re.DOTALL
)
_OF_TRACES = b'"traceEvents"'
_HEAD_BYTES = 2**16


@dataclass(frozen=True)
class Dumps:
    """The dumps in a folder, by rank.

    - readable: each rank's dump
    - unreadable: name of the rank's file that is named like the dumps but isn't a dump
    """

    readable: dict[int, Path]
    unreadable: dict[int, str]


def dumps_in(folder: Path) -> Dumps:
    """Find the dumps in a folder.

    Raises ProfileReadError if there is no dump or if two dumps have the same rank.
    """
    readable: dict[int, Path] = {}
    others: dict[int, Path] = {}
    for file in sorted(folder.iterdir()):
        digits = _NAMED.search(file.name) or _AT_END.search(file.name)
        if digits and not file.name.startswith("."):
            rank = int(digits[1])
            if not _is_dump(file):
                others[rank] = file
            elif rank in readable:
                both = f"{readable[rank].name} and {file.name} both have rank {rank}"
                raise ProfileReadError(folder, both, *TWO_RUNS)
            else:
                readable[rank] = file
    if not readable:
        names = ", ".join(file.name for file in others.values())
        raise ProfileReadError(
            folder,
            f"the folder contains no PyTorch flight recorder dumps{names and f', only {names}'}",
            "no rank wrote a dump, the dumps are empty, or this is the wrong folder",
            "check the path in TORCH_FR_DUMP_TEMP_FILE (each dump's name ends with its rank)",
        )
    shapes = {_shape(file) for file in readable.values()}
    unreadable = {
        rank: file.name
        for rank, file in others.items()
        if rank not in readable and _shape(file) in shapes
    }
    return Dumps(readable, unreadable)


TWO_RUNS = (
    "the folder contains dumps from two runs",
    "put the dumps of each run into a separate folder",
)


def _is_dump(file: Path) -> bool:
    """Return True if a file starts like a dump. PyTorch profiler traces aren't dumps, although they
    contain some of the same words.
    """
    head = head_or_nothing(file, _HEAD_BYTES) if file.is_file() else b""
    return is_pickle(head) or (_JSON.match(head) is not None and _OF_TRACES not in head)


def _shape(file: Path) -> str:
    return re.sub(r"[0-9]+", "#", file.name)
