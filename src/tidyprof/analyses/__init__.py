"""Questions to a profile: each takes a Profile and returns a table with documented columns.

All times are int64 nanoseconds. No analysis changes the profile. `table.attrs["origin"]` tells where
the numbers come from, and every plot prints it.
"""

from tidyprof.analyses.budget import parts_of, step_budget
from tidyprof.analyses.busy import busy, utilisation
from tidyprof.analyses.comparison import compare
from tidyprof.analyses.device_time import DeviceTime, overlap
from tidyprof.analyses.gaps import gaps
from tidyprof.analyses.kernels import kernels
from tidyprof.analyses.launches import launches
from tidyprof.analyses.operators import operators
from tidyprof.analyses.steps import phases, steps

__all__ = [
    "DeviceTime",
    "busy",
    "compare",
    "gaps",
    "kernels",
    "launches",
    "operators",
    "overlap",
    "parts_of",
    "phases",
    "step_budget",
    "steps",
    "utilisation",
]
