"""Profiler output in, tidy tables and plots out.

`read` turns the files of a profiler into a `Profile`; analyses such as `kernels` turn a Profile into
a table. Names are loaded at their first use, so that `import tidyprof` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES_OF_MODULES = {
    "tidyprof.analyses": (
        "between blocked_calls busy call_stacks collective_bandwidth collective_entries collectives "
        "compare compare_ranks gaps kernels launches matrix_products memory_blocks modules of_steps "
        "operators overlap parts_of phases ranks reconcile roofline_ceilings roofline_points "
        "source_lines speed_of_light step_budget steps utilisation DeviceTime"
    ),
    "tidyprof.analyses.gpu_peaks": "occupancy",
    "tidyprof.analyses.hang": "who_is_missing",
    "tidyprof.export.chrome_trace": "write_chrome_trace",
    "tidyprof.errors": "ProfileReadError",
    "tidyprof.many": "ReadManyError read_many",
    "tidyprof.names.short_names": "category short_name unique_short_names",
    "tidyprof.readers.assembly": "read_assembly",
    "tidyprof.readers.flight_recorder.reader": "read_flight_recorder",
    "tidyprof.readers.memory_snapshot.reader": "read_memory_snapshot",
    "tidyprof.readers.perfetto.reader": "read_perfetto",
    "tidyprof.tables.intervals": "Intervals",
    "tidyprof.tables.contract": "COUNTER_DTYPES DEVICE_KINDS EVENT_DTYPES KINDS Origin Profile",
    "tidyprof.readers.registry": "read",
    "tidyprof.readers.rocpd.reader": "read_rocpd",
    "tidyprof.readers.rocprof_compute.reader": "read_rocprof_compute",
    "tidyprof.readers.rocprof_sys.reader": "read_rocprof_sys",
    "tidyprof.readers.rocprof_v1.reader": "read_rocprof_v1",
    "tidyprof.readers.rocprofv3.reader": "read_rocprofv3",
    "tidyprof.readers.rpd.reader": "read_rpd",
    "tidyprof.readers.system.reader": "read_system",
    "tidyprof.readers.torch.reader": "read_torch_trace",
    "tidyprof.diagnosis.recordings": "triage_signs",
    "tidyprof.diagnosis.verdict": "Diagnosis triage",
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names.split()}
_SUBMODULES = ("analyses", "plots", "readers")

__all__ = sorted(_MODULE_OF_NAME)


def __getattr__(name: str) -> Any:
    """Import what is asked for."""
    if name in _MODULE_OF_NAME:
        value = getattr(import_module(_MODULE_OF_NAME[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return import_module(f"tidyprof.{name}")
    raise AttributeError(f"module 'tidyprof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
