"""The tools that have a stand-in, and the module of each."""

from __future__ import annotations

MODULE_OF_TOOL = {
    "amd-smi": "amd_smi",
    "omnistat-query": "omnistat",
    "omnistat-usermode": "omnistat",
    "rocm-smi": "rocm_smi",
    "rocminfo": "rocminfo",
    "rocpd": "rocpd",
    "rocprof-compute": "rocprof_compute",
    "rocprof-sys-avail": "rocprof_sys_avail",
    "rocprof-sys-run": "rocprof_sys",
    "rocprof-sys-sample": "rocprof_sys",
    "rocprofv3": "rocprofv3",
    "rocprofv3-avail": "rocprofv3_avail",
    "rpd2tracing": "rpd2tracing",
    "runTracer.sh": "run_tracer",
}
"""Each module has `main(tool, arguments) -> int`, the exit code."""
