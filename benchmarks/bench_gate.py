"""Simulate how often the gate is wrong and how small a slow-down it can find.

The tables are written into docs/contributors/validation.md. A stored pool of modeled runs
(modeled_steps.json), which differ only in their seeds, represents repeats. The model is steadier
than machines, so the simulation adds a machine's run-to-run noise. Nothing here is a timing. Run it
with `python -m benchmarks.bench_gate`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.page import DOCS, write_part
from tidyprof.gate.intervals import ratio_of_totals
from tidyprof.gate.verdict import DEFAULT_LIMIT, parts_to_blame

PAIRS, SEED = 200, 20_261_122
SETTINGS = {
    "noise 0%": (0.0, 0.0, False),
    "noise 2%": (0.02, 0.0, False),
    "noise 5%": (0.05, 0.0, False),
    "5%, drifting load": (0.05, 0.3, False),
    "the same, --paired": (0.05, 0.3, True),
}
"""Settings by heading: the spread of each run, the spread that both runs of a pair share, and
whether runs are compared in pairs.
"""
REPEATS = (5, 8, 9, 12, 15, 20)
SIZES = np.arange(0, 0.61, 0.01)
FOUND = 0.9

EQUAL_PAIRS, NOISE, RISE, PARTS = 1000, 0.02, 0.03, 5
"""Settings for comparisons of equal versions.

They are the number of comparisons, the spread of each run or part, the increase from one run to the
next if the load rises, and the number of parts in a step.
"""

LASTS = 0.9
"""Share of a run's noise that it has in common with the previous run.

