"""A run without a GPU: what its time goes to, as far as torch's operators and ranges tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import step_budget
from tidyprof.analyses.common import (
    OWNER,
    events_of_process,
    names_matching,
    occupied,
    owners_of,
    plain_events,
    plain_host_events,
    result,
    start_and_end,
)
from tidyprof.analyses.device_time import OVERLAP_COLUMNS
from tidyprof.analyses.steps import mark_of_steps, phase_time
from tidyprof.diagnosis.host_collectives import COMMUNICATION, communication, host_entries
from tidyprof.diagnosis.host_facts import (
    LOADER,
    HostFacts,
    LargestOperator,
    Most,
    compiling,
    flag_steady_steps,
    host_facts,
    largest_operator,
    outermost,
    profiler_time,
)
from tidyprof.diagnosis.on_device import SILENT_NS, long_ones
from tidyprof.diagnosis.processor import CPU_STEAL, processor_time, without_taken
from tidyprof.diagnosis.profiler_overhead import Cost, cost_of
from tidyprof.diagnosis.recomputation import recomputed
from tidyprof.tables.contract import DEVICE_KINDS, Profile
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainEvents

SETS = ("compute", "exposed_communication", "data_wait", "compiling", "between", "silent")
PARTS = (*SETS, CPU_STEAL)
"""Parts of a step, which add up to it.

data_wait -- in the phase `data`, operators of the loader included; where a loader's range lies in
             the phase, from the beginning of that range on.
