"""Compare the step times and losses of two versions of a program to find the faster
version.

    python 08_compare_two_runs.py 'plain_*.csv' 'fixed_*.csv'

Each file is one run, with a row for each step and a column `seconds`. A column `loss`
is optional. Omit the warmup steps. Make at least five runs of each version. Alternate
the versions (plain, fixed, fixed, plain, ...), so that a machine that slows down
affects both. The steps of one run don't count as repeats, because a slowdown of the run
affects all its steps.

The verdict uses the mean over all steps because the mean covers the run's total time.
If the median step leads to a different verdict, the script also prints that verdict.
"""

import glob
import sys

import numpy as np
import pandas as pd

MIN_RUNS, SAME_LOSS = 5, 0.02


def runs_of(pattern):
    """Return each run of one version as a table."""
    tables = [pd.read_csv(name) for name in sorted(glob.glob(pattern))]
    return [table for table in tables if len(table) and "seconds" in table]


def interval(before, after, draws=10_000):
    """Return a 95% interval of the ratio before / after, from a permutation test.

    The test repeatedly assigns all runs to the two versions at random. Each time, it
    divides the total time of the runs that leave `before` by the total time of the runs
    that leave `after`. The interval contains the middle 95% of these ratios.
    """
    random, ratios = np.random.default_rng(1), []
    for _ in range(draws):
        first = random.permutation(len(before) + len(after))[: len(before)]
        entering = first[first >= len(before)] - len(before)
        leaving = np.setdiff1d(np.arange(len(before)), first)
        if len(leaving):
            ratios.append(before[leaving].sum() / after[entering].sum())
    return np.quantile(ratios, [0.025, 0.975])


def speed_up(before, after, how):
    """Return the speed-up, the interval ends and the verdict. `how` (mean or median)
    summarizes each run.
    """
    sides = [
        np.array([run["seconds"].agg(how) for run in runs]) for runs in (before, after)
    ]
    low, high = interval(*sides)
    verdict = "faster" if low > 1 else "slower" if high < 1 else "inconclusive"
    return sides[0].mean() / sides[1].mean(), low, high, verdict


def judge_times(before, after):
    """Return a line with the verdict. If the median step leads to a different result,
    add a second line.
    """
    if min(len(before), len(after)) < MIN_RUNS:
        runs = f"{len(before)} and {len(after)} runs"
        return f"inconclusive: {runs}, but {MIN_RUNS} of each are needed"
    ratio, low, high, verdict = speed_up(before, after, "mean")
    line = (
        f"{verdict}: speed-up {ratio:.4f} times (95% interval {low:.4f} to {high:.4f})"
    )
    median, *_, by_median = speed_up(before, after, "median")
    if low <= median <= high and by_median == verdict:
        return line
    by = f"{by_median}, {median:.4f} times"
    return f"{line}\nmedian step: {by}, but the whole run decides"


def ends_of(runs):
    """Return one row per run: the loss of the first step, and the mean loss of the last
    quarter.
    """
    return np.array(
        [
            [run["loss"].iloc[0], run["loss"].tail(max(1, len(run) // 4)).mean()]
            for run in runs
        ]
    )


def judge_losses(before, after):
    """Return a line on whether both versions learn alike, at the start and in the last
    quarter.
    """
    if not all("loss" in run for run in (*before, *after)):
        return "losses: none in the files, so they can't show whether the model trains"
    if not all(np.isfinite(run["loss"]).all() for run in (*before, *after)):
        return "losses: some losses aren't finite"
    sides = [ends_of(runs) for runs in (before, after)]
    (first_before, last_before), (first_after, last_after) = (
        np.median(side, axis=0) for side in sides
    )
    if last_before >= first_before:
        return (
            "losses: inconclusive, because the loss doesn't fall even before the "
            f"change: {first_before:.4g} to {last_before:.4g}"
        )
    # Divide by the fall in the loss, because equal losses prove little until the loss
    # falls.
    gap = max(abs(first_after - first_before), abs(last_after - last_before)) / (
        first_before - last_before
    )
    chance = max(np.ptp(side, axis=0).max() for side in sides) / (
        first_before - last_before
    )
    unlike = (
        "inconclusive: repeats of one version differ by more"
        if gap <= chance
        else "NOT alike"
    )
    verdict = "alike" if gap <= SAME_LOSS else unlike
    return (
        f"losses: {last_before:.4g} and {last_after:.4g} at the end, {100 * gap:.1f}% "
        f"of the fall apart: {verdict}"
    )


if __name__ == "__main__":
    sides = [runs_of(pattern) for pattern in sys.argv[1:3]]
    if len(sides) < 2 or not all(sides):
        sys.exit(
            f"At least one version has no runs with a column `seconds`.\n{__doc__}"
        )
    print(judge_times(*sides))
    print(judge_losses(*sides))
