"""Analyses of profiles. Each analysis accepts a Profile and returns a table with documented
columns.

All times are int64 nanoseconds. The analyses don't change the profile. `table.attrs["origin"]`
records the source of the numbers, and every plot prints this source.
"""

from tidyprof.analyses.budget import budget_parts, step_budget
from tidyprof.analyses.busy import busy
from tidyprof.analyses.call_stacks import call_stacks
from tidyprof.analyses.collectives import collective_entries, collectives
from tidyprof.analyses.comparison import compare
from tidyprof.analyses.device_time import DeviceTime, overlap
from tidyprof.analyses.gaps import gaps
from tidyprof.analyses.kernels import kernels
from tidyprof.analyses.memory import memory_blocks
from tidyprof.analyses.operators import operators
from tidyprof.analyses.ranks import compare_ranks, ranks
from tidyprof.analyses.roofline import roofline_ceilings, roofline_points
from tidyprof.analyses.speed_of_light import speed_of_light
from tidyprof.analyses.steps import phases, steps

__all__ = [
    "DeviceTime",
    "budget_parts",
    "busy",
    "call_stacks",
    "collective_entries",
    "collectives",
    "compare",
    "compare_ranks",
    "gaps",
    "kernels",
    "memory_blocks",
    "operators",
    "overlap",
    "phases",
    "ranks",
    "roofline_ceilings",
    "roofline_points",
    "speed_of_light",
    "step_budget",
    "steps",
]
