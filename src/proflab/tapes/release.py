"""The release that the replay tool follows: PROFLAB_ROCM, the installed ROCm, or the newest one."""

from __future__ import annotations

from proflab import releases


def rocm() -> str:
    """Return the release, such as 10.1. Raises CourseError for a release that the course lacks."""
    return releases.followed(found=releases.installed()).rocm


def version_of(tool: str) -> str:
    """Return the tool's version in that release; "not stated" if its release notes name none."""
    return releases.release(rocm()).versions.get(tool) or "not stated"
