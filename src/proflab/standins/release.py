"""Which release the stand-ins follow: options, defaults and file names are those of ROCm 7.2.

Two tools follow the release of their modelled files: rocprof-sys that of ROCm 7.12, whose options are those of 7.2,
and rocprof-compute that of ROCm 7.1.

Versions by release: github.com/ROCm/rocm-systems, CHANGELOG.md of projects/rocprofiler-sdk, rocprofiler-systems,
rocprofiler-compute and amdsmi; omnistat: github.com/AMDResearch/omnistat.
"""

from __future__ import annotations

import platform

ROCM = "7.2.1"
ROCPROFILER_SDK = "1.1.0"
ROCPROF_SYS = "1.5.0"
ROCPROF_SYS_ROCM = "7.12.0"
ROCPROF_COMPUTE = "3.3.0"
AMD_SMI = "26.2.1"
OMNISTAT = "1.6.0"

REVISION = "stand-in"
"""In the place of a git revision, so that nobody takes a stand-in's version line for a tool's."""


def sdk_version() -> str:
    """What rocprofv3 and rocpd print for --version; the revision says that this is a stand-in."""
    values = {
        "version": ROCPROFILER_SDK,
        "git_revision": REVISION,
        "library_arch": f"{platform.machine()}-linux-gnu",
        "system_name": platform.system(),
        "system_processor": platform.machine(),
        "system_version": platform.release(),
        "compiler_id": REVISION,
        "compiler_version": REVISION,
        "rocm_version": ROCM,
    }
    return "\n".join(f"    {name:>16}: {value}" for name, value in values.items())


def sys_version(tool: str) -> str:
    """What the tools of rocprof-sys print for --version."""
    return f"{tool} v{ROCPROF_SYS} (rev: {REVISION}, compiler: {REVISION}, rocm: v{ROCPROF_SYS_ROCM})"
