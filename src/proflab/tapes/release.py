"""The release that the player follows: PROFLAB_ROCM, the installed ROCm, or the newest one."""

from __future__ import annotations

from proflab import releases

FAMILIES = {
    "rocpd": "rocprofv3",
    "rocprof-sys-avail": "rocprof-sys",
    "rocprof-sys-run": "rocprof-sys",
    "rocprof-sys-sample": "rocprof-sys",
    "rocprofv3-avail": "rocprofv3",
}
"""Tool -> the tool whose version it shares."""


def rocm() -> str:
    """Return the release, such as 10.1. Raises CourseError for one that the course lacks."""
    return releases.followed(found=releases.installed()).rocm


def version_of(tool: str) -> str:
    """Return the tool's version in that release, or in the last release before it that states one.

    Return "" for a tool that isn't part of ROCm.
    """
    family, followed = FAMILIES.get(tool, tool), releases.number(rocm())
    known = [one for one in releases.releases() if releases.number(one.rocm) <= followed]
    stated = [one.versions[family] for one in known if one.versions.get(family)]
    return stated[-1] if stated else ""


def has(tool: str, option: str) -> bool:
    """Return True if the tool has an option in that release."""
    return releases.has(tool, option, rocm())


def is_at_least(release: str) -> bool:
    """Return True if the followed release is `release` or newer."""
    return releases.number(rocm()) >= releases.number(release)
