"""The course's list of recordings: what each is, where it was published, and its checksums."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Literal

import msgspec

from proflab.display import near
from proflab.errors import CourseError


class RecordedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a recording. `path` starts with the recording's name; a shipped file needs no `url`."""

    path: str
    sha256: str
    bytes: int
    role: str
    url: str | None = None


class Cut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the course ships of somebody's recording, by `tools/cuts`: the figures that the lessons ask.

    Its files have the paths of those that they are cut of. `keeps` says in words what is left.
    """

    keeps: str
    files: tuple[RecordedFile, ...]

    @property
    def total_bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One recording. What its files don't state is None; `notes` say what is odd about it.

    `main` is the file to read (below the recording's folder), None where the whole folder is one recording.
    `cut` is None where the course ships no cut of it.
    `origin` is modelled for files of gpumodel, whose known `error` is stated then.
    """

    name: str
    kind: str
    tool: str
    gpu: str
    workload: str
    files: tuple[RecordedFile, ...]
    licence: str
    licence_url: str
    copyright: str
    notes: str
    main: str | None = None
    tool_version: str | None = None
    gpu_arch: str | None = None
    rocm: str | None = None
    torch: str | None = None
    source_repo: str | None = None
    source_commit: str | None = None
    origin: Literal["recorded", "modelled"] = "recorded"
    error: str | None = None
    cut: Cut | None = None

    @property
    def total_bytes(self) -> int:
        """Size of all files together."""
        return sum(file.bytes for file in self.files)

    @property
    def has_address(self) -> bool:
        """Whether all files were published; a recording of the course's own only ships with it."""
        return all(file.url is not None for file in self.files)

    def of_cut(self) -> Entry:
        """The entry of the cut, with its files for those that were published. Raises ValueError where there is none."""
        if self.cut is None:
            raise ValueError(f"{self.name} has no cut")
        return msgspec.structs.replace(self, files=self.cut.files, cut=None)

    @property
    def short_gpu(self) -> str:
        """The GPU without what the manifest adds in brackets."""
        return self.gpu.partition(" (")[0]

    @property
    def short_rocm(self) -> str | None:
        """The ROCm release, as in `ROCm 6.4`; None where the recording does not state it."""
        found = re.search(r"ROCm \d+(\.\d+)*", self.rocm or "")
        return found.group() if found else None


def shipped_folder() -> Path:
    """Folder of manifest.json and of the recordings that come with the course.

    A wheel carries it inside the package; a checkout keeps it as `recordings` at the top.
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
