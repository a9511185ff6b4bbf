"""The release that the replay tool imitates: PROFLAB_ROCM, the installed ROCm, or the newest
release.
"""

from __future__ import annotations

from proflab import releases


def rocm() -> str:
    """Return the release, such as 10.1. Raises CourseError for a release that isn't in the
    table.
    """
    return releases.followed(found=releases.installed()).rocm


def version_of(tool: str) -> str:
    """Return the tool's version in that release, or "not stated" if the release notes don't state
    it.
    """
    return releases.release(rocm()).versions.get(tool) or "not stated"
