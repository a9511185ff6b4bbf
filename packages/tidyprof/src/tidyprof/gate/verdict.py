"""Compare two versions, and find the parts and kernels that changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.gate.intervals import CONFIDENCE, LEAST_REPEATS, Ratio, differs, ratio_of_totals
from tidyprof.gate.runs import NOTHING, RunTimes

PART_COLUMNS = ("part", "base_ns", "new_ns", "difference_ns", "confident")
KERNEL_COLUMNS = (
    "kernel",
    "base_calls",
    "new_calls",
    "base_ns",
    "new_ns",
    "difference_ns",
    "blame",
    "full_name",
)

SMALL = 0.1
"""The minimum change of a part that may be to blame, as a share of the step's change."""

DEFAULT_LIMIT = 0.05
"""The largest slowdown that the gate allows by default, as a fraction."""

SAME_WORK = 0.05
"""The largest relative difference in the number of steps or samples between runs that did the same
work.
"""

INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Verdict:
    """The result of comparing the runs of two versions. In each pair of values, the base version
    comes first.

    - paired: whether runs with the same name were compared with each other.
    - word: the verdict, which is slower, faster, no difference or inconclusive.
    - fails: whether the gate fails.
    - reason: the reason for the verdict, as a sentence.
    - ratio: the new value divided by the base value, or None if there are too few runs or the runs
      did different work.
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
    parts: pd.DataFrame
    job: pd.DataFrame
    kernels: pd.DataFrame

    @property
    def metric(self) -> str:
        """The metric that was judged, one of `tidyprof.gate.metrics.METRICS`."""
        return self.base[0].metric

    @property
    def values(self) -> list[list[float]]:
        """The value of each run in ns."""
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
    if paired:
        base, new = _pairs(base, new)
    ratio, word = None, INCONCLUSIVE
    reason = _other_work(base, new) or _too_few(base, new)
    if not reason:
        ratio = ratio_of_totals([run.value for run in new], [run.value for run in base], paired)
        word, reason = _decided(ratio, limit, paired)
    known = all(len(run.job) for run in (*base, *new))
    job = [[run.job if known else NOTHING for run in side] for side in (base, new)]
    parts = [[run.parts for run in side] for side in (base, new)]
    return Verdict(
        base,
        new,
        limit,
        paired,
        word,
        ratio is not None and ratio.low > 1 + limit,
        reason,
        ratio,
        parts_to_blame(*parts, paired, known=ratio is not None),
        parts_to_blame(*job, paired, known=ratio is not None),
        kernels_to_blame(base, new),
    )


def _pairs(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> list[list[RunTimes]]:
    sides = [{Path(run.path).name: run for run in side} for side in (base, new)]
    if lonely := sorted(sides[0].keys() ^ sides[1].keys()):
        raise ValueError(f"only one version has a run {lonely[0]}, so the runs aren't paired")
    return [[side[name] for name in sides[0]] for side in sides]


def _decided(ratio: Ratio, limit: float, paired: bool) -> tuple[str, str]:
    """Return the verdict for a ratio, and its reason."""
    percent = f"the limit of {100 * limit:g}%"
    if ratio.low > 1 + limit:
        return "slower", f"Even the low end of the interval exceeds {percent}."
    if ratio.low > 1:
        return "slower", f"The gate passes, because the interval extends below {percent}."
    if ratio.high < 1:
        return "faster", "The whole interval is below 0%."
    if ratio.high <= 1 + limit:
        return "no difference", f"The interval excludes an increase above {percent}."
    more = f"{'Record' if paired else 'Use --paired, or record'} more and longer runs."
    return INCONCLUSIVE, f"The interval contains both 0% and {percent}. {more}"


def _too_few(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> str:
    """Return a sentence if a version has too few runs, otherwise an empty string."""
    if (runs := min(len(base), len(new))) >= LEAST_REPEATS:
        return ""
    least = f"Record at least {LEAST_REPEATS} runs of each version, alternating, and use --paired."
    return f"one version has only {runs} run{'s' * (runs > 1)}. {least}"


def _other_work(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> str:
    """Return a sentence if the work of any two runs differs by more than SAME_WORK, otherwise an
    empty string. If a run doesn't report some kind of work, that work isn't compared.
    """
    work = pd.DataFrame([run.work for run in (*base, *new)])
    least, most = work.min(skipna=False), work.max(skipna=False)
    for name in work.columns[most > (1 + SAME_WORK) * least]:
        found = f"the runs did different work, {least[name]:,.10g} to {most[name]:,.10g} {name}."
        return f"{found} Record runs with the same work."
    return ""


def parts_to_blame(
    base: Sequence[pd.Series], new: Sequence[pd.Series], paired: bool, *, known: bool = True
) -> pd.DataFrame:
    """Return the parts in PART_COLUMNS, with the largest difference first.

    Times are in ns. The values are means over the runs, so the parts add up. The column confident
    is True if a difference is beyond doubt and large enough to matter (see `least_difference`). A
    Bonferroni correction limits the total error of all parts to 5%. Therefore, if nothing changed,
    at most 5% of comparisons contain a confident part.

    - base, new: the time in ns of each part, for each run.
    - known: whether the runs can be compared. Otherwise, no part is confident.
    """
    sides = [pd.concat(side, axis=1) for side in (base, new)]
    names = sides[0].index.union(sides[1].index, sort=False)
    sides = [side.reindex(names).fillna(0) for side in sides]
    means = dict(zip(("base_ns", "new_ns"), (side.mean(axis=1) for side in sides), strict=True))
    table = pd.DataFrame(means).assign(difference_ns=means["new_ns"] - means["base_ns"])
    tested = (table[["base_ns", "new_ns"]] != 0).any(axis=1).sum()
    error = (1 - CONFIDENCE) / max(1, int(tested))
    large = table["difference_ns"].abs() >= least_difference([one.sum() for one in sides], paired)
    table["confident"] = [
        known
        and min(len(base), len(new)) >= LEAST_REPEATS
        and large[name]
        and differs(sides[1].loc[name], sides[0].loc[name], paired, error)
        for name in names
    ]
    return _largest_first(table.rename_axis("part").reset_index()[list(PART_COLUMNS)])


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

    - blame: the kind of change, which is new, gone, more calls, fewer calls, longer or shorter. The
      number of calls is to blame if, at the old time per call, it explains most of the difference.
    - kernel: the short kernel name.
    - full_name: the tool's name for the kernel, preferably from the new version.
    """
    sides = [
        pd.concat([run.kernels[["calls", "total_ns"]] for run in side]).groupby(level=0).sum()
        / len(side)
        for side in (base, new)
    ]
    table = pd.concat(sides, axis=1).fillna(0).astype(float)
    table.columns = pd.Index(["base_calls", "base_ns", "new_calls", "new_ns"])
    table["difference_ns"] = table["new_ns"] - table["base_ns"]
    base_calls, new_calls = table["base_calls"], table["new_calls"]
    by_calls = (new_calls - base_calls) * (table["base_ns"] / base_calls).where(base_calls > 0, 0)
    by_length = table["difference_ns"] - by_calls
    table["blame"] = np.select(
        [base_calls == 0, new_calls == 0, by_calls > abs(by_length), -by_calls > abs(by_length)],
        ["new", "gone", "more calls", "fewer calls"],
        np.where(by_length > 0, "longer", "shorter"),
    )
    names = pd.concat([run.kernels["full_name"] for run in (*new, *base)])
    table["full_name"] = names.groupby(level=0).first()
    return _largest_first(table.rename_axis("kernel").reset_index()[list(KERNEL_COLUMNS)])


def _largest_first(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(
        "difference_ns", key=abs, ascending=False, kind="stable", ignore_index=True
    )
