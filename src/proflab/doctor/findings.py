"""The answer of a check: how things stand, what was found, what to do, and which known issue it is.

Known issues are in known_issues.toml; the page, the tables of lessons and the doctor all take their
texts from there.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proflab.doctor.machine import Machine


class Status(StrEnum):
    """How one row stands. `FIX` is red: something here will fail or mislead. `NOTE` is blue: good
    to know.
    """

    OK = "ok"
    NOTE = "note"
    FIX = "fix"
    UNKNOWN = "unknown"
    NOT_NEEDED = "not needed"


LONGEST = 200
"""Characters of one line, at most."""


class Issue(StrEnum):
    """Known issues that a check names itself, by the anchor of their heading; all others are found
    by version.
    """

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
    """One row. `key` is stable; `found` is what is here; `cure` is one line, needed if the status
    is FIX.

    Output of programs becomes one printable line. `issue` is the anchor of a known issue, None
    without one. Raises ValueError for a red row without a cure.
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
    """A row for a question that could not be answered."""
    return Finding(key, Status.UNKNOWN, found, cure)


def not_needed(key: str, found: str) -> Finding:
    """A row for something that does not matter here."""
    return Finding(key, Status.NOT_NEEDED, found)


@dataclass(frozen=True)
class Probe:
    """A question to a machine, answered with one finding for each of its keys, in their order."""

    keys: tuple[str, ...]
    ask: Callable[[Machine], Iterable[Finding]]


def one_line(text: str, longest: int = 120) -> str:
    """Text of a tool as one printable line of at most `longest` characters: control characters
    become blanks, and a longer text is cut at its end.
    """
    words = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return words if len(words) <= longest else f"{words[: longest - 1]}…"


TABLE = Path(__file__).with_name("known_issues.toml")


@dataclass(frozen=True)
class Versions:
    """Versions of `tool` that have an issue: from `since` through `last`, or up to but not
    including `until`.

    A bound is "" if no source states it. `note` is what else is known. Raises ValueError for a
    bound without a number, and for both `last` and `until`.
    """

    tool: str
    since: str = ""
    last: str = ""
    until: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        for bound in filter(None, (self.since, self.last, self.until)):
            parts(bound)
        if self.last and self.until:
            raise ValueError(
                f"{self.tool}: an issue ends with `last` or with `until`, not with both"
            )

    def has(self, version: str) -> bool:
        """Whether this version has the issue; raises ValueError if the version holds no number."""
        number = parts(version)
        return (
            (not self.since or number >= parts(self.since))
            and (not self.last or number <= parts(self.last))
            and (not self.until or number < parts(self.until))
        )


@dataclass(frozen=True)
class Rule:
    """How the doctor reports an issue: in red if `serious`, and only for these GPUs, systems or
    builds (for all if none are given).
    """

    serious: bool
    architectures: Sequence[str] = ()
    systems: Sequence[str] = ()
    builds: Sequence[str] = ()


@dataclass(frozen=True)
class KnownIssue:
    """One entry of known_issues.toml. `looked` is the day on which its sources were last read;
    `doctor` is None if the doctor has no rule for it.
    """

    section: str
    heading: str
    symptom: str
    check: str
    cure: str
    versions: Versions
    sources: Sequence[str]
    looked: date
    brief: str = ""
    todo: str = ""
    doctor: Rule | None = None

    def __post_init__(self) -> None:
        if bool(self.brief) != bool(self.todo) or (self.doctor and not self.brief):
            raise ValueError(
                f"{self.heading}: brief and todo belong together, and to every rule of the doctor"
            )
        if (
            self.doctor
            and self.doctor.serious
            and not self.versions.last
            and not self.versions.until
        ):
            raise ValueError(
                f"{self.heading}: a serious fault without a last version would never end"
            )

    @property
    def anchor(self) -> str:
        """The anchor of its heading, as GitHub makes it."""
        return re.sub(r"[^\w\- ]", "", self.heading.lower()).replace(" ", "-")


@functools.cache
def all_issues() -> dict[str, KnownIssue]:
    """The entries of known_issues.toml by anchor, in the file's order; a wrong entry raises
    TypeError or ValueError.
    """
    sections = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    found = [
        _issue(section, heading, **entry)
        for section in sections
        for heading, entry in sections[section].items()
    ]
    by_anchor = {issue.anchor: issue for issue in found}
    if len(by_anchor) < len(found):
        raise ValueError(f"{TABLE.name}: two headings have the same anchor")
    return by_anchor


def faults_of(
    tool: str,
    version: str,
    architectures: Sequence[str] = (),
    systems: Sequence[str] = (),
    builds: Sequence[str] = (),
) -> Iterator[Finding]:
    """A finding for each known fault of this version of `tool`.

    A fault of other GPUs, systems or builds than those here is left out. If it is not known which
    ones are here, the finding is a note. Raises ValueError for a version without a number.
    """
    for issue in all_issues().values():
        rule = issue.doctor
        if rule is None or issue.versions.tool != tool or not issue.versions.has(version):
            continue
        limits = [
            (rule.architectures, architectures),
            (rule.systems, systems),
            (rule.builds, builds),
        ]
        if any(wanted and here and not set(wanted) & set(here) for wanted, here in limits):
            continue
        # Without knowledge of this machine a fault is neither excluded nor certain.
        is_certain = all(here for wanted, here in limits if wanted)
        status = Status.FIX if rule.serious and is_certain else Status.NOTE
        cure = f"{issue.todo[0].upper()}{issue.todo[1:]}."
        yield Finding(tool, status, f"{version}: {issue.brief}", cure, issue.anchor)


def parts(version: str) -> tuple[int, int, int]:
    """The first three numbers of a version: "7.2.1-81" is (7, 2, 1), "7.2" is (7, 2, 0).

    Raises ValueError if there is no number at all.
    """
    # Behind - or + stands the name of a build, whose numbers don't belong to the version.
    found = [
        int(number)
        for number in re.findall(r"\d+", version.partition("-")[0].partition("+")[0])[:3]
    ]
    if not found:
        raise ValueError(f"no version number in {version!r}")
    major, minor, patch = [*found, 0, 0][:3]
    return major, minor, patch


def _issue(
    section: str, heading: str, versions: dict, doctor: dict | None = None, **entry: Any
) -> KnownIssue:
    rule = None if doctor is None else Rule(**doctor)
    return KnownIssue(section, heading, versions=Versions(**versions), doctor=rule, **entry)
