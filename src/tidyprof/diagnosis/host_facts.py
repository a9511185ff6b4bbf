"""What the host's events say of a run, with a GPU or without: who loads, what is compiled, what the program does."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.analyses.common import four_digits, host_events, names_matching, occupied, start_and_end
from tidyprof.analyses.gaps import longest_overlap
from tidyprof.analyses.steps import PHASE_PATTERNS, steps
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

COMPILATION = r".*\(dynamo_timed\)"
"""Ranges that torch._dynamo.utils.dynamo_timed writes around parts of a compilation."""

COMPILED = r"triton_.*|Torch-Compiled Region.*|CompiledFunction.*|.*CompiledFxGraph.*"
"""Kernels and ranges of a program that torch.compile made."""

BACKWARD = r"autograd::engine::evaluate_function.*|Optimizer\.step#.*|backward|optimizer"
"""Operators and ranges that only a training has."""

LOADER = r"enumerate\(DataLoader\)#.*"
LOADERS = {
    "_SingleProcessDataLoaderIter": "the loader runs in the training process (num_workers=0)",
    "_MultiProcessingDataLoaderIter": "worker processes load",
}
"""What stands in the range that torch.profiler writes for each batch, and what it says."""

MOST_STARTED = 2
"""Operators of the loader that are named."""

MOST = 0.5
"""Share of the silence that a function must cover to be named."""

OWN_CODE = re.compile(r"(?!torch[/\\]|.*(site|dist)-packages|.*lib[/\\]python\d|<|nn\.Module).+\(\d+\): ")
"""Names of Python functions in a trace (`file(line): name`) that are no library's."""


@dataclass(frozen=True)
class HostFacts:
    """What one recording says of its host.

    calls, operators -- how many are in it. loader -- who loads, and by which operators, in words ("" if not known).
    loading    -- share of the phase `data` inside the loader; None without that phase.
    compiling_ns, compiled, trains -- time in ranges of the compiler; whether kernels or ranges are compiled ones;
                  whether there is a backward pass or an optimizer.
    silent_in  -- the Python function in which most of the silence lies, where stacks were recorded.
    """

    calls: int
    operators: int
    loader: str
    loading: float | None
    compiling_ns: int
    compiled: bool
    trains: bool
    silent_in: str


def host_facts(profile: Profile, stacks: pd.DataFrame, silence: Intervals) -> HostFacts:
    """The facts of a profile. stacks -- its Python functions; silence -- when the host did nothing that is known."""
    operators, ranges = host_events(profile, "operator"), host_events(profile, "annotation")
    named = (operators, ranges, profile.device_events)
    data, loaders = (occupied(ranges, names_matching(ranges, pattern)) for pattern in (PHASE_PATTERNS["data"], LOADER))
    return HostFacts(
        calls=len(host_events(profile, "runtime")),
        operators=len(operators),
        loader=_loader(profile, data),
        loading=(data & loaders).length / data.length if data.length else None,
        compiling_ns=compiling(profile).length,
        compiled=any(names_matching(one, COMPILED).any() for one in named),
        trains=any(names_matching(one, BACKWARD).any() for one in named),
        silent_in=silent_in(stacks, silence),
    )


def compiling(profile: Profile) -> Intervals:
    """When torch's compiler was at work on the host."""
    ranges, operators = (host_events(profile, kind) for kind in ("annotation", "operator"))
    return occupied(ranges, names_matching(ranges, COMPILATION)) | occupied(
        operators, names_matching(operators, COMPILATION)
    )


def outermost(operators: pd.DataFrame) -> pd.DataFrame:
    """The operators that no other operator of their thread is around, in order of start."""
    table = operators.sort_values(["start_ns", "duration_ns"], ascending=[True, False], kind="stable")
    begin, end = start_and_end(table)
    threads = table["thread"].fillna(-1).to_numpy(np.int64)
    keep = np.zeros(len(table), bool)
    for thread in np.unique(threads):
        own = np.flatnonzero(threads == thread)
        keep[own] = begin[own] >= np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end[own])[:-1])
    return table[keep]


def _loader(profile: Profile, data: Intervals) -> str:
    """Who loads data, as far as it is known, and which operators that starts most often in a step."""
    ranges = host_events(profile, "annotation")
    loading = ranges[names_matching(ranges, PHASE_PATTERNS["data"])]
    words = [text for part, text in LOADERS.items() if names_matching(loading, f".*{part}.*").any()]
    operators = host_events(profile, "operator")[["name", "thread", "start_ns", "duration_ns"]]
    inside = outermost(operators[data.contains(operators["start_ns"])])
    count = max(len(steps(profile)), 1)
    if len(counts := inside["name"].astype(str).value_counts().head(MOST_STARTED) / count):
        started = (f"{four_digits(number)} {name}" for name, number in counts.items())
        words.append(f"it starts {', '.join(started)} a step")
    return ", ".join(words)


def silent_in(stacks: pd.DataFrame, silence: Intervals) -> str:
    """The innermost Python function that covers MOST of this time, and the innermost of those that is no library's."""
    if not len(stacks) or not silence.length:
        return ""
    begin, end = start_and_end(stacks)
    table = pd.DataFrame({"name": stacks["name"].astype(str).to_numpy(), "thread": stacks["thread"].to_numpy()})
    table = table.assign(inside=silence.covered_within(begin, end), length=end - begin)
    table = table[table["inside"] > 0].groupby(["thread", "name"], dropna=False).sum().reset_index()
    covering = table[table["inside"] >= MOST * silence.length].sort_values("length", kind="stable")
    if not len(covering):
        return ""
    inner = covering["name"].iloc[0]
    own = covering.loc[covering["name"].str.match(OWN_CODE), "name"]
    return inner if not len(own) or own.iloc[0] == inner else f"{inner}, called from {own.iloc[0]}"


def top_under(times: Intervals, events: pd.DataFrame, without: str = "") -> tuple[str, float]:
    """The name under which most of a set of time lies, as `gaps` names it, and its share (0 to 1).

    without -- a pattern: what is left out of names before they are added up.
    """
    if not len(times) or not len(events):
        return "", 0.0
    names = pd.Series(longest_overlap(times, events, 0.5), dtype=object)
    names = names.str.replace(without, "", regex=True) if without and names.notna().any() else names
    known = pd.Series(times.ends - times.starts).groupby(names).sum()
    return (str(known.idxmax()), float(known.max() / times.length)) if len(known) else ("", 0.0)
