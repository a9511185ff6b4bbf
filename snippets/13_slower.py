"""Compare the step times of two folders of runs to detect a slowdown.

    python 13_slower.py before after --limit 3 --skip 10 --paired

Each file in a folder or its subfolders is one run, with a line for each step. A CSV
file needs a column `seconds`. JSON lines need the key `seconds` or the parts of a step,
as 14_instrument_me.py writes them. If there are several ranks, only rank 0 counts. Make
at least five runs of each version on one node, because the steps of one run don't count
as repeats. A run's time is the mean over all steps after the skipped steps.

--paired compares files with the same name, such as before/run1/... and after/run1/...,
so that a temporary load cancels out. For each pair, choose at random which version runs
first, for example with `for side in $(shuf -e before after)`. Otherwise, a growing load
always slows down the same version.

The exit code is 1 if the slowdown certainly exceeds the limit (in percent), 2 for an
invalid argument or file, and 3 for a bug in this script.
"""

import argparse
import json
import pathlib
import re
import sys
import traceback

import numpy as np
import pandas as pd

MIN_RUNS = 5


def table_of(file):
    """Return one row per step. If the job was killed, the last line may be cut."""
    if file.suffix == ".csv":
        return pd.read_csv(file)
    *lines, last = file.read_text().splitlines() or [""]
    return pd.DataFrame(
        [json.loads(line) for line in lines + [last] * last.endswith("}")]
    )


def run_seconds(file, skip):
    """Return the mean over all steps of a run after the first `skip` steps."""
    try:
        table = table_of(file)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if "seconds" not in table and {"rank", "step"} < set(table):
        table["seconds"] = table.drop(
            columns={"rank", "step", "samples"} & set(table)
        ).sum(axis=1)
    if "seconds" not in table or len(table) <= skip:
        raise ValueError(
            f"{file} must contain a column `seconds` with more than {skip} steps."
        )
    return table["seconds"].iloc[skip:].mean()


def runs_of(folder, skip):
    """Return the mean step time of each run, by the run's name in the folder."""
    files = sorted(
        path
        for path in pathlib.Path(folder).rglob("*")
        if path.suffix in (".csv", ".jsonl", ".json")
    )
    files = [path for path in files if not re.search(r"rank[1-9]", path.name)]
    return pd.Series(
        {str(path.relative_to(folder)): run_seconds(path, skip) for path in files},
        dtype=float,
    )


def interval(new, old, paired, draws=10_000):
    """Return a 95% interval of the ratio new / old from a permutation test (94% for
    five paired runs).

    The test repeatedly assigns all runs to the two versions at random, or swaps random
    pairs. Each time, it divides the total time of the runs that leave `new` by the
    total time of the runs that leave `old`. The interval contains the middle 95% of
    these ratios.
    """
    random, ratios = np.random.default_rng(1), []
    for _ in range(draws):
        if paired:
            leaving = entering = np.flatnonzero(random.integers(0, 2, len(new)))
        else:
            first = random.permutation(len(new) + len(old))[: len(new)]
            entering = first[first >= len(new)] - len(new)
            leaving = np.setdiff1d(np.arange(len(new)), first)
        if len(leaving):
            ratios.append(new[leaving].sum() / old[entering].sum())
    return np.quantile(ratios, [0.025, 0.975])


def word_for(low, high, limit):
    """Return the verdict for an interval. `limit` is a fraction."""
    if low > 1:
        return (
            "slower" if low > 1 + limit else "slower, but perhaps less than the limit"
        )
    if high < 1:
        return "faster"
    return (
        "inconclusive: record more runs"
        if high > 1 + limit
        else "no difference above the limit"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument(
        "--limit",
        type=float,
        default=5,
        help="accept a slowdown up to this limit, in percent",
    )
    parser.add_argument(
        "--skip", type=int, default=3, help="leave out this many warmup steps"
    )
    parser.add_argument(
        "--paired", action="store_true", help="compare runs with the same name"
    )
    options = parser.parse_args()
    old, new = (
        runs_of(folder, options.skip) for folder in (options.before, options.after)
    )
    if min(len(old), len(new)) < MIN_RUNS:
        print(
            f"inconclusive: {len(old)} and {len(new)} runs, but {MIN_RUNS} of each are "
            "needed"
        )
        return 0
    if options.paired and list(old.index) != list(new.index):
        raise ValueError("Paired runs must have the same file names in both folders.")
    low, high = interval(new.to_numpy(), old.to_numpy(), options.paired)
    print(f"mean step: {old.mean():.6f} s before, {new.mean():.6f} s after")
    print(f"ratio {new.mean() / old.mean():.4f}, 95% interval {low:.4f} to {high:.4f}")
    print(word_for(low, high, options.limit / 100))
    return int(low > 1 + options.limit / 100)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except Exception:
        traceback.print_exc()
        sys.exit(3)
