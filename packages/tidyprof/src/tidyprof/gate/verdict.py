"""Slower or not, beyond doubt, and where the time went: by part of the step, and by kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tidyprof.gate.runs import RunTimes

RESAMPLES = 10_000
CONFIDENCE = 0.95
SEED = 20_260_821
"""A fixed seed: the same repeats give the same interval on every machine."""

LEAST_REPEATS = 5
"""With fewer values a resampled median is nearly always one of the extremes, and the interval means
nothing. With so many turns the widest interval, that of all their ratios, has a level of 93.8 %;
from six turns on it has CONFIDENCE.
"""


class Ratio(NamedTuple):
    """A ratio with the ends of its interval, and the level of the interval: the share of cases (0
    to 1) in which it holds the truth.
    """

    ratio: float
    low: float
    high: float
    level: float


def ratio_of_medians(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Median of `over` by median of `under`, two sets of repeats in one unit, with a bootstrap
    interval.

    Percentile bootstrap: each set is resampled with replacement RESAMPLES times, independently, and
    the interval holds the middle 95 % of the ratios of their medians (B. Efron, R.
    Tibshirani: An Introduction to the Bootstrap, 1993, chapter 13; for ratios of run times T.
    Kalibera, R. Jones: Rigorous Benchmarking in Reasonable Time, ISMM 2013,
    doi:10.1145/2464157.2464160). Its level is CONFIDENCE by design, not exactly; docs/gate.md shows
    how often it holds the ratio 1 of equal sides. Repeats must be independent: runs, not the steps
    of one run.

    Raises ValueError for fewer than LEAST_REPEATS values, or for a value that is no positive
    number.
    """
    sides = _times(over, under)
    drawn = np.divide(*_drawn_medians(*sides))
    return Ratio(
        float(np.median(sides[0]) / np.median(sides[1])), *_middle(drawn, CONFIDENCE), CONFIDENCE
    )


def ratio_of_turns(over: Sequence[float], under: Sequence[float]) -> Ratio:
    """Median of the ratios of all turns, with the exact interval of `median_interval`.

    Both values of a turn were measured one after the other, so a load that comes and goes is in
    both and cancels out in their ratio. The order within a turn has to be random: otherwise a load
    that only grows would always slow the second side. Errors as of `ratio_of_medians`; a ValueError
    also for sides of different length.
    """
    over, under = _times(over, under)
    if len(over) != len(under):
        raise ValueError(f"{len(over)} and {len(under)} repeats are no turns")
    ratios = over / under
    return Ratio(float(np.median(ratios)), *median_interval(ratios, CONFIDENCE))


