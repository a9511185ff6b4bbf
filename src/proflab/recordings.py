"""Find a recording, and verify every file of it.

The list of recordings tells of each what it is, where it was published, and its checksums.

Places are searched in this order: recordings shipped with the course, the cache, the mirror folder
PROFLAB_RECORDINGS, and then the recording's cut that ships with the course: the part that the
lessons need. So a lesson needs no network. Only `fetch` downloads, into the cache. Files of a
mirror are used where they are. PROFLAB_CACHE moves the cache, PROFLAB_OFFLINE=1 forbids downloads.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from proflab.display import near, size
from proflab.errors import CourseError

if TYPE_CHECKING:
    from tidyprof.tables.contract import Origin


TIMEOUT_S = (10, 60)
"""Seconds to wait for a connection, and for the next piece of a file."""

CACHE_NAME = "rocm-profiling-course"

CUT = "cut"
"""The place of the shipped part of somebody's recording, and the name of its folder beside the
whole recordings.
"""


class RecordingUnavailable(CourseError):  # noqa: N818 - a state, not a fault
    """A recording is not here and can't be downloaded now."""


@dataclass(frozen=True, repr=False)
class Recording:
    """A recording whose files are here and verified.

    `root` is the folder above the recording's own; `source` is shipped, cache, mirror or cut. For a
    cut, `entry.files` are the files of the cut.
    """

    entry: Entry
    root: Path
    source: str

    @property
    def name(self) -> str:
        """The recording's name in the manifest."""
        return self.entry.name

    @property
    def path(self) -> Path:
        """The path for a reader: the main file, or the folder if the folder is the recording."""
        if self.entry.main is not None:
            return self.root / self.name / self.entry.main
        parents = [
            str((self.root / file.path).parent)
            for file in self.entry.files
            if file.role == "recording"
        ]
        return Path(os.path.commonpath(parents))

    @property
    def files(self) -> dict[str, Path]:
        """Every file by its path below the recording's folder."""
        return {
            file.path.removeprefix(f"{self.name}/"): self.root / file.path
            for file in self.entry.files
        }

    @functools.cached_property
    def origin(self) -> Origin:
        """`recorded` with GPU, ROCm release (if stated) and publishing repository, or `modeled`
        with the error.
        """
        from tidyprof.tables.contract import Origin

        if self.entry.origin == "modeled":
            return Origin(
                "modeled", f"{self.entry.short_gpu}, {self.entry.error or 'error not known'}"
            )
        cut = "shortened for the lessons" if self.source == CUT else None
        parts = (self.entry.short_gpu, self.entry.short_rocm, self.entry.source_repo, cut)
        return Origin("recorded", ", ".join(part for part in parts if part))

    def __repr__(self) -> str:
        entry = self.entry
        return f"Recording {entry.name} ({self.source}): {entry.workload}; {entry.license}"


@dataclass(frozen=True)
class Place:
    """The state of one recording in one place: `problem` is None if it is complete, "" if nothing
    of it is there.
    """

    source: str
    root: Path
    problem: str | None


def recording(name: str) -> Recording:
    """A verified local copy of the recording `name`, or else the course's cut of it. Nothing is
    downloaded.

    Raises CourseError for an unknown name and RecordingUnavailable, with the next step, if neither
    is here.
    """
    entry = find_entry(name)
    found = _find(entry, places(entry))
    if found is None:
        raise _unavailable(entry, "only `proflab fetch` downloads")
    return found


def fetch(name: str) -> Recording:
    """A verified local copy of all that was published of `name`, downloaded into the cache if it is
    nowhere else.

    Raises CourseError for an unknown name and RecordingUnavailable, with the next step, if there is
    no such copy.
    """
    entry = find_entry(name)
    found = _find(entry, [place for place in places(entry) if place.source != CUT])
    if found is not None:
        return found
    if os.environ.get("PROFLAB_OFFLINE") == "1" or not entry.has_address:
        raise _unavailable(entry, "PROFLAB_OFFLINE=1 forbids the download")
    try:
        for file in entry.files:
            fetch_file(file, cache_folder())
    except (OSError, ValueError) as error:
        # Errors of requests are OSErrors; pooch's checksum error is a ValueError.
        reason = str(error).splitlines()[0][:200]
        raise _unavailable(
            entry, f"the download failed ({type(error).__name__}: {reason})"
        ) from error
    return Recording(entry, cache_folder(), "cache")


def places(entry: Entry) -> list[Place]:
    """What each place holds of a recording, in the order of the search. The checksum of every file
    is compared.

    The last place is the course's cut, if there is one; `fetch` never takes it for the recording.
    """
    roots = [("shipped", shipped_folder()), ("cache", cache_folder())]
    if mirror := os.environ.get("PROFLAB_RECORDINGS"):
        roots.append(("mirror", Path(mirror)))
    found = [Place(source, root, problem(entry.files, root)) for source, root in roots]
    if entry.cut:
        root = shipped_folder() / f"{CUT}s"
        found.append(Place(CUT, root, problem(entry.cut.files, root)))
    return found


def cache_folder() -> Path:
    """Return the folder of downloaded recordings: PROFLAB_CACHE, or the user's cache folder."""
    if folder := os.environ.get("PROFLAB_CACHE"):
        # A cell may change its folder and must still find the files there.
        return Path(folder).absolute()
    import pooch

    return Path(pooch.os_cache(CACHE_NAME))


