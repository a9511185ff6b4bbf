"""The facts about a run. Each fact has a value, a unit, and a source table."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tidyprof.analyses.common import four_digits
from tidyprof.package_data import text_of

AMD, NVIDIA, OTHER = "AMD", "NVIDIA", "another"


class Most(NamedTuple):
    """The name with the largest amount. The name is empty if all amounts are 0."""

    name: str = ""
    amount: float = 0.0


class Fact(NamedTuple):
    """One fact. The source is a table."""

    name: str
    value: Any
    unit: str
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
    row.pop("name"): Definition(**row)
    for row in csv.DictReader(text_of("triage/facts.csv").splitlines())
}
"""All facts that rules and printers can use. Times are in ns. Shares range from 0 to 1."""


class Facts:
    """The facts about one run: `facts[name]`, or `name in facts`.

    An unknown fact is an empty string if it would be a text, otherwise 0. A name that isn't in
    DEFINITIONS raises KeyError.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Keep the values that aren't None."""
        self._values: dict[str, Any] = {}
        for name, value in values.items():
            if isinstance(value, Most):
                self._values |= {name: value.name, f"{name}_amount": value.amount}
            elif value is not None:
                self._values[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        unit, _, combine = DEFINITIONS[name.removesuffix("_amount")]
        is_text = not unit or (combine == "largest" and name in DEFINITIONS)
        return self._values.get(name, "" if is_text else 0.0)

    def shown(self, name: str) -> str:
        """Return the value of a fact as it stands in a sentence, without most units."""
        return in_words(self[name], DEFINITIONS[name.removesuffix("_amount")].unit)

    def listed(self) -> tuple[Fact, ...]:
        """Return all facts that aren't empty or zero, in the order of DEFINITIONS."""
        found = []
        for name, (unit, source, combine) in DEFINITIONS.items():
            if value := self[name]:
                found.append(Fact(name, value, "" if combine == "largest" else unit, source))
            if value and f"{name}_amount" in self:
                found.append(Fact(f"{name}_amount", self[f"{name}_amount"], unit, source))
        return tuple(found)


def percent(share: float) -> str:
    """Return a share (0 to 1) as a percentage."""
    return f"{100 * share:.1f}%" if 0 < share < 0.0095 else f"{100 * share:.0f}%"


def in_words(value: Any, unit: str) -> str:
    """Return a value in this unit as a string. Times in ns become ms, and shares become percent."""
    if isinstance(value, str | bool):
        return str(value)
    if unit == "ns":
        return f"{four_digits(value / 1e6)} ms"
    return percent(value) if unit.startswith("of ") else four_digits(value)


class Gap(NamedTuple):
    """The longest idle interval of a rank.

    - ns: the length of the interval.
    - share: the interval's share of all idle time.
    - over_second: the ratio of the longest interval to the second-longest interval.
    - parts: the time in ns that each part of the step takes within the interval.
    """

    ns: float
    share: float
    over_second: float
    parts: dict[str, float]


class Cost(NamedTuple):
    """The profiler overhead per judged step on one rank.

    - events: the number of recorded operators, runtime calls and Python functions.
    - cost_ns: the expected profiler overhead, or None if the tool's overhead is unknown.
    - data_cost_ns: the part of the overhead that occurs in the phase `data`.
    - data_ns: the time that the traced steps spend in the phase `data`. The first value excludes
      the time lost to other programs, and the second value includes it. The field is None if other
      parts contain most of the phase.
    - timed: the steps that were timed without the profiler (readers.torch.meta.untraced), if any.
    - is_open: whether the unprofiled step time is unknown because the overhead is unknown.
    """

    events: float
    cost_ns: float | None
    data_cost_ns: float
    data_ns: tuple[float, float] | None
    timed: dict[str, Any] | None
    is_open: bool


@dataclass(frozen=True)
class RankFacts:
    """The facts about one rank. Even for a long trace, the facts take little memory.

    - budget: a table with one row per device and step. The table has the columns rank, process,
      device, step, start_ns, duration_ns, and one column ending in `_ns` for each part. The
      function host_activity.flag_steady_steps adds the column `steady`, and the module cpu_time
      adds `waited_ns`. If the rank has a GPU, the table also has the columns
      `unlinked_ns` and `earlier_ns`.
    - parts: the names of the parts, which add up to duration_ns.
    - values: the value of each fact by name.
    - overlaps, entries, kernels: the tables that `overlap`, `collective_entries` and
      `kernel_totals` return.
    """

    budget: pd.DataFrame
    parts: tuple[str, ...]
    values: dict[str, Any]
    overlaps: pd.DataFrame
    entries: pd.DataFrame
    kernels: pd.DataFrame
    gap: Gap | None
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


def combined(ranks: Sequence[RankFacts]) -> dict[str, Any]:
    """Return the value of each fact for the whole run.

    The value of a `leading` fact comes from the rank with the most information about its host.
    """
    values: dict[str, Any] = {}
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
    return values


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
