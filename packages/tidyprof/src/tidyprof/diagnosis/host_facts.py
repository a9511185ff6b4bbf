"""Which steps count, and what the host's events say about a run, with a GPU or without."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import WARM_UP_STEPS
from tidyprof.analyses.common import (
    Events,
    events_of_process,
    four_digits,
    host_events,
    names_matching,
    occupied,
    owners_of,
    plain_events,
    plain_host_events,
    start_and_end,
)
from tidyprof.analyses.gaps import longest_overlap
from tidyprof.analyses.steps import PHASE_PATTERNS, STEP_PATTERN, plain_steps
from tidyprof.tables.contract import DEVICE_KINDS, Profile
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.launches import callers
from tidyprof.tables.records import PlainEvents

UNEVEN = 1.5
"""A step of so many times the median is longer than the others (plots.stepping marks it, too)."""

EXPLAINED = 0.5
"""Share of the time that such a step takes beyond the median which a range must cover to explain
it.
"""

BEGINNING = re.compile(r"init|warm|build|set.?up|compil|cache|first|load|prepar", re.IGNORECASE)
"""Words in the name of a range that comes once: a start-up. Validation, checkpoints and reports
come again and again.
"""

PLACE = ["rank", "process", "device"]


class Most(NamedTuple):
    """What has the most of something, and how much; without a name where nothing has any."""

    name: str = ""
    amount: float = 0.0


class LargestOperator(NamedTuple):
    """The operator that takes the most time, its share of all (0 to 1), and the script's function
    around it.
    """

    name: str = ""
    share: float = 0.0
    function: str = ""


def flag_steady_steps(budget: pd.DataFrame, profile: Profile, mark: str | None) -> pd.DataFrame:
    """A table with rank, process, device, step and duration_ns, with two more columns.

    apart  -- the range that makes a step longer and that most other steps lack, in words; "" where
              there is none.
    steady -- whether the row counts: rows that are apart do not, nor does the first row of each
              device if two others remain.
    """
    reasons = dict(_explained(profile, mark))
    apart = [reasons.get(step, "") if pd.notna(step) else "" for step in budget["step"].tolist()]
    usual = np.array(apart) == ""
    places = [*zip(*(budget[column].tolist() for column in PLACE), strict=True)]
    seen: Counter[tuple[int, ...]] = Counter()
    later = np.zeros(len(budget), bool)
    for row in np.flatnonzero(usual):
        later[row] = seen[places[row]] >= WARM_UP_STEPS
        seen[places[row]] += 1
    enough = later.sum() >= 2 * len(set(places))
    return budget.assign(apart=apart, steady=later if enough else usual if usual.any() else True)


def _explained(profile: Profile, mark: str | None) -> Iterator[tuple[int, str]]:
    """The steps on the host that are apart, with the reason."""
    marked = plain_steps(profile, mark=mark)
    for owner in owners_of(marked):
        steps = events_of_process(marked, owner)
        length = steps["duration_ns"]
        median = float(np.median(length))
        if len(steps) < 3 or length.max() < UNEVEN * median:
            continue
        inside = _by_step(events_of_process(host_events(profile, "annotation"), owner), steps)
        for long in np.flatnonzero(length >= UNEVEN * median):
            others = np.delete(inside.to_numpy(), long, axis=1)
            is_rare = (others > 0).sum(axis=1) <= others.shape[1] / 2
            spent = inside.loc[is_rare, long]
            # A start-up is a cause that triage looks for, and no step to leave out.
            spent = spent[[not BEGINNING.search(name) for name in spent.index]]
            if len(spent) and spent.max() >= EXPLAINED * (length[long] - median):
                name, most = spent.idxmax(), four_digits(spent.max() / 1e6)
                yield int(steps["step"][long]), f"`{name}` takes {most} ms of it"


def _by_step(ranges: pd.DataFrame, steps: PlainEvents) -> pd.DataFrame:
    """Time in ns inside the ranges of each name, one column for each step. Numbers in names are
    left out: `epoch 3` and `epoch 4` are one.
    """
    ranges = ranges[~names_matching(ranges, STEP_PATTERN)]
    names = ranges["name"].astype(str).str.replace(r"\d+", "#", regex=True)
    begin, finish = start_and_end(steps)
    rows = {
        name: occupied(of_name).covered_within(begin, finish)
        for name, of_name in ranges.groupby(names)
    }
    return pd.DataFrame.from_dict(rows, orient="index", columns=range(len(steps)))


COMPILATION = r".*\(dynamo_timed\)"
"""Ranges that torch._dynamo.utils.dynamo_timed writes around parts of a compilation."""

COMPILED = r"triton_.*|Torch-Compiled Region.*|CompiledFunction.*|.*CompiledFxGraph.*"
"""Kernels and ranges of a program that torch.compile made."""

BACKWARD = r"autograd::engine::evaluate_function.*|Optimizer\.step#.*|backward|optimizer"
"""Operators and ranges that only a training has."""

LOADER = r"enumerate\(DataLoader\)#.*"
WORKERS = "_MultiProcessingDataLoaderIter"
LOADERS = {
    "_SingleProcessDataLoaderIter": "the loader runs in the training process (num_workers=0)",
    WORKERS: "worker processes load",
}
"""What stands in the range that torch.profiler writes for each batch, and what that means."""

NO_PART = (
    rf"{STEP_PATTERN}|Optimizer\..*|enumerate\(DataLoader\).*"
    rf"|{COMPILATION}|{COMPILED}|nn\.Module: .*"
)
"""Ranges that torch writes, not the script."""

MOST_STARTED = 2
"""Operators of the loader that are named."""

MOST = 0.5
"""Share of the silence that a function must cover to be named."""

_LIBRARY = Path(os.__file__).parent
_MODULES = "|".join(rf"{name}\.py\(" for name in sorted(sys.stdlib_module_names))
_PACKAGES = "|".join(
    rf"{name}[/\\]" for name in sorted(sys.stdlib_module_names) if (_LIBRARY / name).is_dir()
)
WATCHING = (
    r"(?:.*[/\\])?(?:tidyprof[/\\]running[/\\]inside[/\\]\w+|(?:14_)?instrument_me)\.py\(\d+\): .*"
)
"""Functions that recorded the trace: the hooks of `tidyprof run`, and the block of lesson 14."""

OWN_CODE = re.compile(
    rf"(?!{WATCHING}|{_MODULES}|{_PACKAGES}|torch[/\\]|.*(site|dist)-packages"
    r"|.*lib[/\\]python\d|<|nn\.Module).+\(\d+\): "
)
"""Names of Python functions in a trace (`file(line): name`) that belong to no library and did not
record it. torch leaves out the folder of every file on Python's path, so that of Python's own
library only the name of the module is left to know it by.
"""


@dataclass(frozen=True)
class HostFacts:
    """What one recording says about its host.

    calls, operators -- how many are in it. loader -- who loads, and by which operators, in words
                        ("" if not known).
    loading    -- share of the phase `data` inside the loader; None without that phase.
    compiling_ns, compiled, trains -- time in ranges of the compiler; whether kernels or ranges are
        of a compiled program; whether there is a backward pass or an optimizer.
    silent_in  -- the Python function in which most of the silence lies, where stacks were recorded.
                  silent_part -- the script's own range in which most of it lies. workers -- whether
                  other processes load the data.
    loading_in -- the function of this process in which most of the wait for data lies: "" where
                  other processes load them.
    """

    calls: int
    operators: int
    loader: str
    loading: float | None
    compiling_ns: int
    compiled: bool
    trains: bool
    silent_in: str
    silent_part: str = ""
    workers: bool = False
    loading_in: str = ""


def host_facts(
    profile: Profile, stacks: PlainEvents, silence: Intervals, loading: Intervals
) -> HostFacts:
    """The facts of a profile.

    stacks -- its Python functions; silence -- when the host did nothing known; loading -- when the
    work waited for data.
    """
    operators, ranges, calls = (
        plain_host_events(profile, kind) for kind in ("operator", "annotation", "runtime")
    )
    named = (operators, ranges, plain_events(profile, DEVICE_KINDS))
    workers = names_matching(ranges, f"{LOADER}{WORKERS}.*").any()
    data, loaders = (
        occupied(ranges, names_matching(ranges, pattern))
        for pattern in (PHASE_PATTERNS["data"], LOADER)
    )
    return HostFacts(
        calls=len(calls),
        operators=len(operators),
        loader=_loader(operators, ranges, data, len(plain_steps(profile))),
        loading=(data & loaders).length / data.length if data.length else None,
        compiling_ns=compiling(profile).length,
        compiled=any(names_matching(one, COMPILED).any() for one in named),
        trains=any(names_matching(one, BACKWARD).any() for one in named),
        silent_in=silent_in(stacks, silence),
        silent_part=silent_part(ranges, silence),
        workers=workers,
        loading_in="" if workers else loading_in(stacks, loading),
    )


def compiling(profile: Profile) -> Intervals:
    """When torch's compiler was at work on the host."""
    events = plain_host_events(profile, ("annotation", "operator"))
    return occupied(events, names_matching(events, COMPILATION))


