"""The facts about a run. Each fact has a value, a unit, its rank, and a source table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

AMD, NVIDIA, OTHER = "AMD", "NVIDIA", "another"


class Most(NamedTuple):
    """The name with the largest amount. The name is empty if all amounts are 0."""

    name: str = ""
    amount: float = 0.0


class Fact(NamedTuple):
    """One fact. The rank is empty if the fact describes the whole run. The source is a table."""

    name: str
    value: Any
    unit: str
    rank: str
    source: str


class Definition(NamedTuple):
    """The unit and source table of a fact, and the method for combining values of several ranks.

    The field `combine` is a key of COMBINE, a key of CHOOSE, or `leading`. If `combine` is empty,
    the fact describes the whole run and not a rank.
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
"""All facts that rules and printers can use. Times are in ns. Shares range from 0 to 1."""


class Facts:
    """The facts about one run. Methods raise KeyError for a name that isn't in DEFINITIONS."""

    def __init__(self, values: Mapping[str, Any], ranks: Mapping[str, str] | None = None) -> None:
        """Keep the values that aren't None. `ranks` maps the name of a fact to its rank."""
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
        """Return True if the fact is known for the run."""
        DEFINITIONS[name]
        return name in self._values

    def number(self, name: str, default: float = 0.0) -> float:
        """Return the value of a numeric fact, or the default if it is unknown."""
        DEFINITIONS[name.removesuffix("_amount")]
        return float(self._values.get(name, default))

    def text(self, name: str) -> str:
        """Return the value of a fact as a string, or an empty string if it is unknown."""
        DEFINITIONS[name]
        return str(self._values.get(name, ""))

    def holds(self, name: str) -> bool:
        """Return True if a fact is known and its value isn't False, 0 or an empty string."""
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

    - ns: the length of the interval.
    - share: the interval's share of all idle time.
    - over_second: the ratio of the longest interval to the second-longest interval.
    - call: the runtime call that covers most of the interval.
    - is_first: whether the event that ends the interval is the first event with its name.
    - parts: the time in ns that each part of the step takes within the interval.
    """

    ns: float
    share: float
    over_second: float
    call: str
    is_first: bool
    parts: dict[str, float]


class Replays(NamedTuple):
    """Counts of graph launches, launches without device events, device events in the median launch,
    and device events in the largest launch.
    """

    launches: int = 0
    empty: int = 0
    median: int = 0
    most: int = 0


class Cost(NamedTuple):
    """The profiler overhead per judged step on one rank.

    - events: the number of recorded operators, runtime calls and Python functions.
    - cost_ns: the expected profiler overhead, or None if the tool's overhead is unknown.
    - data_cost_ns: the part of the overhead that occurs in the phase `data`.
    - data_ns: the time that the traced steps spend in the phase `data`. The first value excludes
      the time lost to other programs, and the second value includes it. The field is None if other
      parts contain most of the phase.
    - timed: the steps that were timed without the profiler (profiler_overhead.Timed), if any.
    - log_step_ns: the step time from a times file, or None without such a file.
    - is_open: whether the unprofiled step time is unknown because the overhead is unknown.
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
    """The facts about one rank. Even for a long trace, the facts take little memory.

    - rank: the name of the rank, such as `rank 3`, or an empty string if the rank is unknown.
    - budget: a table with one row per device and step. The table has the columns rank, process,
      device, step, start_ns, duration_ns, and one column ending in `_ns` for each part. The
      function host_activity.flag_steady_steps adds the columns `steady` and `apart`, and the module
      cpu_time adds `lost_ns` and `waited_ns`. If the rank has a GPU, the table also has the columns
      `unlinked_ns`, `earlier_ns` and `by_launch`.
    - parts: the names of the parts, which add up to duration_ns.
    - values: the value of each fact by name.
    - overlaps, entries, kernels: the tables that `overlap`, `collective_entries` and
      `kernel_totals` return.
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
"""Functions that combine the values of several ranks into one value for the run."""

CHOOSE: Mapping[str, Callable[[Sequence[Any]], int]] = {
    "max": lambda values: int(np.argmax(values)),
    "largest": lambda values: int(np.argmax([value.amount for value in values])),
}
"""Functions that select the rank whose value represents the run."""


def _knows_most(one: RankFacts) -> tuple[bool, bool, float]:
    values = one.values
    named = values.get("outside_function", "") + values.get("loading_function", "")
    return named != "", values.get("loader", "") != "", values.get("operators", 0)


def combined(ranks: Sequence[RankFacts]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the value of each fact for the whole run, and the rank that each value comes from.

    The value of a `leading` fact comes from the rank with the most information about its host.
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
    """Return part / whole, clipped to the range from 0 to 1, or 0 if whole isn't positive."""
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0


def largest_sum(names: Iterable[str | None], amounts: np.ndarray) -> Most:
    """Return the name with the largest total amount.

    If several totals are equal, return the alphabetically first name. Ignore amounts without a
    name.
    """
    table = pd.DataFrame({"name": list(names), "amount": amounts}).dropna(subset=["name"])
    if table.empty:
        return Most()
    sums = table.groupby(table["name"].astype(str), sort=True)["amount"].sum()
    return Most(str(sums.idxmax()), float(sums.max()))
