"""Divide the steps of a run without a GPU into parts, based on operators and ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import step_budget
from tidyprof.analyses.collectives import COMMUNICATION, communication, host_entries
from tidyprof.analyses.common import (
    COLUMNS,
    names_matching,
    occupied,
    of_rank,
    plain_host_events,
    ranks_of,
    result,
    start_and_end,
)
from tidyprof.analyses.steps import mark_of_steps, phase_time
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents
from tidyprof.triage.cpu_time import CPU_STEAL, without_steal
from tidyprof.triage.device_parts import SILENT_NS, long_ones
from tidyprof.triage.facts import RankFacts
from tidyprof.triage.host_activity import (
    LOADER,
    compiling,
    flag_steady_steps,
    function_in,
    host_values,
    outermost,
    profiler_time,
)
from tidyprof.triage.profiler_overhead import HOST_COMPUTE, cost_of

SETS = (
    *HOST_COMPUTE,
    "small",
    "exposed_communication",
    "data_wait",
    "compiling",
    "between",
    "silent",
)
PARTS = (*SETS, CPU_STEAL)
"""The parts of a step, which add up to the whole step. Each moment belongs to the first matching
part in this list:

- data_wait: the phase `data`, including the loader's operators. If the phase contains a loader
  range, the part begins at the start of that range.
