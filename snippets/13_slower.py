"""Is it slower than before? Compare the step times of two folders of runs.

    python 13_slower.py before after
    python 13_slower.py before after --limit 3 --skip 10 --in-turns

Each file in a folder, or in folders in it, is one run, with a line for each step: CSV with a column `seconds`, or JSON
lines with such a key or with the parts of a step as 14_instrument_me.py writes them (of several ranks rank 0).
Make five runs of each side or more, in turns and on one node; steps of one run are no repeats. --in-turns compares
files of the same name, before/run1/... with after/run1/..., so that a load that comes and goes falls out.
The exit code is 1 where the slow-down is above the limit (percent) beyond doubt.
"""

import argparse
import pathlib
import re
import sys

import numpy as np
import pandas as pd

LEAST = 5


def run_seconds(file, skip):
    """A run's time: the median of its steps behind the first ones."""
    table = pd.read_json(file, lines=True) if file.suffix in (".jsonl", ".json") else pd.read_csv(file)
    if "seconds" not in table and {"rank", "step"} < set(table):
        table["seconds"] = table.drop(columns=["rank", "step"]).sum(axis=1)
    if "seconds" not in table or len(table) <= skip:
        sys.exit(f"{file}: no column `seconds` with more than {skip} steps")
    return table["seconds"].iloc[skip:].median()


def runs_of(folder, skip):
    """Seconds of each run, by its name in the folder."""
    files = sorted(path for path in pathlib.Path(folder).rglob("*") if path.suffix in (".csv", ".jsonl", ".json"))
    files = [path for path in files if not re.search(r"rank[1-9]", path.name)]
    return pd.Series({str(path.relative_to(folder)): run_seconds(path, skip) for path in files}, dtype=float)


def interval(new, old, in_turns, draws=10_000):
    """95 % interval of new / old: draw with replacement, the turns or else both sides, and take medians."""
    random = np.random.default_rng(1)
    sides = [new / old] if in_turns else [new, old]
    medians = [np.median(random.choice(side, (draws, len(side))), axis=1) for side in sides]
    return np.quantile(medians[0] if in_turns else medians[0] / medians[1], [0.025, 0.975])


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
    parser.add_argument("--in-turns", action="store_true", help="compare runs of the same name")
    options = parser.parse_args()
    old, new = (runs_of(folder, options.skip) for folder in (options.before, options.after))
    if min(len(old), len(new)) < LEAST:
        print(f"can't tell: {len(old)} and {len(new)} runs, {LEAST} of each are needed")
        return 0
    if options.in_turns and list(old.index) != list(new.index):
        sys.exit("runs in turns need the same names on both sides")
    low, high = interval(new, old, options.in_turns)
    ratio = np.median(new / old) if options.in_turns else np.median(new) / np.median(old)
    print(f"{np.median(old):.6f} s a step before, {np.median(new):.6f} s after")
    print(f"ratio {ratio:.4f}, 95 % interval {low:.4f} to {high:.4f}")
    print(word_for(low, high, options.limit / 100))
    return int(low > 1 + options.limit / 100)


if __name__ == "__main__":
    sys.exit(main())
