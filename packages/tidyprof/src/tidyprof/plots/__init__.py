"""Plots of what analyses return: color-blind safe, with their origin in the corner and a text
alternative.

Each function returns a matplotlib figure whose `alternative_text` says in two sentences what it
shows, and raises ValueError for data that does not say where it comes from. `title` is for the
finding, in your words.
"""

from tidyprof.plots.call_stacks import call_stacks
from tidyprof.plots.counters import counters
from tidyprof.plots.figure import TidyFigure, describe, save
from tidyprof.plots.memory import memory
from tidyprof.plots.occupancy import busy
from tidyprof.plots.ranking import top_kernels, top_operators
from tidyprof.plots.ranks import collectives, ranks
from tidyprof.plots.stepping import step_budget, step_times
from tidyprof.plots.timeline import timeline

__all__ = [
    "TidyFigure",
    "busy",
    "call_stacks",
    "collectives",
    "counters",
    "describe",
    "memory",
    "ranks",
    "save",
    "step_budget",
    "step_times",
    "timeline",
    "top_kernels",
    "top_operators",
]