- compiling: the ranges of PyTorch's compiler.
- small: small operators in Python loops, including the gap after each operator; see `in_loops`.
- forward, backward, optimizer: the operators in the phase with the same name.
- compute: all other operators except communication.
- exposed_communication: gloo and MPI collectives.
- between: gaps between operators that are shorter than SILENT_NS.
- silent: gaps between operators that last at least SILENT_NS.
- CPU_STEAL: time lost to other programs; see cpu_time.
"""

PHASES = {"forward": ("forward", "loss"), "backward": ("backward",), "optimizer": ("optimizer",)}

HANDING_OVER = r"c10d::.*|record_param_comms"
"""Operators that request communication and may wait for it."""

SMALL_NS = 20_000
"""The maximum duration of a small operator. At this duration, Python and the profiler take about as
long as the operator itself.
"""

LONGEST_ROUND, ROUNDS = 16, 20
"""Limits for a Python loop. A loop has at least ROUNDS consecutive rounds, and each round has at
most LONGEST_ROUND operators. The layers of a model form fewer and longer rounds.
"""


def host_facts(profile: Profile, stacks: PlainEvents, mark: str | None) -> RankFacts:
    """Return the facts about a rank without a GPU. Raises ValueError as `step_budget` does.

    - stacks: the rank's Python functions.
    """
    steps = step_budget(profile, mark=mark)
    steps = steps[["rank", "device", "step", "start_ns", "duration_ns"]]
    tables = []
    silence = loading = loops = Intervals.empty()
    traced = profiler_time(stacks)
    for rank in ranks_of(steps):
        own = of_rank(steps, rank)
        begin, finish = start_and_end(own)
        sets = _sets(profile, rank, Intervals.union(begin, finish), traced)
        on_cpu = [part for part in SETS if part != "exposed_communication"]
        columns = without_steal(profile, rank, begin, finish, sets, on_cpu)
        tables.append(own.assign(**columns))
        silence, loading = silence | sets["silent"], loading | sets["data_wait"]
        loops = loops | sets["small"]
    budget = flag_steady_steps(pd.concat(tables, ignore_index=True))
    steady = budget[budget["steady"]]
    judged = Intervals.union(*start_and_end(steady))
    entries = host_entries(profile, mark)
    values: dict[str, Any] = {
        "step_marker": mark_of_steps(profile, mark),
        **host_values(profile, stacks, silence, loading),
        "loop": function_in(stacks, loops),
    }
    return RankFacts(
        budget=budget,
        parts=PARTS,
        values=values,
        overlaps=_overlaps(profile, budget),
        entries=entries,
        kernels=pd.DataFrame(),
        gap=None,
        cost=cost_of(profile, stacks, judged, max(steady["step"].nunique(), 1)),
    )


def _sets(
    profile: Profile, rank: int | None, whole: Intervals, traced: Intervals
) -> dict[str, Intervals]:
    """Return the time intervals of all parts in one process.

    - traced: the intervals in which the host recorded the trace, which don't count as silent time.
    """
    operators = of_rank(plain_host_events(profile, "operator"), rank)
    handing = names_matching(operators, f"{HANDING_OVER}|{COMMUNICATION}")
    # Collectives run on a separate thread, so they are exposed only when nothing else computes.
    data = whole & _loading(profile, rank)
    compiled = (whole & compiling(profile)) - data
    working = (whole & occupied(operators, ~handing)) - data - compiled
    communicating = occupied(communication(profile, rank)) | occupied(operators, handing)
    talking = (whole & communicating) - data - compiled - working
    rest = whole - data - compiled - working - talking
    silent = long_ones(rest - traced, SILENT_NS)
    small = _looped(operators, working) & (working | (rest - silent))
    sets = {"small": small}
    left = working - small
    for part, phases in reversed(PHASES.items()):
        for phase in phases:
            spent = left & phase_time(profile, rank, phase)
            sets[part] = sets.get(part, Intervals.empty()) | spent
            left = left - spent
    return sets | {
        "compute": left,
        "exposed_communication": talking,
        "data_wait": data,
        "compiling": compiled,
        "between": rest - silent - small,
        "silent": silent,
    }


def _loading(profile: Profile, rank: int | None) -> Intervals:
    """Return the intervals of the phase `data`.

    If an interval contains a loader range, the interval starts at that range. The time before the
    range belongs to the previous step, because a report or a validation may run then.
    """
    data = phase_time(profile, rank, "data")
    ranges = of_rank(plain_host_events(profile, "annotation"), rank)
    starts = np.sort(ranges["start_ns"][names_matching(ranges, LOADER)])
    following = np.searchsorted(starts, data.starts)
    # The appended maximum stands for intervals without a later loader range.
    first = np.append(starts, np.iinfo(np.int64).max)[following]
    return Intervals(np.where(first < data.ends, first, data.starts), data.ends)


def _looped(operators: PlainEvents, working: Intervals) -> Intervals:
    """Return the time in and after small operators in loops."""
    operators = outermost(operators)
    codes = operators["name"].codes
    begin, end = start_and_end(operators)
    following = np.append(begin[1:], end[-1:])
    chosen = in_loops(codes) & (end - begin < SMALL_NS) & (following - end < SILENT_NS)
    chosen &= working.contains(begin)
    return Intervals.union(begin[chosen], np.maximum(following, end)[chosen])


def in_loops(codes: np.ndarray) -> np.ndarray:
    """Return a mask that is True for each number inside a loop.

    In a loop, a sequence of at most LONGEST_ROUND numbers repeats at least ROUNDS times in a row.
    """
    looped = np.zeros(len(codes), bool)
    for length in range(1, min(LONGEST_ROUND, len(codes) // ROUNDS) + 1):
        # Find numbers that repeat one round later. The last round has no successor, so each
        # sequence is one round shorter than its loop.
        same = np.concatenate(([False], codes[length:] == codes[:-length], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        for first, last in edges.reshape(-1, 2):
            if last - first >= (ROUNDS - 1) * length:
                looped[first : last + length] = True
    return looped


def _overlaps(profile: Profile, budget: pd.DataFrame) -> pd.DataFrame:
    """Return the equivalent of the table from `overlap` for computation on the CPU.

    Everything except computation and exposed communication counts as idle time.
    """
    columns = [*(f"{part}_ns" for part in PARTS), "duration_ns"]
    total = budget.groupby("rank", dropna=False)[columns].sum().reset_index()
    computing = total[[f"{part}_ns" for part in (*HOST_COMPUTE, "small")]].sum(axis=1)
    kinds = {
        name: kind for name, kind in COLUMNS["overlap"].items() if not name.endswith("_percent")
    }
    table = pd.DataFrame(0, total.index, list(kinds)).assign(
        rank=total["rank"],
        device=pd.NA,
        total_ns=total["duration_ns"],
        computation_ns=computing,
        exposed_communication_ns=total["exposed_communication_ns"],
        busy_ns=computing + total["exposed_communication_ns"],
    )
    return result(table.assign(idle_ns=table["total_ns"] - table["busy_ns"]), kinds, profile)
