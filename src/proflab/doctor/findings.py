"""What a check says: how things stand, what was found, what to do, and which known issue it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proflab.doctor.machine import Machine


class Status(StrEnum):
    """How one row stands. `FIX` is red: something here will fail or mislead. `NOTE` is blue: good to know."""

    OK = "ok"
    NOTE = "note"
    FIX = "fix"
    UNKNOWN = "unknown"
    NOT_NEEDED = "not needed"


LONGEST = 200
"""Letters of one line."""


class Issue(StrEnum):
    """Known issues that a check points to by itself, by the anchor of their heading; the others come by version."""

    NO_RENDER_GROUP = "devkfd-is-there-but-may-not-be-used"
    NO_KFD = "no-devkfd-although-a-gpu-is-built-in"
    DOUBLE_MASKING = "two-visibility-variables-hide-every-gpu"
    TWO_TOOLS = "two-profilers-in-one-process"
    TWO_SUBSCRIBERS = "rocprofv3-and-a-torch-with-its-own-rocprofiler-sdk"
    TWO_RELEASES = "tools-and-libraries-of-two-rocm-releases"
    NO_GPU_RECORDS = "trace-without-any-gpu-record"
    IN_A_VENV = "rocprofv3-in-a-virtual-environment-finds-no-gpu"
    WRONG_TORCH = "pip-installs-a-torch-that-cannot-use-the-gpu"
    IMPORT_HANGS = "import-torch-hangs-without-devkfd"
    SHADOWED_PYTHON = "a-virtual-environment-shadows-the-modules-python"
    COMPUTE_PACKAGES = "rocprof-compute-asks-for-python-packages"
    LEGACY_TOOLS = "rocprof-omniperf-and-omnitrace-are-retired"
    MIOPEN_CACHE = "miopen-databases-on-a-network-file-system"
    PERF_PARANOID = "hardware-counters-of-the-cpu-are-forbidden"
    PTRACE = "attaching-to-a-running-process-is-forbidden"
    FEW_CORES = "loader-processes-without-cores"
    SLOW_DATA = "cifar-100-takes-an-hour-to-download"
    RANKS = "a-process-waits-for-ranks-that-do-not-exist"


@dataclass(frozen=True)
class Finding:
    """One row. `key` is stable; `found` is what is here; `cure` is one line, needed where the status is FIX.

    What programs said becomes one printable line. `issue` is the anchor of a known issue.
    """

    key: str
    status: Status
    found: str
    cure: str = ""
    issue: str | None = None

    def __post_init__(self) -> None:
        if self.status is Status.FIX and not self.cure:
            raise ValueError(f"{self.key}: what is to be fixed needs a cure")
        for name in ("found", "cure"):
            object.__setattr__(self, name, one_line(getattr(self, name), LONGEST))


def ok(key: str, found: str, cure: str = "") -> Finding:
    """A green row."""
    return Finding(key, Status.OK, found, cure)


def note(key: str, found: str, cure: str = "", issue: Issue | None = None) -> Finding:
    """A blue row."""
    return Finding(key, Status.NOTE, found, cure, issue)


def fix(key: str, found: str, cure: str, issue: Issue | None = None) -> Finding:
    """A red row."""
    return Finding(key, Status.FIX, found, cure, issue)


def unknown(key: str, found: str, cure: str = "") -> Finding:
    """A row of what could not be found out."""
    return Finding(key, Status.UNKNOWN, found, cure)


def not_needed(key: str, found: str) -> Finding:
    """A row that does not matter here."""
    return Finding(key, Status.NOT_NEEDED, found)


@dataclass(frozen=True)
class Probe:
    """A question to a machine that answers with one finding per key, in this order."""

    keys: tuple[str, ...]
    ask: Callable[[Machine], Iterable[Finding]]


def one_line(text: str, longest: int = 120) -> str:
    """Text from a tool as one printable line: control characters become blanks, and its end is cut."""
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"
