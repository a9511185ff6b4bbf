"""The facts of a run. Each has a value, a unit, the rank it comes from, and a source table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

AMD, NVIDIA, OTHER = "AMD", "NVIDIA", "another"
"""Values of the fact `vendor`."""


class Most(NamedTuple):
    """The name with the largest amount of something; the name is empty if all amounts are 0."""

    name: str = ""
    amount: float = 0.0


class Fact(NamedTuple):
    """One fact. rank is empty for a fact about the whole run. source names the table behind it."""

    name: str
    value: Any
    unit: str
    rank: str
    source: str


class Definition(NamedTuple):
    """The unit and source table of a fact, and the way to combine the values of several ranks.

    combine is a key of COMBINE or CHOOSE, or `leading`. If it is empty, the fact describes the run
    and not a rank.
    """

    unit: str
    source: str
    combine: str = ""


DEFINITIONS: dict[str, Definition] = {
    "tool": Definition("", "meta"),
    "rocm": Definition("", "meta"),
    "vendor": Definition("", "meta"),
    "gpu": Definition("", "meta"),
    "ranks": Definition("ranks", "ranks"),
    "world_size": Definition("ranks", "meta"),
    "steps": Definition("steps", "step_budget"),
    "judged_steps": Definition("steps", "step_budget"),
    "step_marker": Definition("", "steps", "leading"),
    "traced_step_ns": Definition("ns", "step_budget"),
    "shortest_step_ns": Definition("ns", "step_budget"),
    "longest_step_ns": Definition("ns", "step_budget"),
    "rare_work": Definition("", "phases"),
    "rare_work_share": Definition("of the recorded time", "phases"),
    "earlier_work_ns": Definition("ns", "gaps"),
    "first_step_ratio": Definition("times the median", "step_budget"),
    "startup_share": Definition("of all steps", "step_budget"),
    "unlinked_share": Definition("of the device's work", "events"),
    "least_busy_device": Definition("of the step", "step_budget"),
    "most_busy_device": Definition("of the step", "step_budget"),
    "launches": Definition("calls", "events", "sum"),
    "launches_without_work": Definition("calls", "events", "sum"),
    "lost_launches_share": Definition("of launches", "events", "max"),
    "clock_conflict_share": Definition("of linked events", "launches", "max"),
    "clock_offset_ns": Definition("ns", "launches", "max"),
    "calls": Definition("calls", "events", "sum"),
    "operators": Definition("operators", "events", "sum"),
    "kernels": Definition("per step", "events", "mean"),
    "copies_to_device": Definition("per step", "events", "mean"),
    "batches": Definition("per step", "events", "mean"),
    "waiting_calls": Definition("per step", "blocking_calls", "mean"),
    "allocations": Definition("per step", "blocking_calls", "mean"),
    "waiting_call": Definition("ns", "blocking_calls", "largest"),
    "slow_launches_ns": Definition("ns", "events", "sum"),
    "library_search": Definition("ns", "events", "largest"),
    "longest_gap_ns": Definition("ns", "gaps"),
    "longest_gap_share": Definition("of idle time", "gaps"),
    "longest_gap_call": Definition("", "gaps"),
    "top_kernel": Definition("", "kernels"),
    "top_kernel_share": Definition("of kernel time", "kernels"),
    "top_kernel_calls": Definition("calls", "kernels"),
    "top_kernel_category": Definition("", "kernels"),
    "top_kernel_roof_share": Definition("of its roof", "roofline_points"),
    "product_type": Definition("of matrix products", "events", "largest"),
    "unknown_collective": Definition("of kernel time", "kernels", "largest"),
    "graph_share": Definition("of device events", "launches", "max"),
    "graph_replays": Definition("replays", "launches"),
    "empty_replays": Definition("replays", "launches"),
    "median_replay": Definition("device events", "launches"),
    "largest_replay": Definition("device events", "launches"),
    "captured_share": Definition("of launches", "events", "max"),
    "recomputed_share": Definition("of the work", "events", "max"),
    "loader": Definition("", "events", "leading"),
    "loading_share": Definition("of the phase data", "phases", "leading"),
    "loading_function": Definition("", "call stacks", "leading"),
    "outside_function": Definition("", "call stacks", "leading"),
    "outside_part": Definition("", "phases", "leading"),
    "compiled": Definition("", "events", "any"),
    "trains": Definition("", "events", "any"),
    "small_operator": Definition("per step", "events", "largest"),
    "largest_operator": Definition("of operator time", "operators", "largest"),
    "largest_operator_function": Definition("", "call stacks", "leading"),
    "cpu_steal_share": Definition("of the traced steps", "counters"),
    "off_cpu_share": Definition("of the traced steps", "counters"),
    "collective_share": Definition("of the step", "collectives", "max"),
    "straggler": Definition("rank", "ranks"),
    "straggler_last": Definition("collectives", "ranks"),
    "compared_collectives": Definition("collectives", "ranks"),
    "straggler_excess": Definition("of its time", "step_budget"),
    "straggler_excess_ns": Definition("ns", "step_budget"),
    "straggler_part": Definition("", "step_budget"),
    "always_last": Definition("rank", "ranks"),
    "capped_share": Definition("of busy samples", "counters"),
    "power_log": Definition("", "counters"),
    "foreign_events": Definition("", "meta"),
    "named_gpu": Definition("", "meta"),
    "out_of_memory": Definition("", "meta"),
    "marker_to_try": Definition("", "steps"),
    "events_per_step": Definition("events", "events"),
    "measured_data_share": Definition("of the step", "meta"),
    "measured_between_share": Definition("of the step", "meta"),
}
"""Every fact that a rule or a printer can use. Times are in ns, and shares are from 0 to 1."""


class Facts:
    """The facts of one run by name. Methods raise KeyError for a name that isn't in DEFINITIONS."""

    def __init__(self, values: Mapping[str, Any], ranks: Mapping[str, str] | None = None) -> None:
        """Keep the values that are not None. ranks maps the name of a fact to its rank."""
        self._values: dict[str, Any] = {}
        self._ranks = dict(ranks or {})
        for name, value in values.items():
            if value is None:
                continue
            if isinstance(value, Most):
                self._values |= {name: value.name, f"{name}_amount": value.amount}
            else:
                self._values[name] = value

    def known(self, name: str) -> bool:
        """Return True if the run has this fact."""
        DEFINITIONS[name]
        return name in self._values

    def number(self, name: str, default: float = 0.0) -> float:
        """Return the value of a numeric fact, or the default if it is unknown."""
        DEFINITIONS[name.removesuffix("_amount")]
        return float(self._values.get(name, default))

    def text(self, name: str) -> str:
        """Return the value of a fact as a string; empty if it is unknown."""
        DEFINITIONS[name]
        return str(self._values.get(name, ""))

    def holds(self, name: str) -> bool:
        """Return True if a fact is known and isn't False, 0 or an empty string."""
        DEFINITIONS[name]
        return bool(self._values.get(name, False))

    def listed(self) -> tuple[Fact, ...]:
        """Return all facts that aren't empty or zero, in the order of DEFINITIONS."""
        return tuple(self._listed())

    def _listed(self) -> Iterator[Fact]:
        for name, (unit, source, combine) in DEFINITIONS.items():
            value, rank = self._values.get(name), self._ranks.get(name, "")
            if (not value and value != 0.0) or value is False or value == 0:
                continue
            yield Fact(name, value, "" if combine == "largest" else unit, rank, source)
            if f"{name}_amount" in self._values:
                amount = self._values[f"{name}_amount"]
                yield Fact(f"{name}_amount", amount, unit, rank, source)


