"""The function `read`, which recognizes the format of a file by its contents and calls the right
reader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tidyprof.errors import CUT_SHORT, EMPTY, OWN, ProfileReadError
from tidyprof.io.byte_stream import HEAD_BYTES, ByteStream, head_or_nothing
from tidyprof.io.guard import guarded

if TYPE_CHECKING:
    from tidyprof.tables.contract import Origin, Profile

_SHOWN_BYTES = 24

_MAX_TRIED = 64
"""Maximum number of entries to check in an unknown folder, because checking a huge folder would
take too long.
"""


@dataclass(frozen=True)
class Format:
    """A file format. The modules `recognition` and `reader` in the format's folder are imported
    only when they are needed.

    - name: format name for messages
    - folder: name of the format's folder
    - door: name of the function in `reader` that reads a file
    """

    name: str
    folder: str
    door: str

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Return True if the path has this format. The path is a folder or a file that starts with
        `head`.
        """
        return import_module(f"tidyprof.readers.{self.folder}.recognition").recognizes(path, head)

    @property
    def read(self) -> Callable[..., Profile]:
        """The reader function, which accepts a path and keyword arguments and returns a Profile."""
        return getattr(import_module(f"tidyprof.readers.{self.folder}.reader"), self.door)


FORMATS = (
    Format("torch.profiler (Chrome trace)", "torch", "read_torch_trace"),
    Format("PyTorch memory snapshot", "memory_snapshot", "read_memory_snapshot"),
    Format("rocmProfileData (.rpd)", "rpd", "read_rpd"),
    Format("rocpd (ROCm 7)", "rocpd", "read_rocpd"),
    Format(
        "rocprof-compute (workload folder or analysis database)",
        "rocprof_compute",
        "read_rocprof_compute",
    ),
    Format("rocprof-sys", "rocprof_sys", "read_rocprof_sys"),
    Format("rocprofv3 (CSV or JSON)", "rocprofv3", "read_rocprofv3"),
    Format("rocprof 1 and rocprofv2 (CSV)", "rocprof_v1", "read_rocprof_v1"),
    Format("Perfetto (rocprofv3, rocprof-sys)", "perfetto", "read_perfetto"),
    Format("system monitor (amd-smi, rocm-smi, omnistat)", "system", "read_system"),
)
"""All formats in the order in which they are checked. A file can match only one format. If a folder
matches several formats, the format with the most information takes precedence.
"""


class ReadOptions(TypedDict, total=False):
    """Options of `read`."""

    rank: int | None
    origin: Origin | None
    maximum_bytes: int | None
    python_functions: bool
    root: str | PathLike[str] | None
    time_zone: str | None
    only: Collection[Path] | None


@guarded
def read(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int | None = None,
    python_functions: bool = False,
    root: str | PathLike[str] | None = None,
    time_zone: str | None = None,
    only: Collection[Path] | None = None,
) -> Profile:
    """Read a profiler's file or folder. The file can have any name and any supported compression.

    If a folder isn't a profile itself but contains exactly one profile, that profile is read, and
    `meta["files"]` lists its files.

    - rank: the only rank to read. If the files don't contain a rank, this rank is assigned to them.
    - origin: origin of the profile, or None if it is unknown.
    - maximum_bytes: maximum size of an uncompressed file. None means the reader's default.
    - python_functions: True to read the Python functions in a torch trace as well. Other formats
      ignore this option.
    - root: see `read_torch_trace`.
    - time_zone: see `read_system`.
    - only: see `read_rocprofv3`.

    Raises TypeError if one of the options `rank`, `root`, `time_zone` and `only` is
    passed but the format doesn't support it. The readers for rocprof-compute, rocprof 1 and system
    monitors don't support `rank`.

    Raises ProfileReadError if the path doesn't exist, if its format is unknown, or if a folder
    contains several profiles.

    >>> profile = tidyprof.read("trace.json.gz")
    >>> profile.meta["tool"], len(profile.device_events)
    ('torch.profiler', 4)
    """
    path = Path(path)
    options: ReadOptions = {
        "rank": rank,
        "origin": origin,
        "maximum_bytes": maximum_bytes,
        "python_functions": python_functions,
        "root": root,
        "time_zone": time_zone,
        "only": only,
    }
    head = b"" if path.is_dir() else ByteStream(path).head(HEAD_BYTES)
    known = next((known for known in FORMATS if known.recognizes(path, head)), None)
    if known is not None:
        given = {name: value for name, value in options.items() if value is not None}
        if known.folder != "torch":
            del given["python_functions"]
        return _with_left_out(known.read(path, **given), path, known)
    if not path.is_dir():
        raise _unknown(path, head)
    names, recordings = recordings_in(path)
    if len(recordings) != 1 or len(names) > _MAX_TRIED:
        raise _unknown_folder(path, names, recordings)
    return read(path / next(iter(recordings)), **options)


