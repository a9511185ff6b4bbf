"""How often the gate closes for nothing, and how small a slow-down it finds; writes the figures
into docs/gate.md.

A stored pool of modeled runs (modelled_steps.json) that differ only by their seed represents
repeats. The model is steadier than machines are, so run-to-run noise of a machine is added. A second table asks equal sides
how often the gate is wrong about them. Nothing here is a timing; run it with `python -m
benchmarks.bench_gate`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.page import DOCS, write_part
from tidyprof import Origin
from tidyprof.gate.runs import RunTimes
from tidyprof.gate.verdict import DEFAULT_LIMIT, parts_to_blame, ratio_of_medians, ratio_of_turns

PAIRS, SEED = 200, 20_261_122
SETTINGS = {
    "noise 0 %": (0.0, 0.0, False),
    "noise 2 %": (0.02, 0.0, False),
    "noise 5 %": (0.05, 0.0, False),
    "5 %, drifting load": (0.05, 0.3, False),
    "the same, --in-turns": (0.05, 0.3, True),
}
"""Heading -> spread of each run, spread of what both runs of a turn share, and whether turns are
compared.
"""
REPEATS = (5, 8, 9, 12, 15, 20)
SIZES = np.arange(0, 0.61, 0.01)
FOUND = 0.9

EQUAL_PAIRS, NOISE, RISE, PARTS = 1000, 0.02, 0.03, 5
"""Pairs of equal sides, the spread of each run or of each of its parts, by how much each run is
longer than the one before where the load rises, and the parts of a step.
"""

LASTS = 0.9
"""How much of its noise a run shares with the one before, where noise lasts (autoregressive, of
first order).
"""


def pool() -> np.ndarray:
    """Return the step times (ns) of modeled runs with different seeds."""
    file = Path(__file__).with_name("modelled_steps.json")
    return np.array(json.loads(file.read_text(encoding="utf-8")), float)


def closes(
    times: np.ndarray, repeats: int, setting: str, slow_down: float, random: np.random.Generator
) -> float:
    """Share of pairs at which the gate closes, with a true slow-down of this fraction."""
    noise, drift, in_turns = SETTINGS[setting]
    compare = ratio_of_turns if in_turns else ratio_of_medians
    closed = 0
    for _ in range(PAIRS):
        drawn = random.choice(times, (2, repeats), replace=False) * np.exp(
            random.normal(0, noise, (2, repeats))
        )
        base, new = drawn * np.exp(random.normal(0, drift, repeats))
        closed += compare(new * (1 + slow_down), base).low > 1 + DEFAULT_LIMIT
    return closed / PAIRS


def smallest(times: np.ndarray, repeats: int, setting: str, random: np.random.Generator) -> str:
    """The smallest slow-down at which the gate closes in FOUND of the pairs, by halving, in
    words.
    """
    low, high = 0, len(SIZES)
    while high - low > 1:
        middle = (low + high) // 2
        found = closes(times, repeats, setting, SIZES[middle], random) >= FOUND
        low, high = (low, middle) if found else (middle, high)
    return f"{100 * SIZES[high]:.0f} %" if high < len(SIZES) else f"over {100 * SIZES[-1]:.0f} %"


def wrong_by_turns(
    times: np.ndarray, repeats: int, rise: float, shuffled: bool, random: np.random.Generator
) -> float:
    """Share of pairs of equal sides whose interval leaves 1 out; each run is longer by `rise` than
    the one before.
    """
    wrong = 0
    for _ in range(EQUAL_PAIRS):
        sides = random.choice(times, (2, repeats), replace=False) * np.exp(
            random.normal(0, NOISE, (2, repeats))
        )
        second = random.integers(0, 2, repeats) if shuffled else np.zeros(repeats, int)
        place = 2 * np.arange(repeats) + np.array([second, 1 - second])
        ratio = ratio_of_turns(*sides * (1 + rise) ** place)
        wrong += not ratio.low <= 1 <= ratio.high
    return wrong / EQUAL_PAIRS


def wrong_apart(
    times: np.ndarray, repeats: int, lasts: float, random: np.random.Generator
) -> float:
    """The same without turns and without a rising load, one side after the other; noise may last
    over several runs.
    """
    wrong = 0
    for _ in range(EQUAL_PAIRS):
        noise = random.normal(0, NOISE, 2 * repeats)
        for run in range(1, 2 * repeats):
            noise[run] = lasts * noise[run - 1] + np.sqrt(1 - lasts**2) * noise[run]
        sides = random.choice(times, (2, repeats), replace=False) * np.exp(
            noise.reshape(2, repeats)
        )
        ratio = ratio_of_medians(*sides)
        wrong += not ratio.low <= 1 <= ratio.high
    return wrong / EQUAL_PAIRS


def wrongly_blamed(repeats: int, in_turns: bool, random: np.random.Generator) -> float:
    """Share of pairs of equal sides of which any part is sure."""
    wrong, origin = 0, Origin("modelled", "for a benchmark")
    for _ in range(EQUAL_PAIRS):
        drawn = np.exp(random.normal(0, NOISE, (2, repeats, PARTS)))
        sides = [
            [RunTimes("", sum(run), 1, pd.Series(run), pd.DataFrame(), origin) for run in side]
            for side in drawn
        ]
        wrong += parts_to_blame(*sides, in_turns)["sure"].any()
    return wrong / EQUAL_PAIRS


def equal_sides(times: np.ndarray, random: np.random.Generator) -> list[str]:
    """The table of what is wrongly said about equal sides."""
    headings = ("repeats a side", "level in turns", "wrong, in turns")
    headings += ("wrong, without turns, independent runs", "wrong, without turns, noise that lasts")
    headings += ("a part sure, in turns", "a part sure, without turns")
    headings += ("rising load, new always second", "rising load, order drawn")
    lines = ["| " + " | ".join(headings) + " |", "| --- " * len(headings) + "|"]
    for repeats in REPEATS:
        shares = (
            ratio_of_turns([1.0] * repeats, [1.0] * repeats).level,
            wrong_by_turns(times, repeats, 0.0, False, random),
            wrong_apart(times, repeats, 0.0, random),
            wrong_apart(times, repeats, LASTS, random),
            wrongly_blamed(repeats, True, random),
            wrongly_blamed(repeats, False, random),
            wrong_by_turns(times, repeats, RISE, False, random),
            wrong_by_turns(times, repeats, RISE, True, random),
        )
        lines.append(
            f"| {repeats} | " + " | ".join(f"{100 * share:.1f} %" for share in shares) + " |"
        )
    said = (
        f"{EQUAL_PAIRS} pairs of equal sides for each number; the noise is {100 * NOISE:.0f} % of"
        " each run, or of each "
    )
    said += (
        f"of {PARTS} parts. *Noise that lasts*: {100 * LASTS:.0f} % of it is that of the run"
        " before, and one side is recorded after the other. *Rising load*: in turns, and each run"
        f" takes {100 * RISE:.0f} % longer than the one before."
    )
    return [*lines, "", said]


def figures() -> str:
    """The table for the page."""
    random = np.random.default_rng(SEED)
    times = pool()
    lines = [
        "| repeats a side | " + " | ".join(SETTINGS) + " |",
        "| --- " * (len(SETTINGS) + 1) + "|",
    ]
    for repeats in REPEATS:
        cells = []
        for setting in SETTINGS:
            false = closes(times, repeats, setting, 0.0, random)
            cells.append(f"{smallest(times, repeats, setting, random)} ({100 * false:.1f} %)")
        lines.append(f"| {repeats} | " + " | ".join(cells) + " |")
    spread = 100 * times.std() / times.mean()
    lines += [
        "",
        (
            f"From {len(times)} modelled runs, whose own spread is {spread:.1f} %; {PAIRS} pairs for each"
            " number."
        ),
    ]
    lines += [
        "",
        "How often it is wrong about equal sides (the interval leaves 1 out, or a part is sure):",
        "",
        *equal_sides(times, random),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the figures into the page."""
    write_part(DOCS / "gate.md", "figures", figures())


if __name__ == "__main__":
    main()
