"""The contents of a folder of dumps: the dump of each rank, dumps that can't be read, and the logs
beside them.
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
"""A rank stands after the word `rank` (names of hosts have numbers, too), or at the end of the
name, where `DebugInfoWriter` of PyTorch writes it; endings may have been added.
"""

_JSON = re.compile(
    rb'\s*\{.*"(comm_lib_version|entries|pg_status|collective_seq_id)"\s*:', re.DOTALL
)
_OF_TRACES = b'"traceEvents"'
_TEXT_ENDINGS = (".txt", ".log", ".err", ".out")
_HEAD_BYTES = 2**16
_TAIL_BYTES = 2**13
MAX_DIGITS = 9
"""Digits of a rank."""


@dataclass(frozen=True)
class Dumps:
    """Rank -> its dump; rank -> a file that is named like a dump and can't be read, and why; rank
    -> the last line of its log, with the log's name.
    """

    readable: dict[int, Path]
    unreadable: dict[int, str]
    logs: dict[int, str]


def dumps_in(folder: Path) -> Dumps:
    """The dumps and logs in a folder. Raises ProfileReadError where there is no dump, two dumps of
    one rank, or a dump whose name has a number that is no rank.
    """
    readable: dict[int, Path] = {}
    others: dict[Path, int] = {}
    for file in sorted(folder.iterdir()):
        digits = _NAMED.search(file.name) or _AT_END.search(file.name)
        if digits is None or file.name.startswith("."):
            continue
        fault = _fault(file)
        if len(digits[1]) > MAX_DIGITS:
            if fault:
                continue
            raise ProfileReadError(
                file, "a dump whose name has no rank, but a longer number", *_OTHER_NAME
            )
        rank = int(digits[1])
        if fault:
            others[file] = rank
        elif rank in readable:
            seen = f"{readable[rank].name} and {file.name} are both of rank {rank}"
            raise ProfileReadError(
                folder, seen, "dumps of two runs in one folder", "give each run its own folder"
            )
        else:
            readable[rank] = file
    # Only now are the names of sound dumps known, and with them which of the other files are meant
    # as dumps.
    shapes = {_shape(file) for file in readable.values()}
    unreadable = {
        rank: f"{file.name}, {_fault(file)}"
        for file, rank in others.items()
        if rank not in readable and _is_meant_as_dump(file, shapes)
    }
    if not readable:
        also = f"; {next(iter(unreadable.values()))}" if unreadable else ""
        cause = "no rank wrote one, or the folder is another one"
        next_step = "look where TORCH_FR_DUMP_TEMP_FILE points; a dump's name ends with its rank"
        raise ProfileReadError(
            folder, f"no dump of PyTorch's flight recorder{also}", cause, next_step
        )
    logs = {
        rank: line
        for file, rank in others.items()
        if file.suffix in _TEXT_ENDINGS and (line := _last_line(file))
    }
    return Dumps(readable, unreadable, logs)


_OTHER_NAME = (
    "it was renamed, or the number is a time",
    "name each dump by its rank, such as rank_0",
)


def is_json(head: bytes) -> bool:
    """Whether a file begins like a dump in JSON. Traces of PyTorch's profiler have some of the same
    words.
    """
    return _JSON.match(head) is not None and _OF_TRACES not in head


def _fault(file: Path) -> str:
    """Why a file is no dump; "" for a file that begins like one."""
    try:
        status = file.stat()
    except OSError:
        return "a link that leads nowhere"
    if not stat.S_ISREG(status.st_mode):
        return "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, socket or device"
    if not status.st_size:
        return "empty (a full disk, or the rank was killed while it wrote?)"
    head = head_or_nothing(file, _HEAD_BYTES)
    if is_pickle(head) or is_json(head):
        return ""
    return (
        "zeros (a full disk, or a copy that failed?)"
        if not head.strip(b"\0")
        else "not as PyTorch writes it"
    )


def _is_meant_as_dump(file: Path, shapes: set[str]) -> bool:
    """Whether a file is named like the dumps beside it. A file that is empty, or zeros, counts as
    well unless it has an ending of texts.
    """
    if _shape(file) in shapes:
        return True
    return file.suffix not in _TEXT_ENDINGS and not _fault(file).startswith(("not as", "a folder"))


def _shape(file: Path) -> str:
    return re.sub(r"[0-9]+", "#", file.name)


def _last_line(log: Path) -> str:
    """`log_1.txt ends with "..."`; "" for what is empty or no file."""
    if not log.is_file() or not (size := log.stat().st_size):
        return ""
    with log.open("rb") as opened:
        opened.seek(max(0, size - _TAIL_BYTES))
        lines = opened.read(_TAIL_BYTES).decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f'{log.name} ends with "{printable(last, 120)}"' if last else ""