It applies if noise lasts (first-order autoregressive).
"""

KIND_PAIRS, STEPS, DRIFT = 3000, 60, 0.3
"""Comparisons per kind of steps, steps per run, and the spread of the load that paired runs
share.
"""

KIND_REPEATS = (5, 9, 20)


def pool() -> np.ndarray:
    """Return the step times (ns) of modeled runs with different seeds."""
    file = Path(__file__).with_name("modeled_steps.json")
    return np.array(json.loads(file.read_text(encoding="utf-8")), float)


def failures(
    times: np.ndarray, repeats: int, setting: str, slow_down: float, random: np.random.Generator
) -> float:
    """Return the share of comparisons that fail, given the true slow-down as a fraction."""
    noise, drift, paired = SETTINGS[setting]
    failed = 0
    for _ in range(PAIRS):
        drawn = random.choice(times, (2, repeats), replace=False) * np.exp(
            random.normal(0, noise, (2, repeats))
        )
        base, new = drawn * np.exp(random.normal(0, drift, repeats))
        failed += ratio_of_totals(new * (1 + slow_down), base, paired).low > 1 + DEFAULT_LIMIT
    return failed / PAIRS


def smallest(times: np.ndarray, repeats: int, setting: str, random: np.random.Generator) -> str:
    """Return the smallest slow-down that fails in FOUND of the comparisons, found by bisection."""
    low, high = 0, len(SIZES)
    while high - low > 1:
        middle = (low + high) // 2
        found = failures(times, repeats, setting, SIZES[middle], random) >= FOUND
        low, high = (low, middle) if found else (middle, high)
    return f"{100 * SIZES[high]:.0f}%" if high < len(SIZES) else f"over {100 * SIZES[-1]:.0f}%"


def wrong_on_equal(
    times: np.ndarray, repeats: int, load: Callable[[], np.ndarray], paired: bool
) -> float:
    """Return the share of comparisons of equal versions whose interval excludes 1.

    load -- function that draws the factors of all runs, an array of 2 by `repeats`.
    """
    random, wrong = np.random.default_rng(SEED), 0
    for _ in range(EQUAL_PAIRS):
        sides = random.choice(times, (2, repeats), replace=False) * load()
        ratio = ratio_of_totals(*sides, paired)
        wrong += not ratio.low <= 1 <= ratio.high
    return wrong / EQUAL_PAIRS


def independent(repeats: int, random: np.random.Generator) -> np.ndarray:
    """Return factors of runs with independent noise."""
    return np.exp(random.normal(0, NOISE, (2, repeats)))


def lasting(repeats: int, random: np.random.Generator) -> np.ndarray:
    """Return factors of two versions with lasting noise, one version recorded after the other."""
    return np.exp(NOISE * autoregressive(random.normal(0, 1, (1, 2 * repeats)), LASTS)).reshape(
        2, repeats
    )


def rising(repeats: int, random: np.random.Generator, drawn: bool) -> np.ndarray:
    """Return factors of paired runs that get longer and longer.

    drawn -- True if the order within a pair is random. Otherwise, the first version always runs
    second.
    """
    second = random.integers(0, 2, repeats) if drawn else np.ones(repeats, int)
    place = 2 * np.arange(repeats) + np.array([second, 1 - second])
    return independent(repeats, random) * (1 + RISE) ** place


def autoregressive(noise: np.ndarray, lasts: float) -> np.ndarray:
    """Return noise of equal spread in which each column shares `lasts` with the previous column."""
    for column in range(1, noise.shape[1]):
        noise[:, column] *= np.sqrt(1 - lasts**2)
        noise[:, column] += lasts * noise[:, column - 1]
    return noise


def wrongly_blamed(repeats: int, paired: bool, random: np.random.Generator) -> float:
    """Return the share of comparisons of equal versions in which any part is confident."""
    wrong = 0
    for _ in range(EQUAL_PAIRS):
        base, new = np.exp(random.normal(0, NOISE, (2, repeats, PARTS)))
        wrong += parts_to_blame([*map(pd.Series, base)], [*map(pd.Series, new)], paired)[
            "confident"
        ].any()
    return wrong / EQUAL_PAIRS


def steps(random: np.random.Generator, runs: int, kind: str, size: float = 0.0) -> np.ndarray:
    """Return the steps of several runs as an array of runs by STEPS. A usual step takes 1."""
    even = np.exp(random.normal(0, NOISE, (runs, STEPS)))
    if kind == "validation":
        even[:, 9::10] += size
    if kind == "stalls":
        even += 50 * (random.random(even.shape) < size)
    if kind == "heavy tail":
        even += size * random.pareto(1.5, even.shape)
    if kind == "autocorrelated":
        return np.exp(autoregressive(random.normal(0, size, even.shape), LASTS))
    return even


KINDS = {
    "equal steps": (("even",), ("even",), 1.0),
    "each 10th step takes 10 times as long": (("validation", 9), ("validation", 9), 1.0),
    "1% of steps take 51 times as long": (("stalls", 0.01), ("stalls", 0.01), 1.0),
    "heavy tail (Pareto, 1.5)": (("heavy tail", 0.05), ("heavy tail", 0.05), 1.0),
    "autocorrelated, spread 30%": (("autocorrelated", 0.3), ("autocorrelated", 0.3), 1.0),
    "a validation each 10th step is new": (("even",), ("validation", 9), 1.9),
    "1% of long steps become 2%": (("stalls", 0.01), ("stalls", 0.02), 2 / 1.5),
    "2% of long steps become 1%": (("stalls", 0.02), ("stalls", 0.01), 1.5 / 2),
    "1% of long steps are new": (("even",), ("stalls", 0.01), 1.5),
    "0.2% of long steps are new": (("even",), ("stalls", 0.002), 1.1),
    "a heavy tail is new": (("even",), ("heavy tail", 0.05), 1.1),
}
"""Steps of the base, steps of the new version, and the true ratio of means, by description."""


def missed(kind: str, repeats: int, paired: bool, random: np.random.Generator) -> tuple[float, ...]:
    """Return how often the true ratio is below the interval and how often it is above."""
    base, new, true = KINDS[kind]
    low = high = 0
    for _ in range(KIND_PAIRS):
        sides = [steps(random, repeats, *side).mean(axis=1) for side in (new, base)]
        load = np.exp(random.normal(0, DRIFT * paired, repeats))
        ratio = ratio_of_totals(*(sides * independent(repeats, random) * load), paired)
        low += true < ratio.low
        high += true > ratio.high
    return low / KIND_PAIRS, high / KIND_PAIRS


def table(headings: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return a Markdown table with shares as percentages."""
    lines = ["| " + " | ".join(map(str, headings)) + " |", "|---" * len(headings) + "|"]
    for row in rows:
        cells = (f"{100 * cell:.1f}%" if isinstance(cell, float) else str(cell) for cell in row)
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def by_number(headings: list[str], rows: list[list[object]]) -> list[str]:
    """Return a table with a column per number of runs, from rows that each start with that
    number.
    """
    numbers, *lines = zip(headings, *rows, strict=True)
    return table(numbers, lines)


