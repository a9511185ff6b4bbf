"""Slower or not, beyond doubt, and where the time went: by part of the step, and by kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.gate.interval import LEAST_REPEATS, Ratio, differs, ratio_of_medians, ratio_of_turns
from tidyprof.gate.runs import RunTimes

DEFAULT_LIMIT = 0.05
"""Slow-down that is let through, as a fraction."""

PART_COLUMNS = ("part", "base_ns", "new_ns", "difference_ns", "sure")
KERNEL_COLUMNS = (
    "kernel", "base_calls", "new_calls", "base_ns", "new_ns", "difference_ns", "more_calls_ns", "blame", "full_name"
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """`word` is slower, faster, no difference or can't tell; `fails` says whether the gate closes, `reason` why.

    times_ns        -- a step's time in each run of base and of new. ratio -- new by base, None without enough repeats;
                       in_turns: of the runs of the same name, else of the medians.
    parts, kernels  -- blame, the largest difference first, in PART_COLUMNS and KERNEL_COLUMNS: ns of one step, medians
                       over the repeats. sure: the interval of a part's difference leaves 0 out. more_calls_ns is how
                       much of a kernel's difference comes from more (or fewer) calls at the old duration; blame is new,
                       gone, more calls, fewer calls, longer or shorter; kernel is a short name, full_name the tool's,
                       from the new side if it is there.
    """

    word: str
    fails: bool
    reason: str
    limit: float
    times_ns: tuple[tuple[float, ...], tuple[float, ...]]
    in_turns: bool
    ratio: Ratio | None
    parts: pd.DataFrame
    kernels: pd.DataFrame
    origins: tuple[str, ...]

    @property
    def base_ns(self) -> float:
        """Median over the repeats of a step's time before."""
        return float(np.median(self.times_ns[0]))

    @property
    def new_ns(self) -> float:
        """The same now."""
        return float(np.median(self.times_ns[1]))


def judge(
    base: Sequence[RunTimes], new: Sequence[RunTimes], limit: float = DEFAULT_LIMIT, in_turns: bool = False
) -> Verdict:
    """Compare the repeats of two sides. The gate closes where even the low end of the interval is above the limit.

    in_turns -- runs of the same name were made one after the other, and are compared with each other.
    Raises ValueError for a side without runs, and in turns for sides whose runs have not the same names.
    """
    if not base or not new:
        raise ValueError("each side needs a run")
    if in_turns:
        base, new = _turns(base, new)
    times = tuple(tuple(run.step_ns for run in side) for side in (base, new))
    compare = ratio_of_turns if in_turns else ratio_of_medians
    ratio = compare(times[1], times[0]) if min(map(len, times)) >= LEAST_REPEATS else None
    word, fails, reason = _word(ratio, limit, times)
    return Verdict(
        word, fails, reason, limit, times, in_turns, ratio, _parts(base, new, ratio is not None, in_turns),
        _kernels(base, new), tuple(dict.fromkeys(str(run.origin) for run in (*base, *new))),
    )  # fmt: skip


def _turns(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> list[list[RunTimes]]:
    sides = [{Path(run.path).name: run for run in side} for side in (base, new)]
    if lonely := sorted(sides[0].keys() ^ sides[1].keys()):
        raise ValueError(f"runs in turns need the same names on both sides, and {lonely[0]} is on one side only")
    return [[side[name] for name in sides[0]] for side in sides]


def _word(ratio: Ratio | None, limit: float, times: Sequence[Sequence[float]]) -> tuple[str, bool, str]:
    if ratio is None:
        repeats = min(map(len, times))
        return "can't tell", False, f"{repeats} repeats on one side; record {LEAST_REPEATS} or more of each"
    if ratio.low > 1 + limit:
        return "slower", True, f"even the low end of the interval is above the limit of {100 * limit:g} %"
    if ratio.low > 1:
        return "slower", False, f"but it may be less than the limit of {100 * limit:g} %"
    if ratio.high < 1:
        return "faster", False, "even the high end of the interval is below 1"
    if ratio.high > 1 + limit:
        low, high = np.quantile(times[0], [0.25, 0.75]) / np.median(times[0]) - 1
        found = f"the interval reaches from below 1 to above the limit of {100 * limit:g} %"
        return "can't tell", False, f"{found}; half of the runs before lie outside of {_signed(low)} to {_signed(high)}"
    return "no difference", False, f"a slow-down above the limit of {100 * limit:g} % is ruled out"


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.1f} %"


def _parts(base: Sequence[RunTimes], new: Sequence[RunTimes], enough: bool, in_turns: bool) -> pd.DataFrame:
    sides = [pd.concat([run.parts for run in side], axis=1) for side in (base, new)]
    names = sides[0].index.union(sides[1].index, sort=False)
    sides = [side.reindex(names).fillna(0) for side in sides]
    table = pd.DataFrame({name: side.median(axis=1) for name, side in zip(("base_ns", "new_ns"), sides, strict=True)})
    table["difference_ns"] = table["new_ns"] - table["base_ns"]
    table["sure"] = [enough and differs(sides[1].loc[name], sides[0].loc[name], in_turns) for name in names]
    return _largest_first(table.rename_axis("part").reset_index()[list(PART_COLUMNS)])


def _kernels(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> pd.DataFrame:
    sides = [
        _typical(side).set_axis([f"{name}_calls", f"{name}_ns"], axis=1)
        for name, side in (("base", base), ("new", new))
    ]
    table = pd.concat(sides, axis=1).fillna(0).astype(float)
    table = table[(table != 0).any(axis=1)]
    table["difference_ns"] = table["new_ns"] - table["base_ns"]
    mean_ns = (table["base_ns"] / table["base_calls"]).where(table["base_calls"] > 0, 0)
    table["more_calls_ns"] = (table["new_calls"] - table["base_calls"]) * mean_ns
    table["blame"] = [_blame(row) for row in table.itertuples()]
    table["full_name"] = pd.concat([run.kernels["full_name"] for run in (*new, *base)]).groupby(level=0).first()
    return _largest_first(table.rename_axis("kernel").reset_index()[list(KERNEL_COLUMNS)])


def _typical(side: Sequence[RunTimes]) -> pd.DataFrame:
    """Calls and total_ns by kernel, medians over the runs; a run without a kernel counts as none of it."""
    columns = {name: pd.concat([run.kernels[name] for run in side], axis=1) for name in ("calls", "total_ns")}
    return pd.DataFrame({name: values.fillna(0).median(axis=1) for name, values in columns.items()})


def _blame(row) -> str:
    if not row.base_calls:
        return "new"
    if not row.new_calls:
        return "gone"
    by_duration = row.difference_ns - row.more_calls_ns
    if abs(row.more_calls_ns) > abs(by_duration):
        return "more calls" if row.more_calls_ns > 0 else "fewer calls"
    return "longer" if by_duration > 0 else "shorter" if by_duration < 0 else "the same"


def _largest_first(table: pd.DataFrame) -> pd.DataFrame:
    order = table["difference_ns"].abs().sort_values(ascending=False, kind="stable").index
    return table.loc[order].reset_index(drop=True)