class Gap(NamedTuple):
    """The longest idle interval of a rank.

    ns          -- its length.
    share       -- its share of all idle time.
    over_second -- its ratio to the second-longest interval.
    call        -- the runtime call that fills it.
    is_first    -- True if the event that ends the interval is the first event of its name.
    parts       -- part of the step -> how much of the interval belongs to it, in ns.
    """

    ns: float
    share: float
    over_second: float
    call: str
    is_first: bool
    parts: dict[str, float]


class Replays(NamedTuple):
    """The number of graph launches, the number of launches without a device event in the file, and
    the number of device events in the median launch and in the largest launch.
    """

    launches: int = 0
    empty: int = 0
    median: int = 0
    most: int = 0


class Cost(NamedTuple):
    """The cost of profiling one rank, per judged step.

    events       -- the number of recorded operators, runtime calls and Python functions.
    cost_ns      -- the time that the profiler is expected to add; None if unknown for the tool.
    data_cost_ns -- the part of cost_ns in the phase `data`.
    data_ns      -- the time in the phase `data` of the traced steps, first without and then with
                    the time lost to other programs; None if most of it is inside other parts.
    timed        -- the steps timed without the profiler (profiler_overhead.Timed); None if there
                    are none.
    log_step_ns  -- the step time according to a times file; None without such a file.
    is_open      -- True if the unprofiled step time is unknown because the cost is unknown.
    """

    events: float
    cost_ns: float | None
    data_cost_ns: float
    data_ns: tuple[float, float] | None
    timed: Any
    log_step_ns: float | None
    is_open: bool


