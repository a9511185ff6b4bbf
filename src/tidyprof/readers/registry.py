"""`read`: recognises what wrote a file by its content and calls the reader for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from tidyprof.io.byte_stream import ByteStream, head_or_nothing
from tidyprof.io.errors import ProfileReadError
from tidyprof.tables.contract import Profile

READER_MODULES = (
    "tidyprof.readers.torch.reader",
    "tidyprof.readers.rpd.reader",
    "tidyprof.readers.rocpd.reader",
    "tidyprof.readers.rocprof_compute.reader",
    "tidyprof.readers.rocprof_sys.reader",
    "tidyprof.readers.rocprofv3.reader",
    "tidyprof.readers.rocprof_v1.reader",
    "tidyprof.readers.perfetto.reader",
    "tidyprof.readers.system.reader",
)
"""Modules that call `register_reader` when they are imported, in the order in which they are asked. No file is
recognised by two of them; of what lies in one folder, the format that says most comes first."""

HEAD_BYTES = 2**18
"""Uncompressed bytes at the start of a file that recognisers see."""

_SHOWN_BYTES = 24

_MOST_TRIED = 64
"""Entries of an unknown folder in which a recording is looked for, so that a huge folder takes no time."""


@dataclass(frozen=True)
class Reader:
    """One format.

    name       -- what the format is called, for messages.
    recognises -- told a path and the first HEAD_BYTES of its uncompressed content (nothing for
                  a folder), whether this reader is the right one.
    read       -- the reader: path and keyword arguments in, Profile out.
    """

    name: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[..., Profile]


_readers: dict[str, Reader] = {}


def register_reader(name: str, recognises: Callable[[Path, bytes], bool], read: Callable[..., Profile]) -> None:
    """Make `read` know a format; a later reader of the same name replaces the earlier one."""
    _readers[name] = Reader(name, recognises, read)


def readers() -> tuple[Reader, ...]:
    """All readers, imported where they were not yet, in the order of READER_MODULES and then of registration."""
    for module in READER_MODULES:
        import_module(module)
    place = {module: number for number, module in enumerate(READER_MODULES)}
    return tuple(sorted(_readers.values(), key=lambda reader: place.get(reader.read.__module__, len(place))))


def read(path: str | PathLike[str], **options: Any) -> Profile:
    """Read a profiler's file or folder, whatever its name is and however it is compressed.

    With rocprofv3 path may also be folder and start of the file names, as given to its --output-file. Of a folder that
    is no recording but holds one, that one is read, and meta["files"] says which; several are refused.
    Options are passed on to the reader, e.g. `read_torch_trace`.
    Raises ProfileReadError if the path is missing or no reader knows its content.
    """
    path = Path(path)
    has_content = path.is_file() or not _starts_file_names(path)
    head = ByteStream(path).head(HEAD_BYTES) if has_content and not path.is_dir() else b""
    known = readers()
    for reader in known:
        if reader.recognises(path, head):
            return reader.read(path, **options)
    if not path.is_dir():
        raise _unknown(path, head, known)
    names = sorted(entry.name for entry in path.iterdir())
    recordings = [name for name in names[:_MOST_TRIED] if _is_recording(path / name, known)]
    if len(recordings) != 1 or len(names) > _MOST_TRIED:
        raise _unknown_folder(path, names, recordings, known)
    return read(path / recordings[0], **options)


def _starts_file_names(path: Path) -> bool:
    """Whether there is no such file or folder, but files whose names go on after this one."""
    if path.exists() or not path.name or not path.parent.is_dir():
        return False
    return any(entry.name.startswith(path.name) for entry in path.parent.iterdir())


def _unknown(path: Path, head: bytes, known: tuple[Reader, ...]) -> ProfileReadError:
    if not head:
        return ProfileReadError(
            path, "the file is empty", "the run ended before the profiler wrote its results", "record again"
        )
    return ProfileReadError(
        path,
        f"content of no known format (starts with {head[:_SHOWN_BYTES]!r})",
        "it is the output of another tool, or damaged at its start",
        _formats(known),
    )


def _unknown_folder(path: Path, names: list[str], recordings: list[str], known: tuple[Reader, ...]) -> ProfileReadError:
    """The error about a folder that is no recording: it is empty, holds several, or holds something else."""
    if recordings:
        found = f"{len(recordings)} recordings" if len(recordings) > 1 else f"a recording among {len(names)} entries"
        return ProfileReadError(
            path,
            f"the folder holds {found} ({_first(recordings)}), but is none",
            "each file or folder in it is a recording of its own",
            f"pass one of them, such as {path / recordings[0]}",
        )
    found = "an empty folder"
    if names:
        tried = "none of them known" if len(names) <= _MOST_TRIED else f"none of the first {_MOST_TRIED} known"
        found = f"a folder with {len(names)} {'entry' if len(names) == 1 else 'entries'} ({_first(names)}), {tried}"
    return ProfileReadError(path, found, "the profiler wrote elsewhere, or its run ended too early", _formats(known))


def _formats(known: tuple[Reader, ...]) -> str:
    return f"pass a file or folder of {', '.join(reader.name for reader in known)}"


def _first(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")


def _is_recording(path: Path, known: tuple[Reader, ...]) -> bool:
    """Whether a reader recognises a file or folder; none does what may not be looked into."""
    try:
        head = head_or_nothing(path, HEAD_BYTES) if path.is_file() else b""
        return (bool(head) or path.is_dir()) and any(reader.recognises(path, head) for reader in known)
    except OSError:
        return False
