"""Lookup and verification of recordings, the traces that the course ships or downloads.

The manifest describes each recording, its source and its checksums. The course looks for a
recording among the shipped recordings, then in the cache, and then in the mirror folder
PROFLAB_RECORDINGS. If no folder contains the recording, the course uses the recording's cut, the
shipped part that the lessons need. Lessons therefore don't need a network.

Only `fetch` downloads files, and it saves them in the cache. The course reads mirror files
without copying them. PROFLAB_CACHE moves the cache, and PROFLAB_OFFLINE=1 forbids downloads.
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
"""Timeouts in seconds for connecting and for receiving the next part of a file."""

CACHE_NAME = "rocm-profiling-course"

CUT = "cut"
"""Value of `source` for a cut, which is the shipped part of a third-party recording.

The folder `cuts` contains all cuts.
"""


class RecordingUnavailable(CourseError):  # noqa: N818 - a state, not an error
    """Error for a recording that isn't on this machine and can't be downloaded now."""


@dataclass(frozen=True, repr=False)
class Recording:
    """Recording whose files are on this machine and verified.

    - root: parent of the recording's folder
    - source: shipped, cache, mirror or cut
    - entry: the manifest's entry, which lists the files of the cut if the source is cut
    """

    entry: Entry
    root: Path
    source: str

    @property
    def name(self) -> str:
        """Recording's name in the manifest."""
        return self.entry.name

    @property
    def path(self) -> Path:
        """Path to read: the main file, or the folder if the whole folder is one recording."""
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
        """All files, by path in the recording's folder."""
        return {
            file.path.removeprefix(f"{self.name}/"): self.root / file.path
            for file in self.entry.files
        }

    @functools.cached_property
    def origin(self) -> Origin:
        """Origin of the numbers.

        A recorded origin contains the GPU, the ROCm release (if stated) and the publishing
        repository. A modeled origin contains the model error.
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
    """State of one recording in one search folder.

    `problem` is None if the folder contains the complete recording, and "" if it contains none
    of the files.
    """

    source: str
    root: Path
    problem: str | None


def recording(name: str) -> Recording:
    """Return a verified local copy of the recording `name`, or its cut if there is no copy.

    This function never downloads files. Raises CourseError for an unknown name. If this machine
    has neither a copy nor a cut, raises RecordingUnavailable with the next step.
    """
    entry = find_entry(name)
    found = _find(entry, places(entry))
    if found is None:
        raise _unavailable(entry, "only `proflab fetch` downloads")
    return found


def fetch(name: str) -> Recording:
    """Return a verified local copy of the complete recording `name`.

    If no folder contains a copy, the function downloads the recording into the cache. Raises
    CourseError for an unknown name. If the recording isn't available, raises
    RecordingUnavailable with the next step.
    """
    entry = find_entry(name)
    found = _find(entry, [place for place in places(entry) if place.source != CUT])
    if found is not None:
        return found
    if os.environ.get("PROFLAB_OFFLINE") == "1" or not entry.has_address:
        raise _unavailable(entry, "PROFLAB_OFFLINE=1 forbids downloads")
    try:
        for file in entry.files:
            fetch_file(file, cache_folder())
    except (OSError, ValueError) as error:
        # requests raises OSError, and pooch raises ValueError for a wrong checksum.
        reason = str(error).splitlines()[0][:200]
        raise _unavailable(
            entry, f"the download failed ({type(error).__name__}: {reason})"
        ) from error
    return Recording(entry, cache_folder(), "cache")


def places(entry: Entry) -> list[Place]:
    """Return the state of a recording in each folder, in search order.

    The function compares the checksum of every file. The cut, if any, is last in the list.
    `fetch` never uses the cut instead of the recording.
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
    """Return the folder for downloads: PROFLAB_CACHE or the user's cache folder."""
    if folder := os.environ.get("PROFLAB_CACHE"):
        # Use an absolute path because a cell may change the current folder.
        return Path(folder).absolute()
    import pooch

    return Path(pooch.os_cache(CACHE_NAME))