def equal_versions(times: np.ndarray, random: np.random.Generator) -> list[str]:
    """Return the table of wrong results for equal versions."""
    headings = ["runs per version", "confidence level, paired", "interval, paired"]
    headings += ["interval, unpaired, independent noise", "interval, unpaired, lasting noise"]
    headings += ["any part, paired", "any part, unpaired"]
    headings += ["paired, rising load, new version second", "paired, rising load, random order"]
    rows: list[list[object]] = []
    for number in REPEATS:
        loads = [partial(draw, number, random) for draw in (independent, lasting)]
        loads += [partial(rising, number, random, drawn) for drawn in (False, True)]
        wrong = [
            wrong_on_equal(times, number, loads[load], paired)
            for load, paired in ((0, True), (0, False), (1, False), (2, True), (3, True))
        ]
        parts = [float(wrongly_blamed(number, paired, random)) for paired in (True, False)]
        level = ratio_of_totals([1.0] * number, [1.0] * number, True).level
        rows.append([number, level, *wrong[:3], *parts, *wrong[3:]])
    return by_number(headings, rows)


def kinds_of_steps(random: np.random.Generator) -> str:
    """Return, as CSV, how often the interval contains the true ratio, in percent by kind of steps."""
    headings = ["steps"]
    headings += [f"{n} {how}" for how in ("paired", "unpaired") for n in KIND_REPEATS]
    lines = [",".join(headings)]
    for kind in KINDS:
        cells = []
        for paired in (True, False):
            for repeats in KIND_REPEATS:
                low, high = missed(kind, repeats, paired, random)
                cells.append(f"{100 * (1 - low - high):.1f}")
        lines.append(",".join([f'"{kind}"', *cells]))
    return "\n".join(lines) + "\n"


def smallest_slow_downs(times: np.ndarray, random: np.random.Generator) -> list[str]:
    """Return the table of the smallest slow-downs that the gate finds."""
    rows: list[list[object]] = []
    for repeats in REPEATS:
        cells = []
        for setting in SETTINGS:
            false = failures(times, repeats, setting, 0.0, random)
            cells.append(f"{smallest(times, repeats, setting, random)} ({100 * false:.1f}%)")
        rows.append([repeats, *cells])
    return by_number(["runs per version", *SETTINGS], rows)


def figures(random: np.random.Generator) -> str:
    """Return the tables for the page."""
    times = pool()
    spread = 100 * times.std() / times.mean()
    return "\n".join(
        [
            *smallest_slow_downs(times, random),
            f"Each number comes from {PAIRS} comparisons of {len(times)} modeled runs, which have a"
            f" spread of {spread:.1f}%.",
            "",
            "The second table shows how often the gate is wrong about equal versions because the"
            " interval excludes 0% or because a part is confident.",
            "",
            *equal_versions(times, random),
            f"Each number comes from {EQUAL_PAIRS:,} comparisons. The noise is {100 * NOISE:.0f}% of"
            f" each run, or of each of {PARTS} parts. With *lasting noise*, each run shares"
            f" {100 * LASTS:.0f}% of its noise with the previous run, and one version runs before the"
            f" other. With a *rising load*, each run takes {100 * RISE:.0f}% longer than the previous"
            " one.",
            "",
        ]
    )


def main() -> None:
    """Write the tables into the page, and the table of kinds of steps next to it."""
    random = np.random.default_rng(SEED)
    write_part(DOCS / "contributors/validation.md", "figures", figures(random))
    kinds = DOCS / "contributors/gate-intervals.csv"
    kinds.write_text(kinds_of_steps(random), encoding="utf-8")


if __name__ == "__main__":
    main()
