"""Functions that find each rank's flight recorder dump, unreadable dumps and log files in a
folder.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import Path

from tidyprof.errors import ProfileReadError
from tidyprof.escaping import printable
from tidyprof.io.byte_stream import head_or_nothing, is_pickle

_NAMED = re.compile(r"rank[_.-]?([0-9]+)(?!.*rank[_.-]?[0-9])", re.IGNORECASE)
_AT_END = re.compile(r"(?<![0-9])([0-9]+)(?:\.[A-Za-z]+){0,2}$")
"""Patterns for the rank in a file name. The rank comes after the word `rank`, because host names
also contain numbers. In names from PyTorch's `DebugInfoWriter`, the rank is at the end. File name
extensions can come after the rank.
"""

_JSON = re.compile(
    rb'\s*\{.*"(comm_lib_version|entries|pg_status|collective_seq_id)"\s*:', re.DOTALL
)
_OF_TRACES = b'"traceEvents"'
_TEXT_ENDINGS = (".txt", ".log", ".err", ".out")
_HEAD_BYTES = 2**16
_TAIL_BYTES = 2**13
MAX_DIGITS = 9


@dataclass(frozen=True)
class Dumps:
    """The dumps and logs in a folder, by rank.

    - readable: each rank's dump
    - unreadable: name of the rank's unreadable dump, and the reason why it can't be read
    - logs: name and last line of the rank's log
    """

    readable: dict[int, Path]
    unreadable: dict[int, str]
    logs: dict[int, str]


def dumps_in(folder: Path) -> Dumps:
    """Find the dumps and logs in a folder.

    Raises ProfileReadError if there is no dump, if two dumps have the same rank, or if the number
    in the name of a dump can't be a rank.
    """
    named = []
    for file in sorted(folder.iterdir()):
        digits = _NAMED.search(file.name) or _AT_END.search(file.name)
        if digits and not file.name.startswith("."):
            named.append((file, digits[1], _fault(file)))
    readable: dict[int, Path] = {}
    for file, digits, fault in named:
        if fault:
            continue
        if len(digits) > MAX_DIGITS:
            raise ProfileReadError(
                file,
                "the number in the dump's name is too long for a rank",
                "the file was renamed, or the number isn't a rank but a time",
                "put the rank at the end of each dump's name, for example rank_0",
            )
        if int(digits) in readable:
            both = f"{readable[int(digits)].name} and {file.name} both have rank {digits}"
            raise ProfileReadError(folder, both, *TWO_RUNS)
        readable[int(digits)] = file
    # The names of valid dumps must be known before other files can be compared with them.
    shapes = {_shape(file) for file in readable.values()}
    unreadable: dict[int, str] = {}
    logs: dict[int, str] = {}
    for file, digits, fault in named:
        if not fault or len(digits) > MAX_DIGITS:
            continue
        is_text = file.suffix in _TEXT_ENDINGS
        # Files that are empty or contain only zeros are meant as dumps, too.
        is_broken = not is_text and not fault.startswith(("not as", "a folder"))
        if int(digits) not in readable and (_shape(file) in shapes or is_broken):
            unreadable[int(digits)] = f"{file.name}, {fault}"
        if is_text and (line := _last_line(file)):
            logs[int(digits)] = line
    if not readable:
        also = f"; {next(iter(unreadable.values()))}" if unreadable else ""
        raise ProfileReadError(
            folder,
            f"the folder contains no PyTorch flight recorder dumps{also}",
            "no rank wrote a dump, or this is the wrong folder",
            "check the path in TORCH_FR_DUMP_TEMP_FILE (each dump's name ends with its rank)",
        )
    return Dumps(readable, unreadable, logs)


TWO_RUNS = (
    "the folder contains dumps from two runs",
    "put the dumps of each run into a separate folder",
)


def is_json(head: bytes) -> bool:
    """Return True if a file starts like a JSON dump. PyTorch profiler traces aren't dumps, although
    they contain some of the same words.
    """
    return _JSON.match(head) is not None and _OF_TRACES not in head


def _fault(file: Path) -> str:
    """Return the reason why a file isn't a dump, or "" if the file starts like a dump."""
    try:
        status = file.stat()
    except OSError:
        return "a broken link"
    if not stat.S_ISREG(status.st_mode):
        return "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, socket or device"
    if not status.st_size:
        return "empty (was the disk full, or was the rank killed while writing?)"
    head = head_or_nothing(file, _HEAD_BYTES)
    if is_pickle(head) or is_json(head):
        return ""
    return (
        "zeros instead of data (was the disk full, or did a copy fail?)"
        if not head.strip(b"\0")
        else "not as PyTorch writes it"
    )


def _shape(file: Path) -> str:
    return re.sub(r"[0-9]+", "#", file.name)


def _last_line(log: Path) -> str:
    """Return a string such as `log_1.txt ends with "..."`. Return "" if the log is empty or isn't a
    regular file.
    """
    if not log.is_file() or not (size := log.stat().st_size):
        return ""
    with log.open("rb") as opened:
        opened.seek(max(0, size - _TAIL_BYTES))
        lines = opened.read(_TAIL_BYTES).decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f'{log.name} ends with "{printable(last, 120)}"' if last else ""
