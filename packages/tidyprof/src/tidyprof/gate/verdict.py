"""Compare two versions, and find the parts and kernels that changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.gate.intervals import (
    CONFIDENCE,
    LEAST_REPEATS,
    Ratio,
    differs,
    fewest_runs,
    ratio_of_totals,
)
from tidyprof.gate.metrics import JOB, METRICS
from tidyprof.gate.runs import NOTHING, RunTimes

PART_COLUMNS = ("part", "base_ns", "new_ns", "difference_ns", "confident")
KERNEL_COLUMNS = (
    "kernel",
    "base_calls",
    "new_calls",
    "base_ns",
    "new_ns",
    "difference_ns",
    "more_calls_ns",
    "blame",
    "full_name",
)

SMALL = 0.1
"""The minimum change of a part that may be to blame, as a share of the step's change."""

DEFAULT_LIMIT = 0.05
"""The largest slowdown that the gate allows by default, as a fraction."""

SAME_WORK = DEFAULT_LIMIT
"""The largest relative difference in the number of steps or samples between runs that did the same
work. This threshold applies even if the limit of the gate is larger.
"""

INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Verdict:
    """The result of comparing the runs of two versions. In each pair of values, the base version
    comes first.

    - paired: whether runs with the same name were compared with each other.
    - word: the verdict, which is slower, faster, no difference or inconclusive. For memory, the
      words are larger and smaller instead of slower and faster.
    - fails: whether the gate fails.
    - reason: the reason for the verdict, as a sentence.
    - ratio: the new value divided by the base value, or None if there are too few runs or the runs
      did different work.
    - median_word: the verdict based on median steps alone, or "" if it agrees with the mean.
    - parts, job: the tables of `parts_to_blame` for a step and for the job. The job table is empty
      unless all runs recorded job times.
    - kernels: the table of `kernels_to_blame`.
    """

    base: Sequence[RunTimes]
    new: Sequence[RunTimes]
    limit: float
    paired: bool
    word: str
    fails: bool
    reason: str
    ratio: Ratio | None
    median_word: str
    parts: pd.DataFrame
    job: pd.DataFrame
    kernels: pd.DataFrame

    @property
    def metric(self) -> str:
        """The metric that was judged, one of `tidyprof.gate.metrics.METRICS`."""
        return self.base[0].metric

    @property
    def unit(self) -> str:
        """The unit of the values, either ns or bytes."""
        return "bytes" if METRICS[self.metric].unit == "MiB" else "ns"

    @property
    def values(self) -> list[list[float]]:
        """The value of each run."""
        return [[run.value for run in side] for side in (self.base, self.new)]

    @property
    def base_value(self) -> float:
        """The mean value of the base runs."""
        return float(np.mean(self.values[0]))

    @property
    def new_value(self) -> float:
        """The mean value of the new runs."""
        return float(np.mean(self.values[1]))

    @property
    def medians(self) -> list[float]:
        """The median step time of each version, as a mean over its runs."""
        sides = self.base, self.new
        return [float(np.mean([run.median for run in side])) for side in sides]

    @property
    def fewest_runs(self) -> int:
        """The minimum number of runs per version for any part to be confident."""
        error = min(_error_per_part(table) for table in (self.parts, self.job))
        return fewest_runs(error, self.paired)

    @property
    def origins(self) -> list[str]:
        """The origins of the runs, without duplicates."""
        return list(dict.fromkeys(str(run.origin) for run in (*self.base, *self.new)))

    @property
    def ignored(self) -> list[str]:
        """The files that tidyprof didn't read, with their runs and the reasons."""
        return [f"{run.path}: {line}" for run in (*self.base, *self.new) for line in run.ignored]


