"""The seven ways a clock misleads, each with what it said, what was true, and the cure: computed from the data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pandas as pd

from proflab.display import Table
from proflab.parts.averages import averages
from proflab.parts.published_rates import COUNTED_IMAGES, FITTING_RANKS, ORIGIN, last_batch_images, published_rates
from proflab.training import TrainingRun

CURES = (
    "leave the first steps out",
    "median, then ask why",
    "synchronise at both ends",
    "count each batch",
    "a run of its own",
    "repeat, give the spread",
    "state all conditions",
)
"""In the lesson's order."""


@dataclass(frozen=True)
class Lie:
    """One row: two numbers in `unit` (what misleads, and what a second look gives), their origin's kind, the cure."""

    name: str
    said: float
    second: float
    unit: str
    origin: str
    cure: str

    @property
    def factor(self) -> float:
        """The larger of the two numbers divided by the smaller."""
        return max(self.said, self.second) / min(self.said, self.second)


def clock_lies(run: TrainingRun, watched: TrainingRun, larger: TrainingRun, timers: pd.DataFrame) -> list[Lie]:
    """All seven in the lesson's order; the second and the fourth are from AMD's published runs.

    run, watched, larger -- the same work plain, under torch.profiler, and with another batch size;
    timers -- `asynchronous.timer_table` with the row `lying`.
    """
    one_gpu, parallel = published_rates("one GPU"), published_rates("parallel")
    own, published = averages(run.steps), averages(one_gpu.iloc[1:].assign(part="steady"))
    plain_ms, rate = _median_ms(run.steady), own["images_per_second"]
    stand_in = timers[timers["timer"] == "lying"].iloc[0]
    printed = parallel["images_per_second"].iloc[-1]
    counted = printed * last_batch_images(parallel, FITTING_RANKS) / COUNTED_IMAGES
    other_rate = averages(larger.steps)["images_per_second"].iloc[-1]
    here, there = run.origin.kind, ORIGIN.kind
    pairs = (
        ("warm-up in the mean", rate.iloc[0], rate.iloc[-1], "images/s", here),
        ("slow step in the mean", *(published["step_ns"].iloc[1:] / 1e6), "ms", there),
        ("clock read too early", *stand_in[["reported_images_per_second", "true_images_per_second"]], "images/s", here),
        ("images not there", printed, counted, "images/s", there),
        ("profiler in the timer", _median_ms(watched.watched), plain_ms, "ms", here),
        ("one run only", _median_ms(watched.steady), plain_ms, "ms", here),
        ("no conditions stated", other_rate, rate.iloc[-1], "images/s", here),
    )
    return [Lie(*pair, cure) for pair, cure in zip(pairs, CURES, strict=True)]


def lies_table(lies: list[Lie]) -> Table:
    """The lies as a table for a notebook or a terminal."""
    columns = ("way to be misled", "it said", "a second look", "apart by", "origin", "cure")
    rows = [
        (f"{place}. {lie.name}", *map(_unbroken, _numbers(lie)), lie.origin, lie.cure)
        for place, lie in enumerate(lies, start=1)
    ]
    note = "The third is measured on the thread that stands in for a GPU."
    return Table("Seven ways a clock misleads", columns, rows, note, columns[1:4])


def rounded(value: float) -> str:
    """Three significant digits, thousands apart: 12,800, 20.0, 0.0123."""
    decimals = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{round(value, decimals):,.{max(0, decimals)}f}"


def _median_ms(steps: pd.DataFrame) -> float:
    return steps["duration_ns"].median() / 1e6


def _numbers(lie: Lie) -> tuple[str, str, str]:
    apart = f"{rounded(lie.factor)} times" if lie.factor >= 1.5 else f"{100 * (lie.factor - 1):.1f} %"
    return f"{rounded(lie.said)} {lie.unit}", f"{rounded(lie.second)} {lie.unit}", apart


def _unbroken(text: str) -> str:
    """A number stays on one line with its unit."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")