def recordings_in(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return all names in a folder. Also return the formats of the profiles among the first
    _MAX_TRIED entries.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.name[0] != ".")
    return names, {name: kind for name in names[:_MAX_TRIED] if (kind := _format_of(folder / name))}


def _with_left_out(profile: Profile, path: Path, known: Format) -> Profile:
    """Add the folder's other profiles to `ignored_files`."""
    if not path.is_dir():
        return profile
    ignored = profile.meta.get("ignored_files", {})
    # A file that the reader used or reported isn't a second profile. Neither is its folder.
    named = [Path(file) for file in (*profile.meta.get("files", ()), *ignored)]
    others = {
        str(path / name): f"{OWN} {kind}"
        for name, kind in recordings_in(path)[1].items()
        if kind != known.name and not any(file.is_relative_to(path / name) for file in named)
    }
    if others:
        profile.meta["ignored_files"] = ignored | others
    return profile


def together(paths: Iterable[str | PathLike[str]]) -> list[tuple[Path, ReadOptions]]:
    """Return the paths and options that `read` needs to read the files of one run.

    If several files in one folder come from rocprofv3, they become a single profile that contains
    only these files, because rocprofv3 writes launches and kernels to separate files.
    """
    recordings: dict[Path, list[Path]] = {}
    for path in map(Path, paths):
        is_part = path.is_file() and _ROCPROFV3.recognizes(path, head_or_nothing(path, HEAD_BYTES))
        recordings.setdefault(path.parent if is_part else path, []).append(path)
    return [
        (files[0], {}) if len(files) == 1 else (recording, {"only": files})
        for recording, files in recordings.items()
    ]


_ROCPROFV3 = next(known for known in FORMATS if known.folder == "rocprofv3")


def _unknown(path: Path, head: bytes) -> ProfileReadError:
    if not head:
        return ProfileReadError(path, *EMPTY)
    if not head.strip(b"\0"):
        return ProfileReadError(path, "the file contains only zeros", *CUT_SHORT)
    return ProfileReadError(
        path,
        f"unknown format (the file starts with {repr(head[:_SHOWN_BYTES])[1:]})",
        "another tool wrote the file, or its beginning is damaged",
        _formats(),
    )


def _unknown_folder(path: Path, names: list[str], recordings: dict[str, str]) -> ProfileReadError:
    """Return the error for a folder that doesn't contain exactly one profile.

    - recordings: format of each profile in the folder, by name
    """
    shown = ", ".join(map(repr, list(recordings or names)[:3]))
    return ProfileReadError(
        path,
        f"the folder isn't a profile, and {len(recordings)} of its first {len(names[:_MAX_TRIED])}"
        f" entries are profiles ({shown}, ...)",
        "each profile is a separate file or folder, or the profiler wrote to another folder",
        f"pass one profile, such as {path / next(iter(recordings))}" if recordings else _formats(),
    )


def _formats() -> str:
    return f"pass a file or folder from {', '.join(known.name for known in FORMATS)}"


def _format_of(path: Path) -> str:
    """Return the format of a file or folder. Return "" if the format is unknown or the path can't
    be opened.
    """
    try:
        head = head_or_nothing(path, HEAD_BYTES) if path.is_file() else b""
        known = FORMATS if head or path.is_dir() else ()
        return next((one.name for one in known if one.recognizes(path, head)), "")
    except OSError:
        return ""