def judge(
    base: Sequence[RunTimes],
    new: Sequence[RunTimes],
    limit: float = DEFAULT_LIMIT,
    paired: bool = False,
) -> Verdict:
    """Compare the runs of two versions by their mean step times.

    If all runs did the same work, the comparison is equivalent to a comparison of total times. The
    gate fails if even the low end of the interval exceeds the limit. The verdict is inconclusive if
    a version has fewer than LEAST_REPEATS runs, or if the runs did different work (SAME_WORK).

    - paired: whether runs with the same name were recorded one after the other. If so, runs with
      the same name are compared with each other.

    Raises ValueError if a version has no runs, if only some runs were profiled, or if paired runs
    have different names.

    >>> from tidyprof.gate.runs import run_times
    >>> once = [run_times("trace.json.gz")]
    >>> judge(once, once).word
    'inconclusive'
    """
    if not base or not new:
        raise ValueError("each version needs at least one run")
    if len({run.profiled for run in (*base, *new)}) > 1:
        raise ValueError("only some runs were profiled, and profiling makes steps longer")
    if len({run.metric for run in (*base, *new)}) > 1:
        raise ValueError("only some runs used GPU memory")
    if paired:
        base, new = _pairs(base, new)
    word, ratio, median_word = INCONCLUSIVE, None, ""
    reason = _other_work(base, new, limit) or _too_few(base, new)
    if not reason:
        word, reason, ratio, median_word = _compared(base, new, limit, paired)
    fails = ratio is not None and ratio.low > 1 + limit
    parts = parts_to_blame([run.parts for run in base], [run.parts for run in new], paired)
    known = all(len(run.job) for run in (*base, *new))
    jobs = [[run.job if known else NOTHING for run in side] for side in (base, new)]
    job, kernels = parts_to_blame(jobs[0], jobs[1], paired), kernels_to_blame(base, new)
    for table in (parts, job):
        table["confident"] &= ratio is not None
    return Verdict(
        base, new, limit, paired, word, fails, reason, ratio, median_word, parts, job, kernels
    )


def _compared(
    base: Sequence[RunTimes], new: Sequence[RunTimes], limit: float, paired: bool
) -> tuple[str, str, Ratio, str]:
    """Return the verdict, its reason, the ratio, and the verdict based on medians if it differs."""
    ratio, typical = (
        ratio_of_totals(
            *([getattr(run, name) for run in side] for side in (new, base)), paired=paired
        )
        for name in ("value", "median")
    )
    metric = METRICS[base[0].metric]
    word, median_word = (_word(found, limit, metric.unit) for found in (ratio, typical))
    if median_word == word and ratio.low <= typical.ratio <= ratio.high:
        median_word = ""
    reason = _reason(ratio, limit)
    if word == INCONCLUSIVE:
        if median_word not in ("", word):
            reason = "A few long steps decide the mean."
        reason += f" {'Record' if paired else 'Use --paired, or record'} more and longer runs."
    elif ratio.low <= 1 and metric.column != JOB:
        reason += f" Steps rarer than 1 in {_rarest(base, new):,} may not have occurred."
    return word, reason, ratio, median_word


def _by_name(side: Sequence[RunTimes]) -> dict[str, RunTimes]:
    return {Path(run.path).name: run for run in side}