def nested(operators: PlainEvents) -> tuple[PlainEvents, np.ndarray]:
    """Operators by thread and start, and for each but the first whether it begins within the one
    before it.
    """
    ordered = operators[
        np.lexsort((-operators["duration_ns"], operators["start_ns"], operators["thread"]))
    ]
    (begin, end), threads = start_and_end(ordered), ordered["thread"]
    return ordered, (begin[1:] < end[:-1]) & (threads[1:] == threads[:-1])


def innermost(operators: PlainEvents) -> PlainEvents:
    """The operators that contain no other operator of their thread, by thread and start."""
    ordered, within = nested(operators)
    return ordered[~np.append(within, np.zeros(min(len(ordered), 1), bool))]


def calls_within(operators: PlainEvents, calls: PlainEvents) -> np.ndarray:
    """How many of the calls begin in each operator, on its thread."""
    order = np.lexsort((calls["start_ns"], calls["thread"]))
    starts, threads = calls["start_ns"][order], calls["thread"][order]
    begin, end = start_and_end(operators)
    counts = np.zeros(len(operators), np.int64)
    for thread in np.unique(operators["thread"]):
        first, last = np.searchsorted(threads, thread), np.searchsorted(threads, thread, "right")
        on_thread = starts[first:last]
        rows = operators["thread"] == thread
        counts[rows] = np.searchsorted(on_thread, end[rows])
        counts[rows] -= np.searchsorted(on_thread, begin[rows])
    return counts


