"""Report a verdict as text for a terminal and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import part_words
from tidyprof.analyses.common import four_digits
from tidyprof.gate.metrics import METRICS, SCALES, Metric
from tidyprof.gate.verdict import Verdict, least_difference

ROWS = 5
"""The maximum number of kernels that a report names."""

TEXTS = "part of the job", "part of a step", "confident", "kernel", "why"
"""The headings of text columns."""

UNPAIRED = (
    "The runs aren't paired. If noise lasts for several runs, this comparison reports 27% to 59% of"
    " equal versions as slower or faster. Record pairs and use --paired."
)
"""The note about unpaired runs. These percentages come from simulations by
benchmarks/bench_gate.py; see docs/gate.md.
"""


def headline(verdict: Verdict) -> str:
    """Return the verdict and its interval in one sentence."""
    if not verdict.ratio:
        return f"{verdict.word}: {verdict.reason}"
    words, level = METRICS[verdict.metric].words, 100 * verdict.ratio.level
    change, low, high = (100 * (ratio - 1) for ratio in verdict.ratio[:3])
    more, less = ("larger", "smaller") if verdict.unit == "bytes" else ("longer", "shorter")
    interval = f"({level:.1f}% interval {low:+,.1f}% to {high:+,.1f}%)"
    found = f"{abs(change):,.1f}% {more if change >= 0 else less} {interval}"
    return f"{verdict.word}: the {words[0].lower()}{words[1:]} is {found}"


def details(verdict: Verdict) -> list[str]:
    """Return lines with the values, the medians if they lead to another verdict, and the reason."""
    metric = METRICS[verdict.metric]
    lines = [f"{metric.words}: {_before_and_now(metric, verdict.base_value, verdict.new_value)}."]
    if verdict.median_word:
        other = verdict.median_word != verdict.word
        alone = f"By the median alone: {verdict.median_word}, but the" if other else "The"
        lines.append(f"Median: {_before_and_now(metric, *verdict.medians)}. {alone} mean decides.")
    return [*lines, verdict.reason] if verdict.ratio else lines


def _before_and_now(metric: Metric, *values: float) -> str:
    before, now = (value / SCALES[metric.unit] for value in values)
    how = "large" if metric.unit == "MiB" else "long" if now > before else "fast"
    times = before / now if how == "fast" else now / before
    change = f"{times:,.2f} times as {how}"
    return f"{before:,.2f} {metric.unit} before, {now:,.2f} {metric.unit} now ({change})"


def footnote(verdict: Verdict) -> list[str]:
    """Return lines that explain the numbers in the report."""
    few = min(map(len, verdict.values)) < verdict.fewest_runs
    needed = f", which takes {verdict.fewest_runs} runs of each version" if few else ""
    per = "per step, and of the job per run" if len(verdict.job) else "per step"
    lines = []
    if len(verdict.parts) or len(verdict.job):
        lines.append(
            f"Tables show means {per}. A part is confident if its difference is beyond doubt and"
            f" exceeds the noise{needed}."
        )
    unit = METRICS[verdict.metric].unit
    for side, values in zip(("before", "now"), verdict.values, strict=True):
        shown = ", ".join(four_digits(value / SCALES[unit]) for value in values)
        lines.append(f"Runs {side}, {unit}: {shown}")
    return lines if verdict.paired else [*lines, UNPAIRED]


def sources(verdict: Verdict) -> list[str]:
    """Return lines with the origins of the numbers, and with the files that weren't read."""
    ignored = [f"Not read in {line}" for line in verdict.ignored]
    return ["Origin: " + "; ".join(verdict.origins), *ignored]


def part_tables(verdict: Verdict) -> list[dict[str, list[str]]]:
    """Return the tables for the job and for a step. Each table maps a heading to cells.

    Each table lists the parts that take time, with the sum in the last row. A table without such
    parts is empty.
    """
    return [
        _part_table(verdict.job, "part of the job", "s"),
        _part_table(verdict.parts, "part of a step", "ms"),
    ]


def _part_table(table: pd.DataFrame, heading: str, unit: str) -> dict[str, list[str]]:
    parts = table[(table[["base_ns", "new_ns"]] != 0).any(axis=1)]
    if not len(parts):
        return {}
    times = {"base": "base_ns", "new": "new_ns", "change": "difference_ns"}
    return {
        heading: [*parts["part"].astype(str).map(part_words), "sum"],
        **{
            f"{one} {unit}": _cells([*parts[name], parts[name].sum()], one, unit)
            for one, name in times.items()
        },
        "confident": [*np.where(parts["confident"], "yes", ""), ""],
    }


def kernel_table(verdict: Verdict) -> tuple[dict[str, list[str]], str]:
    """Return a table of the ROWS kernels that changed most, and a line about the other kernels."""
    kernels, floor_ns = verdict.kernels, least_difference(verdict.values, verdict.paired)
    size = kernels["difference_ns"].abs()
    changed = kernels[(size > 0) & (size >= floor_ns)]
    shown, rest = changed.head(ROWS), len(kernels) - min(len(changed), ROWS)
    small = f"{len(kernels) - len(changed):,} changed by less than {four_digits(floor_ns / 1e6)} ms"
    cells = {
        "kernel": list(shown["kernel"]),
        "calls base": shown["base_calls"].map("{:,.1f}".format).tolist(),
        "calls new": shown["new_calls"].map("{:,.1f}".format).tolist(),
        "change ms": _cells(shown["difference_ns"], "change", "ms"),
        "why": list(shown["blame"]),
    }
    other = f"{rest:,} more kernels, of which {small}" if rest else ""
    return cells if len(shown) else {}, other


def _cells(nanoseconds: Iterable[float], heading: str, unit: str) -> list[str]:
    sign = "+" if heading == "change" else ""
    return [f"{value / SCALES[unit]:{sign},.3f}" for value in nanoseconds]


def as_json(verdict: Verdict) -> str:
    """Return the verdict as JSON. Values are in `unit`. Times of parts and kernels are in ns."""
    names = ["fails", "reason", "metric", "unit", "limit", "paired", "base_value", "new_value"]
    names += ["values", "medians", "origins", "ignored"]
    facts = {
        "verdict": verdict.word,
        **{name: getattr(verdict, name) for name in names},
        "ratio": verdict.ratio._asdict() if verdict.ratio else None,
        "median_verdict": verdict.median_word or verdict.word,
        **{name: getattr(verdict, name).to_dict("records") for name in ("parts", "job", "kernels")},
    }
    return json.dumps(facts, indent=1) + "\n"