@dataclass(frozen=True)
class RankFacts:
    """The facts of one rank, which are small even for a long trace.

    rank     -- `rank 3`, or empty if unknown.
    budget   -- a table with one row per device and step. Its columns are rank, process, device,
                step, start_ns and duration_ns, a column ending in `_ns` for each part, `steady`
                and `apart` (host_activity.flag_steady_steps), and `lost_ns` and `waited_ns`
                (cpu_time). Rows with a device also have `unlinked_ns`, `earlier_ns` and
                `by_launch`.
    parts    -- the names of the parts, which add up to duration_ns.
    values   -- the facts by name.
    overlaps, entries, kernels -- the tables of `overlap`, `collective_entries` and
                `kernel_totals`.
    """

    rank: str
    budget: pd.DataFrame
    parts: tuple[str, ...]
    values: dict[str, Any]
    overlaps: pd.DataFrame
    entries: pd.DataFrame
    kernels: pd.DataFrame
    gap: Gap | None
    replays: Replays
    cost: Cost


COMBINE: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "sum": sum,
    "mean": lambda values: float(np.mean(values)),
    "any": any,
}
"""The functions that combine the values of several ranks into one value for the run."""

CHOOSE: Mapping[str, Callable[[Sequence[Any]], int]] = {
    "max": lambda values: int(np.argmax(values)),
    "largest": lambda values: int(np.argmax([value.amount for value in values])),
}
"""The functions that choose the rank whose value counts for the run."""


def _knows_most(one: RankFacts) -> tuple[bool, bool, float]:
    values = one.values
    named = values.get("outside_function", "") + values.get("loading_function", "")
    return named != "", values.get("loader", "") != "", values.get("operators", 0)


def combined(ranks: Sequence[RankFacts]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of the run by name, and the rank that each value comes from.

    A fact with `leading` comes from the rank with the most information about its host.
    """
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    leading = max(ranks, key=_knows_most)
    for name in dict.fromkeys(name for one in ranks for name in one.values):
        combine = DEFINITIONS[name].combine
        having = [one for one in ranks if name in one.values]
        known = [one.values[name] for one in having]
        if combine in COMBINE:
            values[name] = COMBINE[combine](known)
            continue
        chosen = leading if combine == "leading" else having[CHOOSE[combine](known)]
        if name in chosen.values:
            values[name] = chosen.values[name]
            origin[name] = chosen.rank if len(ranks) > 1 else ""
    return values, origin


def share_of(part: float, whole: float) -> float:
    """Return part / whole, limited to the range 0 to 1, or 0 if whole isn't positive."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0


def largest_sum(names: Iterable[str | None], amounts: np.ndarray) -> Most:
    """Return the name whose amounts have the largest sum.

    If sums are equal, return the alphabetically first name. Amounts without a name are ignored.
    """
    table = pd.DataFrame({"name": list(names), "amount": amounts}).dropna(subset=["name"])
    if table.empty:
        return Most()
    sums = table.groupby(table["name"].astype(str), sort=True)["amount"].sum()
    return Most(str(sums.idxmax()), float(sums.max()))