def outermost(operators: PlainEvents) -> PlainEvents:
    """The operators that lie in no other operator of their thread, in order of start."""
    ordered = operators[np.lexsort((-operators["duration_ns"], operators["start_ns"]))]
    (begin, end), threads = start_and_end(ordered), ordered["thread"]
    keep = np.zeros(len(ordered), bool)
    for thread in np.unique(threads):
        rows = np.flatnonzero(threads == thread)
        ended = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end[rows])[:-1])
        keep[rows] = begin[rows] >= ended
    return ordered[keep]


def _loader(operators: PlainEvents, ranges: PlainEvents, data: Intervals, steps: int) -> str:
    """Who loads data, as far as it is known, and which operators the loading starts most often in a
    step. steps -- how many there are.
    """
    loading = ranges[names_matching(ranges, PHASE_PATTERNS["data"])]
    words = [text for part, text in LOADERS.items() if names_matching(loading, f".*{part}.*").any()]
    inside = outermost(operators[data.contains(operators["start_ns"])])
    if counts := Counter(inside["name"]).most_common(MOST_STARTED):
        started = (f"{four_digits(number / max(steps, 1))} {name}" for name, number in counts)
        words.append(f"loading starts {', '.join(started)} a step")
    return ", ".join(words)


def profiler_time(stacks: PlainEvents) -> Intervals:
    """When the host was in functions that recorded the trace, as far as stacks tell."""
    return occupied(stacks, names_matching(stacks, WATCHING))


