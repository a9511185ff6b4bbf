"""Is it slower than before? Compare the step times of two folders of runs.

    python 13_slower.py before after
    python 13_slower.py before after --limit 3 --skip 10

Each file of a folder is one run: CSV with a column `seconds`, or JSON lines with such a key, a line for each step.
Make five runs of each side or more, in turns and on one node; steps of one run are no repeats.
The exit code is 1 where the slow-down is above the limit (percent) beyond doubt.
"""

import argparse
import pathlib
import sys

import numpy as np
import pandas as pd

LEAST = 5


def run_seconds(file, skip):
    """A run's time: the median of its steps behind the first ones."""
    table = pd.read_json(file, lines=True) if file.suffix in (".jsonl", ".json") else pd.read_csv(file)
    if "seconds" not in table or len(table) <= skip:
        sys.exit(f"{file}: no column `seconds` with more than {skip} steps")
    return table["seconds"].iloc[skip:].median()


def runs_of(folder, skip):
    files = sorted(path for path in pathlib.Path(folder).iterdir() if path.suffix in (".csv", ".jsonl", ".json"))
    return np.array([run_seconds(path, skip) for path in files])


def interval(new, old, draws=10_000):
    """95 % interval of new / old: draw both sides anew, with replacement, and take the ratio of the medians."""
    random = np.random.default_rng(1)
    medians = [np.median(random.choice(side, (draws, len(side))), axis=1) for side in (new, old)]
    return np.quantile(medians[0] / medians[1], [0.025, 0.975])


def word_for(low, high, limit):
    """The verdict of an interval; `limit` is a fraction."""
    if low > 1:
        return "slower" if low > 1 + limit else "slower, but perhaps less than the limit"
    if high < 1:
        return "faster"
    return "can't tell: record more runs" if high > 1 + limit else "no difference above the limit"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--limit", type=float, default=5, help="slow-down that is let through, in percent")
    parser.add_argument("--skip", type=int, default=3, help="steps at the beginning that are longer")
    options = parser.parse_args()
    old, new = (runs_of(folder, options.skip) for folder in (options.before, options.after))
    if min(len(old), len(new)) < LEAST:
        print(f"can't tell: {len(old)} and {len(new)} runs, {LEAST} of each are needed")
        return 0
    low, high = interval(new, old)
    print(f"{np.median(old):.6f} s a step before, {np.median(new):.6f} s after")
    print(f"ratio {np.median(new) / np.median(old):.4f}, 95 % interval {low:.4f} to {high:.4f}")
    print(word_for(low, high, options.limit / 100))
    return int(low > 1 + options.limit / 100)


if __name__ == "__main__":
    sys.exit(main())