def median_interval(values: Sequence[float], wanted: float) -> tuple[float, float, float]:
    """Both ends of the sign test's interval for the median, and its level, which may be below the
    level that is wanted.

    The median lies below the k smallest of n independent values, or above the k largest, exactly as
    often as a coin falls on one side fewer than k times of n, whatever the distribution (W. J.
    Conover: Practical Nonparametric Statistics, 3rd edition, 1999, sections 3.2 and 3.4). Of the
    intervals from the k-th smallest to the k-th largest value it is the narrowest whose level is at
    least `wanted`; where there is none, it is the widest, k = 1.
    """
    ordered, number = np.sort(values), len(values)
    levels = [
        1 - 2 * sum(comb(number, i) for i in range(k)) / 2**number
        for k in range(1, (number + 1) // 2 + 1)
    ]
    k = max(1, sum(level >= wanted for level in levels))
    return float(ordered[k - 1]), float(ordered[-k]), levels[k - 1]


def differs(
    one: Sequence[float], other: Sequence[float], in_turns: bool, level: float = CONFIDENCE
) -> bool:
    """Whether an interval of this level for the difference of two sets of repeats leaves 0 out.
    Values may be 0.

    In turns it is the interval of `median_interval`, else a bootstrap. False where there are too
    few repeats for this level: in turns if even the widest interval has a lower level, else if
    sides that are equal would be wholly apart by chance more often than the level allows.
    """
    sides = [np.asarray(values, dtype=float) for values in (one, other)]
    if in_turns:
        low, high, reached = median_interval(sides[0] - sides[1], level)
    else:
        low, high = _middle(np.subtract(*_drawn_medians(*sides)), level)
        reached = 1 - 2 / comb(len(one) + len(other), len(one))
    return reached >= level and (low > 0 or high < 0)


def _times(*sides: Sequence[float]) -> list[np.ndarray]:
    arrays = [np.asarray(values, dtype=float) for values in sides]
    for values in arrays:
        if values.ndim != 1 or len(values) < LEAST_REPEATS:
            raise ValueError(f"{len(values)} repeats; at least {LEAST_REPEATS} are needed")
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError("a time must be a positive number")
    return arrays


def _drawn_medians(*sides: np.ndarray) -> list[np.ndarray]:
    """Medians of RESAMPLES sets drawn from each side."""
    random = np.random.default_rng(SEED)
    return [np.median(random.choice(values, (RESAMPLES, len(values))), axis=1) for values in sides]


def _middle(drawn: np.ndarray, level: float) -> tuple[float, float]:
    """The ends of the middle part that holds this share of the values."""
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


PART_COLUMNS = ("part", "base_ns", "new_ns", "difference_ns", "sure")
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
"""A part whose difference is less than this share of the step's is not to blame, however sure it
is.
"""


def parts_to_blame(
    base: Sequence[RunTimes], new: Sequence[RunTimes], in_turns: bool
) -> pd.DataFrame:
    """The parts of a step in PART_COLUMNS: ns of one step, medians over the repeats. In turns,
    difference_ns is the median of the turns' differences.

    sure -- the interval of the difference leaves 0 out, at a level so high that any of the parts
            which take time is sure by chance in at most 5 % of cases (Bonferroni: the 5 % are
            shared among them); and the difference is large enough to matter, see
            `_least_difference`. Always False with fewer than LEAST_REPEATS runs on a side.
    """
    sides = [pd.concat([run.parts for run in side], axis=1) for side in (base, new)]
    names = sides[0].index.union(sides[1].index, sort=False)
    sides = [side.reindex(names).fillna(0) for side in sides]
    table = pd.DataFrame(
        {name: side.median(axis=1) for name, side in zip(("base_ns", "new_ns"), sides, strict=True)}
    )
    tested = (table != 0).any(axis=1)
    level = 1 - (1 - CONFIDENCE) / max(1, tested.sum())
    changes = sides[1].to_numpy() - sides[0].to_numpy() if in_turns else None
    table["difference_ns"] = (
        np.median(changes, axis=1) if in_turns else table["new_ns"] - table["base_ns"]
    )
    large = table["difference_ns"].abs() >= _least_difference(base, new, in_turns)
    enough = min(len(base), len(new)) >= LEAST_REPEATS
    table["sure"] = [
        enough
        and tested[name]
        and large[name]
        and differs(sides[1].loc[name], sides[0].loc[name], in_turns, level)
        for name in names
    ]
    return _largest_first(table.rename_axis("part").reset_index()[list(PART_COLUMNS)])


def repeats_for_parts(parts: pd.DataFrame, in_turns: bool) -> int:
    """How many repeats of each side it takes for any of these parts to be sure, see
    `parts_to_blame` and `differs`.
    """
    tested = int((parts[["base_ns", "new_ns"]] != 0).any(axis=1).sum())
    level = 1 - (1 - CONFIDENCE) / max(1, tested)
    repeats = LEAST_REPEATS
    while 1 - 2 / (2**repeats if in_turns else comb(2 * repeats, repeats)) < level:
        repeats += 1
    return repeats


def _least_difference(base: Sequence[RunTimes], new: Sequence[RunTimes], in_turns: bool) -> float:
    """The difference (ns) that a part must at least have to be blamed: SMALL of the step's
    difference, and no less than the noise.

    Noise is the median distance of a run's step, or of the difference of a turn's two steps, from
    their median.
    """
    sides = [np.array([run.step_ns for run in side]) for side in (base, new)]
    changes = [sides[1] - sides[0]] if in_turns else sides
    medians = [np.median(values) for values in changes]
    noise = max(
        np.median(np.abs(values - median)) for values, median in zip(changes, medians, strict=True)
    )
    return max(SMALL * abs(medians[0] if in_turns else medians[1] - medians[0]), noise)


def kernels_to_blame(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> pd.DataFrame:
    """The kernels in KERNEL_COLUMNS: calls and ns of one step, medians over the repeats.

    more_calls_ns -- the part of the difference that comes from more (or fewer) calls at the old
                     duration.
    blame         -- new, gone, more calls, fewer calls, longer or shorter.
    kernel        -- the short name; full_name -- the tool's name, that of the new side if there is
                     one.
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
    table["full_name"] = (
        pd.concat([run.kernels["full_name"] for run in (*new, *base)]).groupby(level=0).first()
    )
    return _largest_first(table.rename_axis("kernel").reset_index()[list(KERNEL_COLUMNS)])


def _typical(side: Sequence[RunTimes]) -> pd.DataFrame:
    """Calls and total_ns by kernel, medians over the runs; a run without the kernel counts as 0."""
    columns = {
        name: pd.concat([run.kernels[name] for run in side], axis=1)
        for name in ("calls", "total_ns")
    }
    return pd.DataFrame({name: values.fillna(0).median(axis=1) for name, values in columns.items()})


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


DEFAULT_LIMIT = 0.05
"""Slow-down that the gate lets through, as a fraction."""

SAME_WORK = DEFAULT_LIMIT
"""Numbers of steps or samples that differ by more than this fraction are different work, however
large a slow-down is let through.
"""


@dataclass(frozen=True)
class Verdict:
    """`word` is slower, faster, no difference or can't tell; `fails` says whether the gate closes,
    `reason` why.

    measure         -- what was judged, one of `tidyprof.gate.runs.MEASURES`.
    times_ns        -- a step's time in each run of base and of new. ratio -- new by base, None
                       without enough repeats. in_turns -- whether it is the ratio of runs of the
                       same name, else of the medians.
    ignored         -- files of the runs that were not read, each with its run and why.
    same_names      -- whether both sides have several runs, with the same names.
    least_ns        -- the least difference that can be to blame, see `_least_difference`.
    parts, kernels  -- what to blame, the largest difference first: tables of `parts_to_blame` and
                       `kernels_to_blame`.
    """

    word: str
    fails: bool
    reason: str
    measure: str
    limit: float
    times_ns: tuple[tuple[float, ...], tuple[float, ...]]
    in_turns: bool
    ratio: Ratio | None
    parts: pd.DataFrame
    kernels: pd.DataFrame
    origins: tuple[str, ...]
    ignored: tuple[str, ...]
    same_names: bool
    least_ns: float

    @property
    def base_ns(self) -> float:
        """Median over the repeats of a step's time before."""
        return float(np.median(self.times_ns[0]))

    @property
    def new_ns(self) -> float:
        """The same now."""
        return float(np.median(self.times_ns[1]))


def judge(
    base: Sequence[RunTimes],
    new: Sequence[RunTimes],
    limit: float = DEFAULT_LIMIT,
    in_turns: bool = False,
) -> Verdict:
    """Compare the repeats of two sides. The gate closes where even the low end of the interval is
    above the limit.

    in_turns -- runs of the same name were made one after the other, and are compared with each
    other. The verdict is "can't tell" for sides that did different work: different numbers of steps
    or samples (SAME_WORK), or steps whose mean contradicts their median. Raises ValueError for a
    side without runs, for runs of which some were recorded with a profiler and some without, and in
    turns for sides whose runs don't have the same names.

    >>> from tidyprof.gate.runs import run_times
    >>> once = [run_times("trace.json.gz")]
    >>> judge(once, once).word
    "can't tell"
    """
    if not base or not new:
        raise ValueError("each side needs a run")
    if len({run.profiled for run in (*base, *new)}) > 1:
        raise ValueError(
            "some runs were recorded with a profiler, which takes time, and some without"
        )
    if in_turns:
        base, new = _turns(base, new)
    times = tuple(tuple(run.step_ns for run in side) for side in (base, new))
    compare = ratio_of_turns if in_turns else ratio_of_medians
    ratio = compare(times[1], times[0]) if min(map(len, times)) >= LEAST_REPEATS else None
    word, fails, reason = _word(ratio, limit, times)
    # Whatever the interval says, it says nothing of sides that can't be compared.
    doubt = _other_work(base, new, limit)
    doubt = doubt or _against_the_mean(base, new, ratio, word, limit, compare)
    if doubt:
        word, fails, reason = "can't tell", False, doubt
    return Verdict(
        word,
        fails,
        reason,
        base[0].measure,
        limit,
        times,
        in_turns,
        ratio,
        parts_to_blame(base, new, in_turns),
        kernels_to_blame(base, new),
        tuple(dict.fromkeys(str(run.origin) for run in (*base, *new))),
        tuple(f"{run.path}: {line}" for run in (*base, *new) for line in run.ignored),
        len(base) > 1 and _by_name(base).keys() == _by_name(new).keys(),
        _least_difference(base, new, in_turns),
    )


def _by_name(side: Sequence[RunTimes]) -> dict[str, RunTimes]:
    return {Path(run.path).name: run for run in side}


def _turns(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> list[list[RunTimes]]:
    sides = [_by_name(side) for side in (base, new)]
    if lonely := sorted(sides[0].keys() ^ sides[1].keys()):
        raise ValueError(
            f"runs in turns need the same names on both sides, and {lonely[0]} is on one side only"
        )
    return [[side[name] for name in sides[0]] for side in sides]


def _word(
    ratio: Ratio | None, limit: float, times: Sequence[Sequence[float]]
) -> tuple[str, bool, str]:
    if ratio is None:
        repeats = min(map(len, times))
        return (
            "can't tell",
            False,
            f"{repeats} repeat{'s' * (repeats > 1)} on one side; record {LEAST_REPEATS} or more of"
            " each",
        )
    if ratio.low > 1 + limit:
        return (
            "slower",
            True,
            f"even the low end of the interval is above the limit of {100 * limit:g} %",
        )
    if ratio.low > 1:
        return "slower", False, f"but it may be less than the limit of {100 * limit:g} %"
    if ratio.high < 1:
        return "faster", False, "all of the interval lies below 0 %"
    if ratio.high > 1 + limit:
        low, high = np.quantile(times[0], [0.25, 0.75]) / np.median(times[0]) - 1
        found = f"the interval reaches from below 0 % to above the limit of {100 * limit:g} %"
        return (
            "can't tell",
            False,
            f"{found}; half of the runs before lie outside of {_signed(low)} to {_signed(high)}",
        )
    return "no difference", False, f"a slow-down above the limit of {100 * limit:g} % is ruled out"


def _other_work(base: Sequence[RunTimes], new: Sequence[RunTimes], limit: float) -> str:
    """The work of a run that differs by more than the limit or SAME_WORK, and by how much, in
    words; "" if none does.
    """
    counts = [pd.DataFrame([dict(run.work) for run in side]) for side in (base, new)]
    for name in counts[0].columns.intersection(counts[1].columns):
        before, now = (float(side[name].median(skipna=False)) for side in counts)
        if abs(now - before) > min(limit, SAME_WORK) * before:
            share = f" ({_signed(now / before - 1)})" if before else ""
            found = (
                f"the runs did other work: {before:,.10g} {name} each before and {now:,.10g}"
                f" now{share}"
            )
            return f"{found}; make runs of the same work"
    return ""


def _against_the_mean(
    base: Sequence[RunTimes],
    new: Sequence[RunTimes],
    ratio: Ratio | None,
    word: str,
    limit: float,
    compare: Callable[[Sequence[float], Sequence[float]], Ratio],
) -> str:
    """How the whole time of a run contradicts its typical step beyond doubt, in words; "" if it
    doesn't.

    It does where all steps together gained or lost less than half of what the typical step would
    make of them, or more than the limit where the typical step shows no difference.
    """
    means = [[run.mean_ns for run in side] for side in (base, new)]
    if ratio is None or word == "can't tell" or None in (*means[0], *means[1]):
        return ""
    whole = compare(means[1], means[0])
    half = (ratio.ratio - 1) * np.median([run.step_ns / run.mean_ns for run in base]) / 2
    most = {"faster": 1 + half, "slower": np.inf}.get(word, 1 + limit)
    least = {"faster": 0, "slower": 1 + half}.get(word, 1 - limit)
    if least <= whole.high and whole.low <= most:
        return ""
    before, now = (np.median(side) / 1e6 for side in means)
    found = (
        f"the whole run says otherwise: all but the first took {before:,.2f} ms on average and take"
        f" {now:,.2f} ms"
    )
    return (
        f"{found} ({_signed(whole.ratio - 1)}), so the typical one is not what they spend their"
        " time in"
    )


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+,.1f} %"
