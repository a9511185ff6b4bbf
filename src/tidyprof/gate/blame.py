"""Where the time of a slower step went: by part of the step, and by kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from tidyprof.gate.interval import CONFIDENCE, LEAST_REPEATS, differs
from tidyprof.gate.runs import RunTimes

PART_COLUMNS = ("part", "base_ns", "new_ns", "difference_ns", "sure")
KERNEL_COLUMNS = (
    "kernel", "base_calls", "new_calls", "base_ns", "new_ns", "difference_ns", "more_calls_ns", "blame", "full_name"
)  # fmt: skip

SMALL = 0.1
"""A part whose difference is less than this share of the step's is not to blame, however sure it is."""


def parts_to_blame(base: Sequence[RunTimes], new: Sequence[RunTimes], in_turns: bool) -> pd.DataFrame:
    """The parts of a step in PART_COLUMNS: ns of one step, medians over the repeats; in turns difference_ns is the
    median of the turns' differences.

    sure -- the interval of the difference leaves 0 out, at a level so high that of all parts which take time one is
            sure by chance in at most 5 % of cases (Bonferroni: the 5 % are shared among them); and the difference is
            large enough to matter, see `_least_difference`. Always False with fewer than LEAST_REPEATS runs on a side.
    """
    sides = [pd.concat([run.parts for run in side], axis=1) for side in (base, new)]
    names = sides[0].index.union(sides[1].index, sort=False)
    sides = [side.reindex(names).fillna(0) for side in sides]
    table = pd.DataFrame({name: side.median(axis=1) for name, side in zip(("base_ns", "new_ns"), sides, strict=True)})
    tested = (table != 0).any(axis=1)
    level = 1 - (1 - CONFIDENCE) / max(1, tested.sum())
    changes = sides[1].to_numpy() - sides[0].to_numpy() if in_turns else None
    table["difference_ns"] = np.median(changes, axis=1) if in_turns else table["new_ns"] - table["base_ns"]
    large = table["difference_ns"].abs() >= _least_difference(base, new, in_turns)
    enough = min(len(base), len(new)) >= LEAST_REPEATS
    table["sure"] = [
        enough and tested[name] and large[name] and differs(sides[1].loc[name], sides[0].loc[name], in_turns, level)
        for name in names
    ]
    return _largest_first(table.rename_axis("part").reset_index()[list(PART_COLUMNS)])


def _least_difference(base: Sequence[RunTimes], new: Sequence[RunTimes], in_turns: bool) -> float:
    """What a part must differ by to be blamed (ns): SMALL of what the step differs by, and its noise.

    Noise is how far a run's step, or the difference of a turn's two steps, typically lies from the median.
    """
    sides = [np.array([run.step_ns for run in side]) for side in (base, new)]
    changes = [sides[1] - sides[0]] if in_turns else sides
    medians = [np.median(values) for values in changes]
    noise = max(np.median(np.abs(values - median)) for values, median in zip(changes, medians, strict=True))
    return max(SMALL * abs(medians[0] if in_turns else medians[1] - medians[0]), noise)


def kernels_to_blame(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> pd.DataFrame:
    """The kernels in KERNEL_COLUMNS: calls and ns of one step, medians over the repeats.

    more_calls_ns -- how much of the difference comes from more (or fewer) calls at the old duration.
    blame         -- new, gone, more calls, fewer calls, longer or shorter. kernel is a short name, full_name the
                     tool's, from the new side if it is there.
    """
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