def fetch_file(file: RecordedFile, folder: Path) -> None:
    """Download one file into a folder of recordings, if it is not there yet, and verify it.

    Raises OSError, also for errors of requests, and ValueError for another checksum.
    """
    import pooch

    pooch.get_logger().setLevel("WARNING")
    target = folder / file.path
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT_S)
    checksum = f"sha256:{file.sha256}"
    pooch.retrieve(file.url, checksum, target.name, target.parent, downloader=downloader)


def _find(entry: Entry, searched: list[Place]) -> Recording | None:
    for place in searched:
        if place.problem is None:
            found = entry.of_cut() if place.source == CUT else entry
            return Recording(found, place.root, place.source)
        if place.problem:
            warnings.warn(
                f"{place.root}: recording {entry.name} is not used: {place.problem}", stacklevel=3
            )
    return None


def problem(files: tuple[RecordedFile, ...], root: Path) -> str | None:
    """Return why this folder can't serve these files: None if it can, "" if it holds none of
    them.
    """
    missing = [file.path for file in files if not (root / file.path).is_file()]
    if len(missing) == len(files):
        return ""
    if missing:
        return f"{missing[0]} is missing ({len(missing)} of {len(files)} files)"
    # Checksums come last: they read every file as a whole.
    for file in files:
        path = root / file.path
        try:
            status = path.stat()
            digest = _sha256(path, status.st_size, status.st_mtime_ns)
        except OSError as error:
            return f"{file.path} can't be read: {error.strerror}"
        if digest != file.sha256:
            return f"{file.path} is damaged or changed: its checksum is wrong"
    return None


@functools.cache
def _sha256(path: Path, size: int, changed_ns: int) -> str:
    """Checksum in hexadecimal digits, remembered until the file's size or time changes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unavailable(entry: Entry, reason: str) -> RecordingUnavailable:
    step = (
        "set PROFLAB_RECORDINGS to a folder that holds it, or run `python -m proflab fetch"
        f" {entry.name}` on a machine with network"
    )
    if not entry.has_address:
        reason, step = "it ships with the course and has no address", "reinstall the course"
    return RecordingUnavailable(
        f"recording {entry.name} ({size(entry.total_bytes)}) is not here: {reason}. Next step:"
        f" {step}"
    )


class RecordedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a recording. `path` begins with the recording's name; a shipped file needs no
    `url`.
    """

    path: str
    sha256: str
    bytes: int
    role: str
    url: str | None = None


class Cut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of somebody's recording that the course ships, made by `tools/cuts`: the numbers
    that the lessons need.

    Its files have the paths of the files that they were cut from. `keeps` tells in words what is
    left.
    """

    keeps: str
    files: tuple[RecordedFile, ...]

    @property
    def total_bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One recording. A value that its files don't state is None; `notes` tell its oddities.

    main   -- the file to read, below the recording's folder; None if the whole folder is one
              recording.
    cut    -- None if the course ships no cut of it.
    origin -- `modeled` for files of the former model, whose known `error` is then stated.
    """

    name: str
    kind: str
    tool: str
    gpu: str
    workload: str
    files: tuple[RecordedFile, ...]
    license: str
    license_url: str
    copyright: str
    notes: str
    main: str | None = None
    tool_version: str | None = None
    gpu_arch: str | None = None
    rocm: str | None = None
    torch: str | None = None
    source_repo: str | None = None
    source_commit: str | None = None
    origin: Literal["recorded", "modeled"] = "recorded"
    error: str | None = None
    cut: Cut | None = None

    @property
    def total_bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)

    @property
    def has_address(self) -> bool:
        """Whether all files were published; the course's own recordings only ship with it."""
        return all(file.url is not None for file in self.files)

    def of_cut(self) -> Entry:
        """The entry of the cut, with its files in place of the published ones. Raises ValueError if
        there is none.
        """
        if self.cut is None:
            raise ValueError(f"{self.name} has no cut")
        return msgspec.structs.replace(self, files=self.cut.files, cut=None)

    @property
    def short_gpu(self) -> str:
        """The GPU without the manifest's remarks in brackets."""
        return self.gpu.partition(" (")[0]

    @property
    def short_rocm(self) -> str | None:
        """The ROCm release, as in `ROCm 6.4`; None if the recording does not state it."""
        found = re.search(r"ROCm \d+(\.\d+)*", self.rocm or "")
        return found.group() if found else None


def shipped_folder() -> Path:
    """Folder of manifest.json and of the recordings that come with the course.

    A wheel carries it inside the package; in a checkout it is `recordings` at the top.
    """
    inside = Path(__file__).parent / "shipped_recordings"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "recordings"


@functools.cache
def load_manifest() -> dict[str, Entry]:
    """All recordings by name, in the manifest's order."""
    path = shipped_folder() / "manifest.json"
    entries = msgspec.json.decode(path.read_bytes(), type=list[Entry])
    return {entry.name: entry for entry in entries}


def find_entry(name: str) -> Entry:
    """The manifest's entry; raises CourseError for an unknown name."""
    manifest = load_manifest()
    if name not in manifest:
        raise CourseError(f"there is no recording {name!r}: {near(name, manifest)}")
    return manifest[name]
