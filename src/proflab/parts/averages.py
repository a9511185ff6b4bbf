"""Step times as one number each: mean or median, of which steps."""

from __future__ import annotations

import pandas as pd


def averages(steps: pd.DataFrame) -> pd.DataFrame:
    """The usual ways to make one number of many steps, from the worst to the best: columns way and step_ns.

    steps has the columns part (warmup or steady) and duration_ns.
    """
    steady = steps.loc[steps["part"] == "steady", "duration_ns"]
    ways = {
        "mean of all steps": steps["duration_ns"].mean(),
        "mean without warm-up": steady.mean(),
        "median without warm-up": steady.median(),
    }
    return pd.DataFrame({"way": list(ways), "step_ns": list(ways.values())})