def silent_in(stacks: PlainEvents, silence: Intervals) -> str:
    """The innermost Python function that covers MOST of this time, and the innermost that belongs
    to no library.
    """
    covering = _covering(stacks, silence)
    of_script = [name for name in covering if OWN_CODE.match(name)]
    if not of_script or of_script[0] == covering[0]:
        return covering[0] if covering else ""
    return f"{covering[0]}, called from {of_script[0]}"


def largest_operator(
    operators: PlainEvents, stacks: PlainEvents, judged: Intervals
) -> LargestOperator:
    """The operator with the most self time, its share of all self time (0 to 1), and the Python
    function outside of libraries in which most of it lies; LargestOperator() without operators.
    """
    begun = operators[judged.contains(operators["start_ns"])]
    begin, end = start_and_end(begun)
    # Both are in the order of nesting: `caller` counts in `order`, which counts in `begun`.
    order, caller = callers(begin, end, begun["thread"])
    self_ns, is_called = end - begin, caller >= 0
    np.subtract.at(self_ns, order[caller[is_called]], (end - begin)[order[is_called]])
    names = begun["name"].astype(str)
    name, length = largest_sum(names, self_ns)
    if length <= 0:
        return LargestOperator()
    lying_in = _covering(stacks, occupied(begun, names == name))
    where = next((function for function in lying_in if OWN_CODE.match(function)), "")
    return LargestOperator(name, length / float(self_ns.sum()), where)


def loading_in(stacks: PlainEvents, loading: Intervals) -> str:
    """The same for the wait for data, among the functions that lie in it for more than half of
    their time: a main function is around everything.
    """
    begin, end = start_and_end(stacks)
    return silent_in(stacks[2 * loading.covered_within(begin, end) > end - begin], loading)


def silent_part(ranges: PlainEvents, silence: Intervals) -> str:
    """The shortest of the script's own ranges that covers MOST of this time, "" where none does."""
    return next(iter(_covering(ranges[~names_matching(ranges, NO_PART)], silence)), "")


def _covering(events: PlainEvents, silence: Intervals) -> list[str]:
    """Names whose events on one thread together cover MOST of this time, the shortest first,
    without those of WATCHING.
    """
    if not len(events) or not silence.length:
        return []
    begin, end = start_and_end(events)
    table = pd.DataFrame({"name": events["name"].astype(str), "thread": events["thread"]})
    table = table.assign(inside=silence.covered_within(begin, end), length=end - begin)
    table = table[table["inside"] > 0].groupby(["thread", "name"], dropna=False).sum().reset_index()
    covering = table[table["inside"] >= MOST * silence.length]
    names = covering.sort_values("length", kind="stable")["name"]
    return names[~names.str.fullmatch(WATCHING)].tolist()


def largest_host_range(times: Intervals, events: Events, without: str = "") -> Most:
    """The name under which most of a set of time lies, as `gaps` names it, and its share (0 to 1).

    without -- a pattern: what is left out of names before they are added up.
    """
    if not len(times) or not len(events):
        return Most()
    names = longest_overlap(times, events, 0.5).tolist()
    names = [name and re.sub(without, "", name) for name in names] if without else names
    name, length = largest_sum(names, times.ends - times.starts)
    return Most(name, length / times.length)


def largest_sum(names: Iterable[str | None], lengths: np.ndarray) -> Most:
    """The name whose lengths have the largest sum, of equal ones the first in the alphabet, and
    that sum; None is no name.
    """
    sums: Counter[str] = Counter()
    for name, length in zip(names, lengths.tolist(), strict=True):
        if name is not None:
            sums[str(name)] += length
    return Most(*max(sorted(sums.items()), key=lambda item: item[1], default=Most()))
