"""`read`: recognizes what wrote a file by its content and calls the reader for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from tidyprof.errors import CUT_SHORT, EMPTY, OWN, ProfileReadError, SeveralRecordingsError
from tidyprof.io.byte_stream import HEAD_BYTES, ByteStream, head_or_nothing
from tidyprof.io.guard import guarded, no_files

if TYPE_CHECKING:
    from tidyprof.tables.contract import Origin, Profile

_SHOWN_BYTES = 24

_MAX_TRIED = 64
"""A recording is looked for in at most so many entries of an unknown folder, so that a huge folder
takes no time.
"""


@dataclass(frozen=True)
class Format:
    """One format. Its folder here has the modules `recognition` and `reader`, which are imported
    when they are needed.

    name   -- what the format is called, for messages.
    folder -- the folder's name.
    door   -- name of the reading function in `reader`.
    has_functions -- whether the reader has the option `python_functions`.
    """

    name: str
    folder: str
    door: str
    has_functions: bool = False

    def recognizes(self, path: Path, head: bytes) -> bool:
        """Whether a file that starts with `head`, or a folder, is of this format."""
        return import_module(f"tidyprof.readers.{self.folder}.recognition").recognizes(path, head)

    @property
    def read(self) -> Callable[..., Profile]:
        """The reader: path and keyword arguments in, Profile out."""
        return getattr(import_module(f"tidyprof.readers.{self.folder}.reader"), self.door)


FORMATS = (
    Format("torch.profiler (Chrome trace)", "torch", "read_torch_trace", has_functions=True),
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
"""All formats, in the order in which they are asked. No file is recognized by two of them. A folder
may be: then the format that says most comes first.
"""


class ReadOptions(TypedDict, total=False):
    """The options of `read`."""

    rank: int | None
    origin: Origin | None
    maximum_bytes: int | None
    python_functions: bool
    progress: bool | None
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
    progress: bool | None = None,
    root: str | PathLike[str] | None = None,
    time_zone: str | None = None,
    only: Collection[Path] | None = None,
) -> Profile:
    """Read a profiler's file or folder, whatever its name is and however it is compressed.

    With rocprofv3, path may also be a folder and the start of the file names, as given to its
    --output-file. Where a folder is no recording but holds one, that recording is read, and
    meta["files"] names its files; a folder with several is refused.

    rank             -- read only this rank; for files that state none, the rank that they have.
    origin           -- where the recording comes from; not stated if None.
    maximum_bytes    -- refuse files that are larger when unpacked; None: the reader's own limit.
    python_functions -- read the Python functions of a torch trace, too; other formats ignore it.

    Options that only some readers know raise TypeError with another format: `rank` with
    rocprof-compute, rocprof 1 and monitors; `progress` with all but torch, Perfetto and
    rocprof-sys; `root`, see `read_torch_trace`; `time_zone`, see `read_system`; `only`, see
    `read_rocprofv3`.

    Raises ProfileReadError if the path is missing or no reader knows its content.

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
        "progress": progress,
        "root": root,
        "time_zone": time_zone,
        "only": only,
    }
    # The start of rocprofv3's file names is no file itself; a path that is missing is opened all
    # the same, which raises the error.
    has_content = path.is_file() or not _starts_file_names(path)
    head = ByteStream(path).head(HEAD_BYTES) if has_content and not path.is_dir() else b""
    known = next((known for known in FORMATS if known.recognizes(path, head)), None)
    if known is not None:
        return _read_as(known, path, options)
    if not path.is_dir():
        raise _unknown(path, head)
    names, recordings = recordings_in(path)
    if len(recordings) != 1 or len(names) > _MAX_TRIED:
        raise _unknown_folder(path, names, recordings)
    return read(path / next(iter(recordings)), **options)


def _read_as(known: Format, path: Path, options: ReadOptions) -> Profile:
    """Read a file or folder of this format. Where it holds several recordings of different formats,
    the error names these.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if not known.has_functions:
        del given["python_functions"]
    try:
        return _with_left_out(known.read(path, **given), path, known)
    except SeveralRecordingsError:
        names, recordings = recordings_in(path)
        if len(set(recordings.values())) > 1:
            raise _unknown_folder(path, names, recordings) from None
        raise


def recordings_in(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The names in a folder, and those of the first _MAX_TRIED that are recordings, with their
    formats.
    """
    names = sorted(entry.name for entry in folder.iterdir() if entry.name[0] != ".")
    return names, {name: kind for name in names[:_MAX_TRIED] if (kind := _format_of(folder / name))}


def _with_left_out(profile: Profile, path: Path, known: Format) -> Profile:
    """The profile, with `ignored_files` that name all that was left out of a folder: pipes and
    other things that are no files, and recordings of other formats.
    """
    if not path.is_dir():
        return profile
    files = profile.meta.get("files", ())
    folders = dict.fromkeys([path, *(Path(file).parent for file in files)])
    ignored = {str(file): reason for file, reason in no_files(folders).items()}
    ignored |= profile.meta.get("ignored_files", {})
    # What the reader read or named itself is no second recording, nor is the folder that it is in.
    named = [Path(file) for file in (*files, *ignored)]
    for name, kind in recordings_in(path)[1].items():
        if kind != known.name and not any(file.is_relative_to(path / name) for file in named):
            ignored[str(path / name)] = f"{OWN} {kind}"
    profile.meta |= {"ignored_files": ignored} if ignored else {}
    return profile


