"""Step times as one number each: mean or median, of which steps, and with which spread."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

WAYS = ("mean of all steps", "mean without warm-up", "median without warm-up")
"""From the worst to the best."""


def averages(steps: pd.DataFrame) -> pd.DataFrame:
    """The usual ways to make one number of many steps, one row for each of WAYS.

    steps has the columns part, profiled, duration_ns and images, like `TrainingRun.steps`; steps under the
    profiler are left out. Columns: way; steps, how many are in it; step_ns; images_per_second. The rate of a mean
    is all images by all time, that of the median is the median number of images by the median time.
    Raises ValueError where no step remains after the warm-up.
    """
    unwatched = steps[~steps["profiled"]]
    steady = unwatched[unwatched["part"] == "steady"]
    if not len(steady):
        raise ValueError("there is no step after the warm-up that no profiler watched; run more steps")
    rows = [
        (WAYS[0], len(unwatched), *_mean(unwatched)),
        (WAYS[1], len(steady), *_mean(steady)),
        (WAYS[2], len(steady), *_median(steady)),
    ]
    table = pd.DataFrame(rows, columns=["way", "steps", "step_ns", "images_per_second"])
    table.attrs["origin"] = steps.attrs.get("origin")
    return table


def spread_table(groups: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per group of steps: how long the middle half of them took.

    Columns: steps_of, the group's name; count; batch, the median number of images; lower_ns, median_ns, upper_ns
    (quartiles and median); images_per_second, batch by median. A group without steps has no row.
    """
    rows = [(name, len(steps), *_spread(steps)) for name, steps in groups.items() if len(steps)]
    columns = ["steps_of", "count", "batch", "lower_ns", "median_ns", "upper_ns"]
    table = pd.DataFrame(rows, columns=columns).astype({"batch": "int64"})
    table["images_per_second"] = table["batch"] / table["median_ns"] * 1e9
    origins = [str(steps.attrs["origin"]) for steps in groups.values() if len(steps)]
    table.attrs["origin"] = "; ".join(dict.fromkeys(origins))
    return table


def verdict(name: str, steps: pd.DataFrame, others: Mapping[str, pd.DataFrame]) -> str:
    """Two sentences that compare the step times of `steps`, called `name`, with those of each other group.

    A difference is claimed only if the middle half of `steps` (between the quartiles) lies beyond the middle
    halves of all others, on one side: one group alone may have been slow for another reason.
    """
    _, low, median, high = _spread(steps)
    spreads = {other: _spread(table) for other, table in others.items()}
    ratios = " and ".join(f"{median / spread[2]:.2f} times as long as in {other}" for other, spread in spreads.items())
    if all(low > spread[3] for spread in spreads.values()):
        finding = "The middle halves don't overlap: they were slower"
    elif all(high < spread[1] for spread in spreads.values()):
        finding = "The middle halves don't overlap: they were faster"
    else:
        finding = "The middle halves overlap, or the groups disagree: these runs can't tell"
    return f"{name} took {ratios} (medians). {finding}."


def _spread(steps: pd.DataFrame) -> tuple[float, ...]:
    return steps["images"].median(), *steps["duration_ns"].quantile([0.25, 0.5, 0.75])


def _mean(steps: pd.DataFrame) -> tuple[float, float]:
    total_ns = steps["duration_ns"].sum()
    return total_ns / len(steps), steps["images"].sum() / total_ns * 1e9


def _median(steps: pd.DataFrame) -> tuple[float, float]:
    median_ns = steps["duration_ns"].median()
    return median_ns, steps["images"].median() / median_ns * 1e9
