"""Which release the stand-ins follow: options, defaults and file names are those of ROCm 7.2.

Two tools follow the release of their modelled files: rocprof-sys that of ROCm 7.12, whose options are those of 7.2,
and rocprof-compute that of ROCm 7.1.

Versions by release: github.com/ROCm/rocm-systems, CHANGELOG.md of projects/rocprofiler-sdk, rocprofiler-systems,
rocprofiler-compute and amdsmi; omnistat: github.com/AMDResearch/omnistat.
"""

from __future__ import annotations

ROCM = "7.2.1"
ROCPROFILER_SDK = "1.1.0"
ROCPROF_SYS = "1.5.0"
ROCPROF_SYS_ROCM = "7.12.0"
ROCPROF_COMPUTE = "3.3.0"
AMD_SMI = "26.2.1"
ROCM_SMI = "4.0.0"
ROCM_SMI_LIBRARY = "7.8.0"
OMNISTAT = "1.6.0"

REVISION = "stand-in"
"""In the place of a git revision, so that nobody takes a stand-in's version line for a tool's."""
