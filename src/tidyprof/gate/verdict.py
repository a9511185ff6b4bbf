"""Slower or not, beyond doubt, and where the time went: by part of the step, and by kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.gate.blame import kernels_to_blame, parts_to_blame
from tidyprof.gate.interval import LEAST_REPEATS, Ratio, ratio_of_medians, ratio_of_turns
from tidyprof.gate.runs import RunTimes

DEFAULT_LIMIT = 0.05
"""Slow-down that is let through, as a fraction."""


@dataclass(frozen=True)
class Verdict:
    """`word` is slower, faster, no difference or can't tell; `fails` says whether the gate closes, `reason` why.

    times_ns        -- a step's time in each run of base and of new. ratio -- new by base, None without enough repeats;
                       in_turns: of the runs of the same name, else of the medians.
    ignored         -- files of the runs that were not read, each with its run and why.
    parts, kernels  -- whom to blame, the largest difference first: tables of `parts_to_blame` and `kernels_to_blame`.
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
    ignored: tuple[str, ...]

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
    Raises ValueError for a side without runs, for runs of which some were recorded with a profiler and some without,
    and in turns for sides whose runs have not the same names.
    """
    if not base or not new:
        raise ValueError("each side needs a run")
    if len({run.profiled for run in (*base, *new)}) > 1:
        raise ValueError("some runs were recorded with a profiler, which takes time, and some without")
    if in_turns:
        base, new = _turns(base, new)
    times = tuple(tuple(run.step_ns for run in side) for side in (base, new))
    compare = ratio_of_turns if in_turns else ratio_of_medians
    ratio = compare(times[1], times[0]) if min(map(len, times)) >= LEAST_REPEATS else None
    word, fails, reason = _word(ratio, limit, times)
    return Verdict(
        word, fails, reason, limit, times, in_turns, ratio, parts_to_blame(base, new, in_turns),
        kernels_to_blame(base, new), tuple(dict.fromkeys(str(run.origin) for run in (*base, *new))),
        tuple(f"{run.path}: {line}" for run in (*base, *new) for line in run.ignored),
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
