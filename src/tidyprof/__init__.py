"""Profiler output in, tidy tables and plots out.

`read` turns the files of a profiler into a `Profile`; analyses such as `kernels` turn a Profile into
a table. Names are loaded at their first use, so that `import tidyprof` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES_OF_MODULES = {
    "tidyprof.analyses": (
        "busy",
        "call_stacks",
        "collective_entries",
        "collectives",
        "compare",
        "compare_ranks",
        "gaps",
        "kernels",
        "launches",
        "operators",
        "overlap",
        "parts_of",
        "phases",
        "ranks",
        "reconcile",
        "roofline_ceilings",
        "roofline_points",
        "speed_of_light",
        "step_budget",
        "steps",
        "utilisation",
        "DeviceTime",
    ),
    "tidyprof.chrome_writer": ("write_chrome_trace",),
    "tidyprof.errors": ("ProfileReadError",),
    "tidyprof.many": (
        "ReadManyError",
        "read_many",
    ),
    "tidyprof.names": (
        "category",
        "short_name",
        "unique_short_names",
    ),
    "tidyprof.perfetto": ("read_perfetto",),
    "tidyprof.profile": (
        "COUNTER_DTYPES",
        "DEVICE_KINDS",
        "EVENT_DTYPES",
        "KINDS",
        "Origin",
        "Profile",
    ),
    "tidyprof.reading": ("read",),
    "tidyprof.rocpd": ("read_rocpd",),
    "tidyprof.rocprof_compute": ("read_rocprof_compute",),
    "tidyprof.rocprof_sys": ("read_rocprof_sys",),
    "tidyprof.rocprof_v1": ("read_rocprof_v1",),
    "tidyprof.rocprofv3": ("read_rocprofv3",),
    "tidyprof.rpd": (
        "kernel_table",
        "read_rpd",
        "rpd_busy",
        "rpd_call_stacks",
        "rpd_ktop",
        "rpd_stack_frames",
        "rpd_top",
    ),
    "tidyprof.system": ("read_system",),
    "tidyprof.torch_trace": ("read_torch_trace",),
}
_MODULE_OF_NAME = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names}
_SUBMODULES = ("analyses", "plots", "reading")

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
