"""Slower or not, beyond doubt, and where the time went: by part of the step, and by kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.gate.interval import LEAST_REPEATS, Ratio, ratio_of_medians
from tidyprof.gate.runs import RunTimes

DEFAULT_LIMIT = 0.05
"""Slow-down that is let through, as a fraction."""

PART_COLUMNS = ("part", "base_ns", "new_ns", "difference_ns")
KERNEL_COLUMNS = (
    "kernel", "base_calls", "new_calls", "base_ns", "new_ns", "difference_ns", "more_calls_ns", "blame", "full_name"
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """`word` is slower, faster, no difference or can't tell; `fails` says whether the gate closes, `reason` why.

    base_ns, new_ns -- medians over the repeats of a step's time; ratio -- new by base, None without enough repeats.
    parts, kernels  -- blame, the largest difference first, in PART_COLUMNS and KERNEL_COLUMNS: ns of one step, means
                       over the repeats. more_calls_ns is how much of a kernel's difference comes from more (or fewer)
                       calls at the old duration; blame is new, gone, more calls, fewer calls, longer or shorter; kernel
                       is a short name, full_name the tool's, from the new side if it is there.
    """

    word: str
    fails: bool
    reason: str
    limit: float
    base_ns: float
    new_ns: float
    repeats: tuple[int, int]
    ratio: Ratio | None
    parts: pd.DataFrame
    kernels: pd.DataFrame
    origins: tuple[str, ...]


def judge(base: Sequence[RunTimes], new: Sequence[RunTimes], limit: float = DEFAULT_LIMIT) -> Verdict:
    """Compare the repeats of two sides. The gate closes where even the low end of the interval is above the limit.

    Raises ValueError for a side without runs.
    """
    if not base or not new:
        raise ValueError("each side needs a run")
    times = [[run.step_ns for run in side] for side in (base, new)]
    ratio = ratio_of_medians(times[1], times[0]) if min(map(len, times)) >= LEAST_REPEATS else None
    word, fails, reason = _word(ratio, limit, min(map(len, times)))
    return Verdict(
        word, fails, reason, limit, float(np.median(times[0])), float(np.median(times[1])), (len(base), len(new)),
        ratio, _parts(base, new), _kernels(base, new), tuple(dict.fromkeys(str(run.origin) for run in (*base, *new))),
    )  # fmt: skip


def _word(ratio: Ratio | None, limit: float, repeats: int) -> tuple[str, bool, str]:
    if ratio is None:
        return "can't tell", False, f"{repeats} repeats on one side; record {LEAST_REPEATS} or more of each"
    if ratio.low > 1 + limit:
        return "slower", True, f"even the low end of the interval is above the limit of {100 * limit:g} %"
    if ratio.low > 1:
        return "slower", False, f"but it may be less than the limit of {100 * limit:g} %"
    if ratio.high < 1:
        return "faster", False, "even the high end of the interval is below 1"
    if ratio.high > 1 + limit:
        return "can't tell", False, f"the interval reaches from below 1 to above the limit of {100 * limit:g} %"
    return "no difference", False, f"a slow-down above the limit of {100 * limit:g} % is ruled out"


def _parts(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> pd.DataFrame:
    sides = [pd.concat([run.parts for run in side], axis=1).fillna(0).mean(axis=1) for side in (base, new)]
    table = pd.concat(sides, axis=1, keys=["base_ns", "new_ns"]).fillna(0)
    table["difference_ns"] = table["new_ns"] - table["base_ns"]
    return _largest_first(table.rename_axis("part").reset_index()[list(PART_COLUMNS)])


def _kernels(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> pd.DataFrame:
    sides = [sum_of(side) / len(side) for side in (base, new)]
    sides = [
        side.set_axis([f"{name}_calls", f"{name}_ns"], axis=1)
        for name, side in zip(("base", "new"), sides, strict=True)
    ]
    table = pd.concat(sides, axis=1).fillna(0).astype(float)
    table["difference_ns"] = table["new_ns"] - table["base_ns"]
    mean_ns = (table["base_ns"] / table["base_calls"]).where(table["base_calls"] > 0, 0)
    table["more_calls_ns"] = (table["new_calls"] - table["base_calls"]) * mean_ns
    table["blame"] = [_blame(row) for row in table.itertuples()]
    table["full_name"] = pd.concat([run.kernels["full_name"] for run in (*new, *base)]).groupby(level=0).first()
    return _largest_first(table.rename_axis("kernel").reset_index()[list(KERNEL_COLUMNS)])


def sum_of(side: Sequence[RunTimes]) -> pd.DataFrame:
    """Calls and total_ns by kernel, added up over the runs."""
    return pd.concat([run.kernels[["calls", "total_ns"]] for run in side]).groupby(level=0).sum()


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
