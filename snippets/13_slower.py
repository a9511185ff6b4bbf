"""Is it slower than before? Compare the step times of two folders of runs.

    python 13_slower.py before after --limit 3 --skip 10 --in-turns

Each file in a folder, or in folders in it, is one run, with a line for each step: CSV with a column
`seconds`, or JSON lines with such a key or with the parts of a step as 14_instrument_me.py writes
them (of several ranks rank 0). Make five runs of each side or more, on one node; steps of one run
are no repeats. --in-turns compares files of the same name, before/run1/... with after/run1/..., so
that a load that comes and goes falls out. Draw in each turn who is first, `for side in $(shuf -e
before after)`: a load that only grows would else always hit the same side. The exit code is 1 where
the slow-down is above the limit (percent) beyond doubt, 2 after a mistake, 3 after a bug.
"""

import argparse
import json
import math
import pathlib
import re
import sys
import traceback

import numpy as np
import pandas as pd

MIN_RUNS = 5


def table_of(file):
    """A row for each step; a last line may be cut, where the job was killed while it wrote."""
    if file.suffix == ".csv":
        return pd.read_csv(file)
    *lines, last = file.read_text().splitlines() or [""]
    return pd.DataFrame([json.loads(line) for line in lines + [last] * last.endswith("}")])


def run_seconds(file, skip):
    """A run's time: the median of its steps behind the first ones."""
    try:
        table = table_of(file)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if "seconds" not in table and {"rank", "step"} < set(table):
        table["seconds"] = table.drop(columns={"rank", "step", "samples"} & set(table)).sum(axis=1)
    if "seconds" not in table or len(table) <= skip:
        raise ValueError(f"{file}: no column `seconds` with more than {skip} steps")
    return table["seconds"].iloc[skip:].median()


def runs_of(folder, skip):
    """Seconds of each run, by its name in the folder."""
    files = sorted(
        path
        for path in pathlib.Path(folder).rglob("*")
        if path.suffix in (".csv", ".jsonl", ".json")
    )
    files = [path for path in files if not re.search(r"rank[1-9]", path.name)]
    return pd.Series(
        {str(path.relative_to(folder)): run_seconds(path, skip) for path in files}, dtype=float
    )


def interval(new, old, in_turns, draws=10_000):
    """Interval of new / old, and in which share of cases it holds the truth.

    In turns from the k-th smallest ratio to the k-th largest: outside as often as fewer than k
    coins fall on one side. Else draw both sides anew, with replacement, and take medians.
    """
    if in_turns:
        ratios, turns = np.sort(new / old), len(new)
        shares = [
            1 - 2 * sum(math.comb(turns, i) for i in range(k)) / 2**turns
            for k in range(1, turns // 2 + 1)
        ]
        k = max(1, sum(share >= 0.95 for share in shares))
        return ratios[k - 1], ratios[-k], shares[k - 1]
    random = np.random.default_rng(1)
    medians = [np.median(random.choice(side, (draws, len(side))), axis=1) for side in (new, old)]
    return *np.quantile(medians[0] / medians[1], [0.025, 0.975]), 0.95


def word_for(low, high, limit):
    """The verdict of an interval; `limit` is a fraction."""
    if low > 1:
        return "slower" if low > 1 + limit else "slower, but perhaps less than the limit"
    if high < 1:
        return "faster"
    return "can't tell: record more runs" if high > 1 + limit else "no difference above the limit"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument(
        "--limit", type=float, default=5, help="slow-down that is let through, in percent"
    )
    parser.add_argument(
        "--skip", type=int, default=3, help="steps at the beginning that are longer"
    )
    parser.add_argument("--in-turns", action="store_true", help="compare runs of the same name")
    options = parser.parse_args()
    old, new = (runs_of(folder, options.skip) for folder in (options.before, options.after))
    if min(len(old), len(new)) < MIN_RUNS:
        print(f"can't tell: {len(old)} and {len(new)} runs, {MIN_RUNS} of each are needed")
        return 0
    if options.in_turns and list(old.index) != list(new.index):
        raise ValueError("runs in turns need the same names on both sides")
    low, high, share = interval(new.to_numpy(), old.to_numpy(), options.in_turns)
    ratio = np.median(new / old) if options.in_turns else np.median(new) / np.median(old)
    print(f"{np.median(old):.6f} s a step before, {np.median(new):.6f} s after")
    print(f"ratio {ratio:.4f}, {100 * share:.1f} % interval {low:.4f} to {high:.4f}")
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