compute -- else in an operator that is neither communication nor compiled. exposed_communication --
else in a collective of gloo or MPI. between, silent -- no operator at all, for less than SILENT_NS
and for longer.
taken     -- see `processor.CPU_STEAL`.
"""

HANDING_OVER = r"c10d::.*|record_param_comms"
"""Operators that ask for communication, and may wait for it."""

SMALL_NS = 20_000
"""An operator below that costs Python and the profiler about as much as itself."""

LONGEST_ROUND, ROUNDS = 16, 20
"""A loop in Python: rounds of at most LONGEST_ROUND operators, at least ROUNDS of them in a row.
Layers of a model are longer rounds, and fewer.
"""


@dataclass(frozen=True)
class HostTimeline:
    """What one rank of a run without a GPU adds to the signs.

    budget   -- one row per owner and step: rank, process, device (<NA>), step, start_ns,
                duration_ns, PARTS with `_ns`, `small_ns` (in and behind the small operators of
                loops in Python, see `in_loops`; not while loading), `steady` and `apart`
                (see flag_steady_steps), `lost_ns` and `waited_ns` (see processor_time).
    mark     -- with what steps begin, see `steps`; "" where nothing marks them.
    overlaps, entries -- tables like those of `overlap` and `collective_entries`, of the host's
        time.
    small    -- the most frequent of these small operators, and how often it comes in a step.
    largest  -- see `largest_operator`.
    again    -- see `recomputed`. cost -- what recording it cost.
    """

    budget: pd.DataFrame
    mark: str
    overlaps: pd.DataFrame
    entries: pd.DataFrame
    host: HostFacts
    small: Most
    largest: LargestOperator
    again: float
    cost: Cost


def ran_on_host(profile: Profile) -> bool:
    """Whether torch.profiler found no GPU: operators without events of a device are then all the
    work there was.

    Where a GPU is built in and only the host was recorded, operators merely hand work over.
    """
    is_processor = profile.meta.get("backend") == "cpu" and not len(
        plain_events(profile, DEVICE_KINDS)
    )
    return (
        is_processor
        and len(plain_host_events(profile, "operator")) > 0
        and not unknown_runtime(profile)
    )


def unknown_runtime(profile: Profile) -> tuple[str, int] | None:
    """The category with the most events of an accelerator, and how many they are; None if there are
    none.

    Only where the file has nothing of a GPU that tidyprof knows: the calls and kernels are then of
    another accelerator.
    """
    if profile.meta.get("backend") != "cpu":
        return None
    counts = {
        name: count
        for name, count in profile.meta["events_by_category"].items()
        if _is_foreign(name)
    }
    largest = max(counts, key=counts.get, default=None)
    return None if largest is None else (largest, counts[largest])


def _is_foreign(category: str) -> bool:
    """Whether torch's profiler writes events of an accelerator under a category of this name.

    The names are those of ActivityType.cpp of https://github.com/pytorch/kineto, for MTIA, HPU and
    PrivateUse1 as well.
    """
    ends = ("_runtime", "_driver", "_kernel", "_ccp_events", "_insight", "_memcpy", "_memset")
    return category.endswith(ends) or category.startswith(
        ("hpu_", "mtia_", "privateuse1_", "npu", "async_npu")
    )


def host_timeline(profile: Profile, stacks: PlainEvents, mark: str | None) -> HostTimeline:
    """What the profile of a rank adds. Raises ValueError as `step_budget` does. stacks -- see
    host_facts.
    """
    budget = step_budget(profile, mark=mark)
    budget = budget[[*OWNER, "device", "step", "start_ns", "duration_ns"]]
    tables, small = [], []
    silence = loading = Intervals.empty()
    watched = profiler_time(stacks)
    for owner in owners_of(budget):
        steps = events_of_process(budget, owner)
        begin, finish = start_and_end(steps)
        sets = _sets(profile, owner, Intervals.union(begin, finish), watched)
        looped, inside = _looped(profile, owner, sets)
        small += looped
        columns = {f"{part}_ns": sets[part].covered_within(begin, finish) for part in SETS}
        columns = without_taken(columns, processor_time(profile, owner, begin, finish, sets))
        tables.append(steps.assign(**columns, small_ns=inside.covered_within(begin, finish)))
        silence, loading = silence | sets["silent"], loading | sets["data_wait"]
    budget = flag_steady_steps(pd.concat(tables, ignore_index=True), profile, mark)
    steady = budget[budget["steady"]]
    judged = Intervals.union(*start_and_end(steady))
    (name, count), *_ = [*Counter(small).most_common(1), ("", 0)]
    return HostTimeline(
        budget=budget,
        mark=mark_of_steps(profile, mark),
        overlaps=_overlaps(profile, budget),
        entries=host_entries(profile, mark),
        host=host_facts(profile, stacks, silence, loading),
        small=Most(name, count / max(len(budget), 1)),
        largest=largest_operator(plain_host_events(profile, "operator"), stacks, judged),
        again=recomputed(profile, stacks, judged),
        cost=cost_of(profile, stacks, judged, max(steady["step"].nunique(), 1)),
    )


def _sets(
    profile: Profile, owner: dict[str, Any], whole: Intervals, watched: Intervals
) -> dict[str, Intervals]:
    """PARTS of one owner's steps as sets of time. watched -- see `watching`: in that time the
    program is not silent.
    """
    operators = events_of_process(plain_host_events(profile, "operator"), owner)
    handing = names_matching(operators, f"{HANDING_OVER}|{COMMUNICATION}")
    # Each part gets what no part before it has: a collective runs on a thread of its own, so only
    # what computation leaves of it is exposed.
    data = whole & _loading(profile, owner)
    compiled = (whole & compiling(profile)) - data
    working = (whole & occupied(operators, ~handing)) - data - compiled
    communicating = occupied(communication(profile, owner)) | occupied(operators, handing)
    talking = (whole & communicating) - data - compiled - working
    rest = whole - data - compiled - working - talking
    silent = long_ones(rest - watched, SILENT_NS)
    return {
        "compute": working,
        "exposed_communication": talking,
        "data_wait": data,
        "compiling": compiled,
        "between": rest - silent,
        "silent": silent,
    }


def _loading(profile: Profile, owner: dict[str, Any]) -> Intervals:
    """The phase `data`. A range of it that contains a loader's begins with that: what is before it
    belongs to the step that ended, such as a report or a validation.
    """
    data = phase_time(profile, owner, "data")
    ranges = events_of_process(plain_host_events(profile, "annotation"), owner)
    begins = np.sort(ranges["start_ns"][names_matching(ranges, LOADER)])
    following = np.searchsorted(begins, data.starts)
    # The last time, the latest of all, answers for a range without a loader behind its begin.
    first = np.append(begins, np.iinfo(np.int64).max)[following]
    return Intervals(np.where(first < data.ends, first, data.starts), data.ends)


def _looped(
    profile: Profile, owner: dict[str, Any], sets: dict[str, Intervals]
) -> tuple[list[str], Intervals]:
    """Names of the small operators in loops, and the time in them and after them that belongs to no
    part but `compute` and `select_time_range`.
    """
    operators = outermost(events_of_process(plain_host_events(profile, "operator"), owner))
    codes, names = operators["name"].codes, operators["name"].categories
    begin, end = start_and_end(operators)
    following = np.append(begin[1:], end[-1:])
    chosen = in_loops(codes) & (end - begin < SMALL_NS) & (following - end < SILENT_NS)
    chosen &= sets["compute"].contains(begin)
    inside = Intervals.union(begin[chosen], np.maximum(following, end)[chosen])
    return names[codes[chosen]].tolist(), inside & (sets["compute"] | sets["between"])


def in_loops(codes: np.ndarray) -> np.ndarray:
    """Mask of the numbers in a sequence that are in rounds of at most LONGEST_ROUND which come
    ROUNDS times in a row.
    """
    looped = np.zeros(len(codes), bool)
    for length in range(1, min(LONGEST_ROUND, len(codes) // ROUNDS) + 1):
        # Runs of numbers that come again a round later; the last round has none behind it, so a run
        # is one round shorter than what it stands for.
        same = np.concatenate(([False], codes[length:] == codes[:-length], [False]))
        edges = np.flatnonzero(same[1:] != same[:-1])
        for first, last in edges.reshape(-1, 2):
            if last - first >= (ROUNDS - 1) * length:
                looped[first : last + length] = True
    return looped


def _overlaps(profile: Profile, budget: pd.DataFrame) -> pd.DataFrame:
    """A table like that of `overlap`: computation is that of the processor, idle is all that is
    neither computation nor exposed communication.
    """
    total = (
        budget.groupby("rank", dropna=False)[[*(f"{part}_ns" for part in PARTS), "duration_ns"]]
        .sum()
        .reset_index()
    )
    rows = {column: 0 for column in OVERLAP_COLUMNS if column.endswith("_ns")} | {
        "rank": total["rank"],
        "total_ns": total["duration_ns"],
        "computation_ns": total["compute_ns"],
        "exposed_communication_ns": total["exposed_communication_ns"],
        "busy_ns": total["compute_ns"] + total["exposed_communication_ns"],
    }
    rows["idle_ns"] = rows["total_ns"] - rows["busy_ns"]
    columns = {
        name: kind for name, kind in OVERLAP_COLUMNS.items() if not name.endswith("_percent")
    }
    return result(pd.DataFrame(rows).reindex(columns=list(columns)), columns, profile)
