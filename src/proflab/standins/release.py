"""The release that the stand-ins follow: PROFLAB_ROCM, else the ROCm on this machine, else the
newest (proflab.releases).
"""

from __future__ import annotations

import platform

from proflab import releases

OMNISTAT = "1.6.0"

REVISION = "stand-in"
"""In place of a git revision, so that nobody takes a stand-in's version line for the tool's."""


def rocm() -> str:
    """The release, such as 10.1. Raises CourseError for one that the course does not know."""
    return releases.followed(found=releases.installed()).rocm


def version_of(tool: str) -> str:
    """The tool's version in that release; if none is stated, the version in the release before."""
    followed = releases.number(rocm())
    known = [
        one.versions[tool] for one in releases.releases() if releases.number(one.rocm) <= followed
    ]
    return next(version for version in reversed(known) if version)


def has(tool: str, option: str) -> bool:
    """Whether the tool has an option in that release."""
    return releases.has(tool, option, rocm())


def default(tool: str, option: str, otherwise: str) -> str:
    """The default of an option in that release; `otherwise` if the default never changed."""
    found = releases.change(tool, option)
    return (found and found.default_in(rocm())) or otherwise


def is_at_least(release: str) -> bool:
    """Whether the followed release is `release` or newer."""
    return releases.number(rocm()) >= releases.number(release)


def sdk_version() -> str:
    """The output of rocprofv3 and rocpd for --version; the revision tells that this is a
    stand-in.
    """
    values = {
        "version": version_of("rocprofv3"),
        "git_revision": REVISION,
        "library_arch": f"{platform.machine()}-linux-gnu",
        "system_name": platform.system(),
        "system_processor": platform.machine(),
        "system_version": platform.release(),
        "compiler_id": REVISION,
        "compiler_version": REVISION,
        "rocm_version": rocm(),
    }
    return "\n".join(f"    {name:>16}: {value}" for name, value in values.items())


def sys_version(tool: str) -> str:
    """The output of the tools of rocprof-sys for --version."""
    return (
        f"{tool} v{version_of('rocprof-sys')} (rev: {REVISION}, compiler: {REVISION}, rocm:"
        f" v{rocm()})"
    )
