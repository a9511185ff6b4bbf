"""Print the totals from rocprof-sys as a table.

    python 03_wall_clock.py FOLDER [ROWS]

The script reads every wall_clock-*.json in the folder and prints the calls and ranges
with the largest total. If ROCPROFSYS_PROFILE = true, rocprof-sys writes one of these
files per process.

If the standard deviation is larger than the mean, the row contains several kinds of
calls. In that case, the column `slow` estimates how many calls took the maximum time.
The estimate assumes that each call took either the minimum or the maximum time.
"""

import json
import sys
from pathlib import Path

import pandas as pd


def table(file: Path) -> pd.DataFrame:
    """Return one row per node in one process's call tree, with times in seconds."""
    ranks = json.loads(file.read_text())["timemory"]["wall_clock"]["ranks"]
    rows = pd.json_normalize([row for rank in ranks for row in rank["graph"]])
    rows.columns = rows.columns.str.removeprefix("stats.")
    # A label starts with the thread number, as in `|0>>>   |_forward`.
    rows["name"] = rows["prefix"].str.replace(r"^\|\d+>>>\s*(\|_)?", "", regex=True)
    return rows.assign(process=file.stem.replace("wall_clock-", ""))


def main() -> None:
    files = sorted(Path(sys.argv[1]).glob("*wall_clock-*.json"))
    if not files:
        sys.exit(
            f"{sys.argv[1]} contains no wall_clock-*.json. Set ROCPROFSYS_PROFILE = "
            "true."
        )
    rows = pd.concat([table(file) for file in files if "sampling" not in file.name])
    spread = (rows["max"] - rows["min"]).where(rows["max"] > rows["min"])
    rows["slow"] = (rows["count"] * (rows["mean"] - rows["min"]) / spread).where(
        rows["stddev"] > rows["mean"]
    )
    columns = [
        "process",
        "depth",
        "name",
        "count",
        "sum",
        "mean",
        "min",
        "max",
        "stddev",
        "slow",
    ]
    largest = rows.nlargest(int(sys.argv[2]) if len(sys.argv) > 2 else 20, "sum")[
        columns
    ]
    print(
        largest.to_string(
            index=False, float_format=lambda value: f"{value:.6f}", na_rep=""
        )
    )


if __name__ == "__main__":
    main()
