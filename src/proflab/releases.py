"""The ROCm releases, with tool versions, added and removed options, and changed defaults.

The file releases.toml contains the data and its sources. Release numbers compare component by
component, so 7.2 is older than 7.14.
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
"""Environment variable with the release that the replay tool imitates, for example 7.2."""


@dataclass(frozen=True)
class Release:
    """Release with its number, its month and the version of each tool ("" if it isn't stated).

    - preview: True if the release is a preview
    - confirmed: False if the release is in use but we haven't seen its release notes
    """

    rocm: str
    date: str
    versions: Mapping[str, str]
    preview: bool = False
    confirmed: bool = True


@dataclass(frozen=True)
class Change:
    """Option or behavior of a tool.

    - since: first release that supports it, or "" if that release is older than the table
    - until: first release that no longer supports it, or "" if all later releases support it
    - default: dictionary that maps the first release with each behavior to the behavior
    - always: alternative that works on every release
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
        """Return True if this release supports the option or behavior."""
        here = number(rocm)
        return number(self.since or "0") <= here and (not self.until or here < number(self.until))


@dataclass(frozen=True)
class TorchBuild:
    """Source of torch for one release: an index that uv supports, or the address `index`.

    - torch: newest torch version on that index
    - per_gpu: True if each GPU architecture has a separate package with kernels, which an extra
      selects
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
    """Return the release as comparable numbers without the patch level: "7.14.0" becomes (7,
    14).
    """
    return tuple(int(part) for part in re.findall(r"\d+", rocm)[:2])


@functools.cache
def releases() -> tuple[Release, ...]:
    """Return all releases, with the oldest first."""
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
    """Return all changes, ordered by tool."""
    return tuple(Change(**entry) for entry in _data()["change"])


@functools.cache
def torch_builds() -> tuple[TorchBuild, ...]:
    """Return the torch sources, with the oldest release first."""
    return tuple(TorchBuild(**entry) for entry in _data()["torch_build"])


def newest() -> Release:
    """Return the newest confirmed release that isn't a preview."""
    return [release for release in releases() if release.confirmed and not release.preview][-1]


def shown() -> tuple[str, ...]:
    """Return the releases that pages and tests cover.

    The result excludes previews, except a preview that is the latest release.
    """
    return tuple(one.rocm for one in releases() if not one.preview or one == releases()[-1])


def filled(text: str) -> str:
    """Return the text with placeholders replaced by values for the newest confirmed release.

    `{newest rocm}` becomes the release number. A name such as `{newest rocprof-compute}` becomes
    the tool's version in that release. Raises CourseError for a name that isn't in the table.
    """
    last = newest()
    known = {"rocm": last.rocm, **last.versions}

    def value(found: re.Match[str]) -> str:
        if stated := known.get(found[1]):
            return stated
        raise CourseError(f"{found[0]}: the release table has no {found[1]!r} for {last.rocm}")

    return re.sub(r"\{newest\s+([\w-]+)\}", value, text)


def release(rocm: str) -> Release:
    """Return the release with this number. The patch level is ignored.

    Raises CourseError for an unknown release.
    """
    known = {found.rocm: found for found in releases()}
    wanted = ".".join(map(str, number(rocm)))
    if wanted not in known:
        raise CourseError(
            f"the course's release table doesn't contain ROCm {rocm!r}: {near(rocm, known)}"
        )
    return known[wanted]


def followed(environ: Mapping[str, str] = os.environ, found: str = "") -> Release:
    """Return the release to imitate.

    PROFLAB_ROCM takes precedence over the release `found` on this machine. If neither is set,
    return the newest release. If the table doesn't contain the release on this machine, return
    the last release before it. Raises CourseError for an unknown value of PROFLAB_ROCM.
    """
    if environ.get(VARIABLE):
        return release(environ[VARIABLE])
    older = [one for one in releases() if found and number(one.rocm) <= number(found)]
    return older[-1] if older else newest()


def installed(environ: Mapping[str, str] = os.environ) -> str:
    """Return this machine's ROCm release from its version file, or "" without ROCm."""
    try:
        return (
            (Path(environ.get("ROCM_PATH") or "/opt/rocm") / ".info" / "version")
            .read_text()
            .strip()
        )
    except OSError:
        return ""


def change(tool: str, option: str) -> Change | None:
    """Return the table entry for a tool's option, or None if the option never changed."""
    return next(
        (one for one in changes() if one.tool == tool and option in one.option.split(", ")), None
    )


def has(tool: str, option: str, rocm: str) -> bool:
    """Return True if a tool supports an option in a release.

    Options that aren't in the table exist in all releases.
    """
    found = change(tool, option)
    return found is None or found.is_in(rocm)


def sources() -> Mapping[str, str]:
    """Return the URL of each source by its short name."""
    return _data()["sources"]


@functools.cache
def _data() -> dict:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
