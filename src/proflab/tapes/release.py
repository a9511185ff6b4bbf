"""The release that the player follows: PROFLAB_ROCM, the installed ROCm, or the newest one."""

from __future__ import annotations

from proflab import releases


def rocm() -> str:
    """Return the release, such as 10.1. Raises CourseError for one that the course lacks."""
    return releases.followed(found=releases.installed()).rocm


def version_of(tool: str) -> str:
    """Return the tool's version in that release, or in the last release before it that states one.

    Return "" for a tool that isn't part of ROCm.
    """
    followed = releases.number(rocm())
    known = [one for one in releases.releases() if releases.number(one.rocm) <= followed]
    return next((one.versions[tool] for one in reversed(known) if one.versions.get(tool)), "")