def fetch_file(file: RecordedFile, folder: Path) -> None:
    """Download one file unless the folder already contains it, and verify its checksum.

    Raises OSError for errors such as network failures, and ValueError for a wrong checksum.
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
                f"{place.root}: the recording {entry.name} isn't used because {place.problem}",
                stacklevel=3,
            )
    return None


def problem(files: tuple[RecordedFile, ...], root: Path) -> str | None:
    """Return the reason that this folder can't provide these files.

    Return None if the folder can provide them, and "" if it contains none of them.
    """
    missing = [file.path for file in files if not (root / file.path).is_file()]
    if len(missing) == len(files):
        return ""
    if missing:
        return f"{missing[0]} is missing ({len(missing)} of {len(files)} files)"
    # Compare checksums last because this comparison reads every file completely.
    for file in files:
        path = root / file.path
        try:
            status = path.stat()
            digest = _sha256(path, status.st_size, status.st_mtime_ns)
        except OSError as error:
            return f"{file.path} can't be read: {error.strerror}"
        if digest != file.sha256:
            return f"{file.path} has a wrong checksum, so it was damaged or changed"
    return None


@functools.cache
def _sha256(path: Path, size: int, changed_ns: int) -> str:
    """Return the hexadecimal checksum, cached until the file's size or modification time
    changes.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unavailable(entry: Entry, reason: str) -> RecordingUnavailable:
    step = (
        "set PROFLAB_RECORDINGS to a folder with this recording, or run `python -m proflab fetch"
        f" {entry.name}` on a machine with network access"
    )
    if not entry.has_address:
        reason, step = (
            "the course ships this recording, so it can't be downloaded",
            "reinstall the course",
        )
    return RecordingUnavailable(
        f"recording {entry.name} ({size(entry.total_bytes)}) isn't on this machine: {reason}. Next"
        f" step: {step}"
    )


class RecordedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a recording.

    `path` starts with the recording's name. Shipped files don't need a `url`.
    """

    path: str
    sha256: str
    bytes: int
    role: str
    url: str | None = None


class Cut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Shipped part of a third-party recording, which `tools/cuts` created for the lessons.

    Files of the cut have the same paths as the original files. `keeps` describes the cut's
    contents.
    """

    keeps: str
    files: tuple[RecordedFile, ...]

    @property
    def total_bytes(self) -> int:
        """Total size of all files."""
        return sum(file.bytes for file in self.files)


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One recording in the manifest. A value is None if the recording's files don't state it.

    - main: the file to read in the recording's folder, or None if the whole folder is one
      recording
    - cut: the shipped part of the recording, or None if the course doesn't ship a part
    - origin: `modeled` for files from the former model, which also have the model's `error`
    - notes: description of peculiarities
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
        """Total size of all files."""
        return sum(file.bytes for file in self.files)

    @property
    def has_address(self) -> bool:
        """True if all files are published. The course's own recordings ship only with the
        course.
        """
        return all(file.url is not None for file in self.files)

    def of_cut(self) -> Entry:
        """Manifest entry for the cut, which lists the cut's files instead of the published files.

        Raises ValueError if the course doesn't ship a cut.
        """
        if self.cut is None:
            raise ValueError(f"{self.name} doesn't have a cut")
        return msgspec.structs.replace(self, files=self.cut.files, cut=None)

    @property
    def short_gpu(self) -> str:
        """GPU name, without the manifest's remarks in parentheses."""
        return self.gpu.partition(" (")[0]

    @property
    def short_rocm(self) -> str | None:
        """ROCm release, such as `ROCm 6.4`, or None if the manifest doesn't state it."""
        found = re.search(r"ROCm \d+(\.\d+)*", self.rocm or "")
        return found.group() if found else None


def shipped_folder() -> Path:
    """Return the folder that contains manifest.json and the shipped recordings.

    A wheel contains this folder inside the package. In a checkout, it is the top-level folder
    `recordings`.
    """
    inside = Path(__file__).parent / "shipped_recordings"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "recordings"


@functools.cache
def load_manifest() -> dict[str, Entry]:
    """Return all recordings by name, in the order of the manifest."""
    path = shipped_folder() / "manifest.json"
    entries = msgspec.json.decode(path.read_bytes(), type=list[Entry])
    return {entry.name: entry for entry in entries}


def find_entry(name: str) -> Entry:
    """Return a recording's manifest entry. Raises CourseError for an unknown name."""
    manifest = load_manifest()
    if name not in manifest:
        raise CourseError(f"there is no recording {name!r}: {near(name, manifest)}")
    return manifest[name]