def _pairs(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> list[list[RunTimes]]:
    sides = [_by_name(side) for side in (base, new)]
    if lonely := sorted(sides[0].keys() ^ sides[1].keys()):
        raise ValueError(f"only one version has a run {lonely[0]}, so the runs aren't paired")
    return [[side[name] for name in sides[0]] for side in sides]


def _word(ratio: Ratio, limit: float, unit: str) -> str:
    more, less = ("larger", "smaller") if unit == "MiB" else ("slower", "faster")
    if ratio.low > 1:
        return more
    if ratio.high < 1:
        return less
    return "no difference" if ratio.high <= 1 + limit else INCONCLUSIVE


def _reason(ratio: Ratio, limit: float) -> str:
    percent = f"the limit of {100 * limit:g}%"
    if ratio.low > 1 + limit:
        return f"Even the low end of the interval exceeds {percent}."
    if ratio.low > 1:
        return f"The gate passes, because the interval extends below {percent}."
    if ratio.high < 1:
        return "The whole interval is below 0%."
    if ratio.high <= 1 + limit:
        return f"The interval excludes an increase above {percent}."
    return f"The interval contains both 0% and {percent}."


def _rarest(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> int:
    """Return N such that the runs contain a step that occurs once in N steps with 95% probability.

    According to the rule of three, N is one third of the number of steps per rank.
    """
    steps = [sum(run.steps // max(1, len(run.lanes)) for run in side) for side in (base, new)]
    return max(1, min(steps) // 3)


def _too_few(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> str:
    """Return a sentence if a version has too few runs, otherwise an empty string."""
    if (runs := min(len(base), len(new))) >= LEAST_REPEATS:
        return ""
    least = f"Record at least {LEAST_REPEATS} runs of each version, alternating, and use --paired."
    return f"one version has only {runs} run{'s' * (runs > 1)}. {least}"


def _other_work(base: Sequence[RunTimes], new: Sequence[RunTimes], limit: float) -> str:
    """Return a sentence if the work of any two runs differs by more than the limit or SAME_WORK,
    otherwise an empty string. If a run doesn't report some kind of work, that work isn't compared.
    """
    for name in base[0].work:
        before, now = ([run.work.get(name, np.nan) for run in side] for side in (base, new))
        least, most = np.min(before + now), np.max(before + now)
        if most - least > min(limit, SAME_WORK) * least:
            found = f"the runs did different work, {_span(before)} {name} each before and"
            return f"{found} {_span(now)} now. Record runs with the same work."
    return ""


def _span(numbers: list[float]) -> str:
    ends = sorted({min(numbers), max(numbers)})
    return " to ".join(f"{end:,.10g}" for end in ends)


def parts_to_blame(
    base: Sequence[pd.Series], new: Sequence[pd.Series], paired: bool
) -> pd.DataFrame:
    """Return the parts in PART_COLUMNS, with the largest difference first.

    Times are in ns. The values are means over the runs, so the parts add up. The column confident
    is True if a difference is beyond doubt and large enough to matter (see `least_difference`). A
    Bonferroni correction limits the total error of all parts to 5%. Therefore, if nothing changed,
    at most 5% of comparisons contain a confident part.

    - base, new: the time in ns of each part, for each run.
    """
    sides = [pd.concat(side, axis=1) for side in (base, new)]
    names = sides[0].index.union(sides[1].index, sort=False)
    sides = [side.reindex(names).fillna(0) for side in sides]
    means = dict(zip(("base_ns", "new_ns"), (side.mean(axis=1) for side in sides), strict=True))
    table = pd.DataFrame(means).assign(difference_ns=means["new_ns"] - means["base_ns"])
    error = _error_per_part(table)
    least_ns = least_difference([side.sum() for side in sides], paired)
    large = table["difference_ns"].abs() >= least_ns
    table["confident"] = (min(len(base), len(new)) >= LEAST_REPEATS) & large
    for name in names[table["confident"]]:
        beyond_doubt = differs(sides[1].loc[name], sides[0].loc[name], paired, error)
        table.loc[name, "confident"] = beyond_doubt
    return _largest_first(table.rename_axis("part").reset_index()[list(PART_COLUMNS)])


def _error_per_part(parts: pd.DataFrame) -> float:
    tested = (parts[["base_ns", "new_ns"]] != 0).any(axis=1).sum()
    return (1 - CONFIDENCE) / max(1, int(tested))


def least_difference(totals: Sequence[Sequence[float]], paired: bool) -> float:
    """Return the smallest difference in ns for which a part can be to blame.

    The difference must be at least SMALL times the difference between the mean totals, and at least
    as large as the noise. The noise is the median absolute deviation of the totals from the mean of
    their version. For paired runs, the noise is the median absolute deviation of the paired
    differences from their mean.

    - totals: the step time or job time of each run, in one list per version.
    """
    sides = [np.array(values) for values in totals]
    noise = [
        np.median(np.abs(values - values.mean()))
        for values in ([sides[1] - sides[0]] if paired else sides)
    ]
    return float(max(SMALL * abs(sides[1].mean() - sides[0].mean()), *noise))


def kernels_to_blame(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> pd.DataFrame:
    """Return the kernels in KERNEL_COLUMNS, with the largest difference first.

    Calls and times (in ns) are per step, as means over the runs.

    - more_calls_ns: the part of the difference that comes from a different number of calls, based
      on the old time per call.
    - blame: the kind of change, which is new, gone, more calls, fewer calls, longer or shorter.
    - kernel: the short kernel name.
    - full_name: the tool's name for the kernel, preferably from the new version.
    """
    sides = [
        _per_run(side).set_axis([f"{name}_calls", f"{name}_ns"], axis=1)
        for name, side in (("base", base), ("new", new))
    ]
    table = pd.concat(sides, axis=1).fillna(0).astype(float)
    table = table[(table != 0).any(axis=1)]
    table["difference_ns"] = table["new_ns"] - table["base_ns"]
    mean_ns = (table["base_ns"] / table["base_calls"]).where(table["base_calls"] > 0, 0)
    table["more_calls_ns"] = (table["new_calls"] - table["base_calls"]) * mean_ns
    table["blame"] = [_blame(row) for row in table.itertuples()]
    table["full_name"] = (
        pd.concat([run.kernels["full_name"] for run in (*new, *base)]).groupby(level=0).first()
    )
    return _largest_first(table.rename_axis("kernel").reset_index()[list(KERNEL_COLUMNS)])


def _per_run(side: Sequence[RunTimes]) -> pd.DataFrame:
    """Return calls and total_ns by kernel, as means over the runs.

    If a run doesn't contain a kernel, its values are 0.
    """
    runs = pd.concat([run.kernels[["calls", "total_ns"]] for run in side])
    return runs.groupby(level=0).sum() / len(side)


def _blame(row: Any) -> str:
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
