"""The ROCm releases: versions of the tools, options that came and went, defaults that changed.

All of it is in releases.toml, with sources. Releases are compared as numbers: 7.2 is older than
7.14.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proflab.display import near
from proflab.errors import CourseError

VARIABLE = "PROFLAB_ROCM"
"""Environment variable with the release that the player follows, such as 7.2."""


@dataclass(frozen=True)
class Release:
    """One release: its number, the month, and the version of each tool ("" if none is stated).

    preview   -- whether it is a preview of a release.
    confirmed -- False if the release is in use, but nobody has seen its release notes.
    """

    rocm: str
    date: str
    versions: Mapping[str, str]
    preview: bool = False
    confirmed: bool = True


@dataclass(frozen=True)
class Change:
    """An option or behavior that a tool has from the release `since` on, until it is gone in the
    release `until` ("" for always).

    default -- first release of each behavior -> the behavior.
    always  -- what works on every release.
    """

    tool: str
    option: str
    source: str
    since: str = ""
    until: str = ""
    default: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    always: str = ""
    note: str = ""

    def is_in(self, rocm: str) -> bool:
        """Whether this release has it."""
        here = number(rocm)
        return number(self.since or "0") <= here and (not self.until or here < number(self.until))


@dataclass(frozen=True)
class TorchBuild:
    """Where a torch for one release comes from: uv's own list of indexes, or `index` with this pair
    of versions.

    With `per_gpu` its kernels come in a package for each architecture, which an extra asks for.
    """

    rocm: str
    source: str
    looked_up: str
    uv: bool = False
    index: str = ""
    torch: str = ""
    torchvision: str = ""
    per_gpu: bool = False


def number(rocm: str) -> tuple[int, ...]:
    """The release as numbers that compare, without the patch level: "7.14.0" is (7, 14)."""
    return tuple(int(part) for part in re.findall(r"\d+", rocm)[:2])


@functools.cache
def releases() -> tuple[Release, ...]:
    """Return all releases, the oldest first."""
    fields = {one.name for one in dataclasses.fields(Release)}
    return tuple(
        Release(
            versions={tool: text for tool, text in entry.items() if tool not in fields},
            **{name: value for name, value in entry.items() if name in fields},
        )
        for entry in _data()["release"]
    )


@functools.cache
def changes() -> tuple[Change, ...]:
    """All changes, in the order of the tools."""
    return tuple(Change(**entry) for entry in _data()["change"])


@functools.cache
def torch_builds() -> tuple[TorchBuild, ...]:
    """Where torch comes from, by release, the oldest first."""
    return tuple(TorchBuild(**entry) for entry in _data()["torch_build"])


def newest() -> Release:
    """The newest release that is confirmed and no preview."""
    return [release for release in releases() if release.confirmed and not release.preview][-1]


def shown() -> tuple[str, ...]:
    """The releases that pages and tests go through: all but the previews before the last one."""
    return tuple(one.rocm for one in releases() if not one.preview or one == releases()[-1])


def filled(text: str) -> str:
    """Return the text with its placeholders filled in from the newest confirmed release.

    `{newest rocm}` is that release, and `{newest rocprof-compute}` the version of a tool in it.
    Raises CourseError for a name that the table lacks.
    """
    last = newest()
    known = {"rocm": last.rocm, **last.versions}

    def value(found: re.Match[str]) -> str:
        if stated := known.get(found[1]):
            return stated
        raise CourseError(f"{found[0]}: the table of releases has no {found[1]!r} for {last.rocm}")

    return re.sub(r"\{newest\s+([\w-]+)\}", value, text)


def release(rocm: str) -> Release:
    """The release with this number (without its patch level); raises CourseError for an unknown
    one.
    """
    known = {found.rocm: found for found in releases()}
    wanted = ".".join(map(str, number(rocm)))
    if wanted not in known:
        raise CourseError(f"there is no ROCm {rocm!r} in the course's table: {near(rocm, known)}")
    return known[wanted]


def followed(environ: Mapping[str, str] = os.environ, found: str = "") -> Release:
    """The release to follow: the one in PROFLAB_ROCM, else the one `found` on this machine, else
    the newest.

    A release on this machine that is not in the table counts as the last one before it. Raises
    CourseError for an unknown value of PROFLAB_ROCM.
    """
    if environ.get(VARIABLE):
        return release(environ[VARIABLE])
    older = [one for one in releases() if found and number(one.rocm) <= number(found)]
    return older[-1] if older else newest()


def installed(environ: Mapping[str, str] = os.environ) -> str:
    """The release of the ROCm on this machine, from its own version file; "" without one."""
    try:
        return (
            (Path(environ.get("ROCM_PATH") or "/opt/rocm") / ".info" / "version")
            .read_text()
            .strip()
        )
    except OSError:
        return ""


def change(tool: str, option: str) -> Change | None:
    """The table's entry on a tool's option; None if nothing ever changed."""
    return next(
        (one for one in changes() if one.tool == tool and option in one.option.split(", ")), None
    )


def has(tool: str, option: str, rocm: str) -> bool:
    """Whether a tool has an option in a release; an option that is not in the table is in all
    releases.
    """
    found = change(tool, option)
    return found is None or found.is_in(rocm)


def sources() -> Mapping[str, str]:
    """Short name of a source -> its address."""
    return _data()["sources"]


@functools.cache
def _data() -> dict:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
