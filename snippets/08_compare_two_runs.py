"""Faster, or can't tell? Compare the repeats of two versions of a program by their step times and
losses.

    python 08_compare_two_runs.py 'plain_*.csv' 'cured_*.csv'

Each file is one run: a row for each step, columns `seconds` and, if there is one, `loss`. Leave the
warm-up out. Make five runs of each version or more, in turn (plain, cured, cured, plain, ...), so
that a machine that gets slower hits both. The steps of one run are no repeats: they share the
machine's mood.
"""

import glob
import sys

import numpy as np
import pandas as pd

MIN_STEPS, SAME_LOSS = 5, 0.02


def runs_of(pattern):
    """Every run of one version, as a table each."""
    tables = [pd.read_csv(name) for name in sorted(glob.glob(pattern))]
    return [table for table in tables if len(table) and "seconds" in table]


def interval(before, after, draws=10_000):
    """95 % interval of before / after: draw both sides anew, with replacement, and take the ratio
    of the medians.
    """
    random = np.random.default_rng(1)
    medians = [
        np.median(random.choice(side, (draws, len(side))), axis=1) for side in (before, after)
    ]
    return np.quantile(medians[0] / medians[1], [0.025, 0.975])


def judge_times(before, after):
    """One line: faster, slower, or why nobody can tell."""
    sides = [np.array([run["seconds"].median() for run in runs]) for runs in (before, after)]
    ratio = np.median(sides[0]) / np.median(sides[1])
    if min(map(len, sides)) < MIN_STEPS:
        return (
            f"can't tell: {len(sides[0])} and {len(sides[1])} runs, {MIN_STEPS} of each are needed"
            f" (ratio {ratio:.3f})"
        )
    low, high = interval(*sides)
    verdict = (
        "faster" if low > 1 else "slower" if high < 1 else "can't tell: the interval contains 1"
    )
    return f"speed-up {ratio:.4f} times (95 % interval {low:.4f} to {high:.4f}): {verdict}"


def ends_of(runs):
    """Loss of the first step, and mean over the last quarter of the steps: a row for each run."""
    return np.array(
        [[run["loss"].iloc[0], run["loss"].tail(max(1, len(run) // 4)).mean()] for run in runs]
    )


def judge_losses(before, after):
    """One line: whether both versions learn alike, at the beginning and in the last quarter."""
    if not all("loss" in run for run in (*before, *after)):
        return "losses: none in the files, so nobody knows whether it still trains"
    if not all(np.isfinite(run["loss"]).all() for run in (*before, *after)):
        return "losses: not all are finite"
    sides = [ends_of(runs) for runs in (before, after)]
    (first_before, last_before), (first_after, last_after) = (
        np.median(side, axis=0) for side in sides
    )
    if last_before >= first_before:
        return (
            f"losses: can't tell: even before the change it does not fall, {first_before:.4g} to"
            f" {last_before:.4g}"
        )
    # What separates the versions, against how far the loss fell: parity early, when nothing is
    # learnt, proves little.
    gap = max(abs(first_after - first_before), abs(last_after - last_before)) / (
        first_before - last_before
    )
    chance = max(np.ptp(side, axis=0).max() for side in sides) / (first_before - last_before)
    unlike = "can't tell: repeats of one version differ by more" if gap <= chance else "NOT alike"
    verdict = "alike" if gap <= SAME_LOSS else unlike
    return (
        f"losses: {last_before:.4g} and {last_after:.4g} at the end, {100 * gap:.1f} % of the fall"
        f" apart: {verdict}"
    )


if __name__ == "__main__":
    sides = [runs_of(pattern) for pattern in sys.argv[1:3]]
    if len(sides) < 2 or not all(sides):
        sys.exit(f"no runs with a column `seconds` on one side\n{__doc__}")
    print(judge_times(*sides))
    print(judge_losses(*sides))
