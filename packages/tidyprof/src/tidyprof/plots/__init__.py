"""Plots of analysis results. The plots use colors that color-blind readers can distinguish, show
the origin of the data in the corner, and include a text alternative.

Each function returns a matplotlib figure. If the data has no origin, the function raises
ValueError. The figure's `alternative_text` describes it in two sentences. Use `title` to state the
finding in your own words.
"""

from tidyprof.plots.call_stacks import call_stacks
from tidyprof.plots.counters import counters
from tidyprof.plots.figure import TidyFigure, describe, save
from tidyprof.plots.memory import memory
from tidyprof.plots.ranking import top_kernels
from tidyprof.plots.ranks import collectives, ranks
from tidyprof.plots.stepping import step_budget, step_times
from tidyprof.plots.timeline import timeline

__all__ = [
    "TidyFigure",
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
]