def together(paths: Iterable[str | PathLike[str]]) -> list[tuple[Path, ReadOptions]]:
    """Paths and options for `read`, for the files of one run: what rocprofv3 wrote into one folder
    is one recording.

    A folder that holds a folder for each tool stands for those. Files of rocprofv3 that are named
    one by one are read together, as their folder would be but for the files that are not named:
    launches and kernels lie in different files there. Raises ProfileReadError for a file that can't
    be opened.
    """
    recordings: dict[Path, list[Path]] = {}
    for path in (one for given in paths for one in _of_each_tool(Path(given))):
        head = ByteStream(path).head(HEAD_BYTES) if path.is_file() else b""
        is_part = path.is_file() and _ROCPROFV3.recognizes(path, head)
        recordings.setdefault(path.parent if is_part else path, []).append(path)
    return [
        (files[0], {}) if len(files) == 1 else (recording, {"only": files})
        for recording, files in recordings.items()
    ]


def _of_each_tool(path: Path) -> list[Path]:
    """The recordings in a folder, where each is a folder by another tool; else the path itself.

    Two recordings of one tool may be two runs.
    """
    if not path.is_dir():
        return [path]
    recordings = recordings_in(path)[1]
    tools = set(recordings.values())
    several = 1 < len(tools) == len(recordings) and all(
        (path / name).is_dir() for name in recordings
    )
    return [path / name for name in recordings] if several else [path]


_ROCPROFV3 = next(known for known in FORMATS if known.folder == "rocprofv3")


def _starts_file_names(path: Path) -> bool:
    """Whether there is no such file or folder, but files whose names begin with this one."""
    if path.exists() or not path.name or not path.parent.is_dir():
        return False
    return any(entry.name.startswith(path.name) for entry in path.parent.iterdir())


_THREAD_TRACE = re.compile(r"^(stats_)?ui_output_|\.att$|_code_object_id_\d+\.out$")
"""Names that rocprofv3 --att gives; in a folder `ui_output_...` its tables are JSON."""

_VIEWER = (
    (
        "a thread trace of rocprofv3 --att: cycles of instructions of some waves, no recording of"
        " a run"
    ),
    "it was made to look into one kernel",
    (
        "open the folder ui_output_... with ROCprof Compute Viewer; `tidyprof isa` reads the code"
        " objects (*.out)"
    ),
)


def _is_of_thread_trace(path: Path, head: bytes) -> bool:
    """Whether a file belongs to a thread trace, by its name, its folder's name, or the header of
    its table.
    """
    line = head.partition(b"\n")[0]
    is_table = b"Vaddr" in line and b"Hitcount" in line
    return is_table or any(
        _THREAD_TRACE.search(name) for name in (path.name, path.absolute().parent.name)
    )


def _unknown(path: Path, head: bytes) -> ProfileReadError:
    if not head:
        return ProfileReadError(path, *EMPTY)
    if not head.strip(b"\0"):
        return ProfileReadError(path, "zeros instead of content", *CUT_SHORT)
    if _is_of_thread_trace(path, head):
        return ProfileReadError(path, *_VIEWER)
    return ProfileReadError(
        path,
        f"content of no known format (starts with {repr(head[:_SHOWN_BYTES])[1:]})",
        "it is the output of another tool, or damaged at its start",
        _formats(),
    )


def _unknown_folder(path: Path, names: list[str], recordings: dict[str, str]) -> ProfileReadError:
    """The error about a folder that is no recording: it is empty, holds several, or holds something
    else.

    recordings -- name -> format of the recordings in it.
    """
    if recordings:
        found = (
            f"{len(recordings)} recordings"
            if len(recordings) > 1
            else f"a recording among {len(names)} entries"
        )
        kinds = Counter(kind.partition(" (")[0] for kind in recordings.values()).most_common()
        return ProfileReadError(
            path,
            f"the folder holds {found} ({_first(list(recordings))}), but is none",
            "each file or folder in it is a recording of its own: "
            + ", ".join(f"{count} of {kind}" for kind, count in kinds),
            f"pass one of them, such as {path / next(iter(recordings))}",
        )
    if any(_THREAD_TRACE.search(name) for name in (path.absolute().name, *names)):
        return ProfileReadError(path, *_VIEWER)
    found = "an empty folder"
    if names:
        tried = (
            "none of them known"
            if len(names) <= _MAX_TRIED
            else f"none of the first {_MAX_TRIED} known"
        )
        found = (
            f"a folder with {len(names)} {'entry' if len(names) == 1 else 'entries'}"
            f" ({_first(names)}), {tried}"
        )
    return ProfileReadError(
        path, found, "the profiler wrote elsewhere, or its run ended too early", _formats()
    )


def _formats() -> str:
    return f"pass a file or folder of {', '.join(known.name for known in FORMATS)}"


def _first(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")


def _format_of(path: Path) -> str:
    """The format of a file or folder that a reader recognizes, else ""; "" also for what may not be
    opened.
    """
    try:
        head = head_or_nothing(path, HEAD_BYTES) if path.is_file() else b""
        known = FORMATS if head or path.is_dir() else ()
        return next((one.name for one in known if one.recognizes(path, head)), "")
    except OSError:
        return ""
