"""Select the steps to judge, and derive facts from host events, with or without a GPU."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import steady_steps
from tidyprof.analyses.common import (
    names_matching,
    occupied,
    plain_events,
    plain_host_events,
    start_and_end,
)
from tidyprof.analyses.steps import PHASE_PATTERNS, STEP_PATTERN
from tidyprof.tables.contract import DEVICE_KINDS, Profile
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents

COMPILATION = r".*\(dynamo_timed\)"
"""Ranges that torch._dynamo.utils.dynamo_timed writes around the phases of a compilation."""

COMPILED = r"triton_.*|Torch-Compiled Region.*|CompiledFunction.*|.*CompiledFxGraph.*"
"""Kernels and ranges that occur only in programs compiled by torch.compile."""

LOADER = r"enumerate\(DataLoader\)#.*"
WORKERS = "in worker processes"
LOADERS = {
    "_SingleProcessDataLoaderIter": "in the training process",
    "_MultiProcessingDataLoaderIter": WORKERS,
}
"""A mapping from the name of a DataLoader iterator to the process in which the loader runs.
torch.profiler writes the iterator's name for each batch.
"""

OF_TORCH = (
    rf"{STEP_PATTERN}|Optimizer\..*|enumerate\(DataLoader\).*"
    rf"|{COMPILATION}|{COMPILED}|nn\.Module: .*"
)
"""Ranges that PyTorch writes itself, as opposed to ranges that the script writes."""

COVERING = 0.5
"""The minimum share of a time interval that a function or range must cover to be reported."""

_LIBRARY = Path(os.__file__).parent
_MODULES = "|".join(rf"{name}\.py\(" for name in sorted(sys.stdlib_module_names))
_PACKAGES = "|".join(
    rf"{name}[/\\]" for name in sorted(sys.stdlib_module_names) if (_LIBRARY / name).is_dir()
)
TRACING = (
    r"(?:.*[/\\])?(?:tidyprof[/\\]running[/\\]inside[/\\]\w+|(?:14_)?instrument_me)\.py\(\d+\): .*"
)
"""Functions that record the trace. The hooks of `tidyprof run` and lesson 14's code block contain
such functions.
"""

OWN_CODE = re.compile(
    rf"(?!{TRACING}|{_MODULES}|{_PACKAGES}|torch[/\\]|.*(site|dist)-packages"
    r"|.*lib[/\\]python\d|<|nn\.Module).+\(\d+\): "
)
"""Names of Python functions (`file(line): name`) from the program itself. Library functions and
functions in TRACING don't match.

PyTorch omits the folder for every file on Python's module path. Therefore, only the module name
shows that a function belongs to the standard library.
"""


def flag_steady_steps(budget: pd.DataFrame) -> pd.DataFrame:
    """Return the budget table with the column `steady`, which is False for the first steps that
    `steady_steps` leaves out.
    """
    return budget.assign(steady=budget.index.isin(steady_steps(budget).index))


def host_values(
    profile: Profile, stacks: PlainEvents, silence: Intervals, loading: Intervals
) -> dict[str, Any]:
    """Return the facts about the host that recorded a profile.

    - stacks: the profile's Python functions.
    - silence: the intervals in which the file shows no host activity.
    - loading: the intervals in which the work waited for data.
    """
    operators, ranges, calls = (
        plain_host_events(profile, kind) for kind in ("operator", "annotation", "runtime")
    )
    named = (operators, ranges, plain_events(profile, DEVICE_KINDS))
    data, loaders = (
        occupied(ranges, names_matching(ranges, pattern))
        for pattern in (PHASE_PATTERNS["data"], LOADER)
    )
    loader = _loader(ranges)
    values = {
        "calls": len(calls),
        "operators": len(operators),
        "loader": loader,
        "compiled": any(bool(names_matching(one, COMPILED).any()) for one in named),
        "outside_function": function_in(stacks, silence),
        "outside_part": next(
            iter(_covering(ranges[~names_matching(ranges, OF_TORCH)], silence)), ""
        ),
        "loading_function": "" if loader == WORKERS else loading_function(stacks, loading),
    }
    if data.length:
        values["loading_share"] = (data & loaders).length / data.length
    return values


def _loader(ranges: PlainEvents) -> str:
    loading = ranges[names_matching(ranges, PHASE_PATTERNS["data"])]
    # Worker processes are the last entry of LOADERS, so a single loader with workers is decisive.
    found = [text for part, text in LOADERS.items() if names_matching(loading, f".*{part}.*").any()]
    return found[-1] if found else ""


def compiling(profile: Profile) -> Intervals:
    """Return the intervals in which PyTorch's compiler ran on the host."""
    events = plain_host_events(profile, ("annotation", "operator"))
    return occupied(events, names_matching(events, COMPILATION))


def nested(operators: PlainEvents) -> tuple[PlainEvents, np.ndarray]:
    """Return the operators sorted by thread and start time. For each operator after the first, also
    return whether it starts within the previous operator.
    """
    ordered = operators[
        np.lexsort((-operators["duration_ns"], operators["start_ns"], operators["thread"]))
    ]
    (begin, end), threads = start_and_end(ordered), ordered["thread"]
    return ordered, (begin[1:] < end[:-1]) & (threads[1:] == threads[:-1])


def outermost(operators: PlainEvents) -> PlainEvents:
    """Return operators that aren't inside another operator on their thread, by start time."""
    ordered = operators[np.lexsort((-operators["duration_ns"], operators["start_ns"]))]
    (begin, end), threads = start_and_end(ordered), ordered["thread"]
    keep = np.zeros(len(ordered), bool)
    for thread in np.unique(threads):
        rows = np.flatnonzero(threads == thread)
        ended = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end[rows])[:-1])
        keep[rows] = begin[rows] >= ended
    return ordered[keep]


def profiler_time(stacks: PlainEvents) -> Intervals:
    """Return the intervals in which functions that match TRACING ran, based on call stacks."""
    return occupied(stacks, names_matching(stacks, TRACING))


def function_in(stacks: PlainEvents, time: Intervals) -> str:
    """Return the innermost Python function that covers most of the given time (see COVERING).

    A function outside libraries has priority.
    """
    covering = _covering(stacks, time)
    return next((name for name in covering if OWN_CODE.match(name)), "".join(covering[:1]))


def loading_function(stacks: PlainEvents, loading: Intervals) -> str:
    """Return the function that runs while the program waits for data.

    Ignore functions that spend less than half of their time waiting for data. Otherwise, the main
    function would match, because it contains everything.
    """
    begin, end = start_and_end(stacks)
    return function_in(stacks[2 * loading.covered_within(begin, end) > end - begin], loading)


def _covering(events: PlainEvents, time: Intervals) -> list[str]:
    """Return the names of events that cover most of the given time on one thread (see COVERING).

    Sort the names by total duration, the shortest first. Exclude functions that match TRACING.
    """
    if not len(events) or not time.length:
        return []
    begin, end = start_and_end(events)
    table = pd.DataFrame({"name": events["name"].astype(str), "thread": events["thread"]})
    table = table.assign(inside=time.covered_within(begin, end), length=end - begin)
    table = table[table["inside"] > 0].groupby(["thread", "name"], dropna=False).sum().reset_index()
    covering = table[table["inside"] >= COVERING * time.length]
    names = covering.sort_values("length", kind="stable")["name"]
    return names[~names.str.fullmatch(TRACING)].tolist()
