"""Report a verdict as text for a terminal and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import part_words
from tidyprof.analyses.common import four_digits
from tidyprof.gate.metrics import METRICS, STEP
from tidyprof.gate.verdict import Verdict

ROWS = 5
"""The maximum number of kernels that a report names."""

UNPAIRED = (
    "The runs aren't paired. If noise lasts for several runs, this comparison reports 27% to 59% of"
    " equal versions as slower or faster. Record pairs and use --paired."
)
"""The note about unpaired runs. These percentages come from simulations by
benchmarks/bench_gate.py; see docs/gate.md.
"""

_SCALES = {"ms": 1e6, "s": 1e9}
"""Nanoseconds in each unit."""


def _unit(verdict: Verdict) -> str:
    return "ms" if verdict.metric == STEP else "s"


def headline(verdict: Verdict) -> str:
    """Return the verdict and its interval in one sentence."""
    if not verdict.ratio:
        return f"{verdict.word}: {verdict.reason}"
    words, level = METRICS[verdict.metric].lower(), 100 * verdict.ratio.level
    change, low, high = (100 * (ratio - 1) for ratio in verdict.ratio[:3])
    interval = f"({level:.1f}% interval {low:+,.1f}% to {high:+,.1f}%)"
    found = f"{abs(change):,.1f}% {'longer' if change >= 0 else 'shorter'} {interval}"
    return f"{verdict.word}: the {words} is {found}"


def details(verdict: Verdict) -> list[str]:
    """Return lines with the values and the reason."""
    unit = _unit(verdict)
    before, now = (value / _SCALES[unit] for value in (verdict.base_value, verdict.new_value))
    times, how = (now / before, "long") if now > before else (before / now, "fast")
    change = f"{before:,.2f} {unit} before, {now:,.2f} {unit} now ({times:,.2f} times as {how})"
    lines = [f"{METRICS[verdict.metric]}: {change}."]
    return [*lines, verdict.reason] if verdict.ratio else lines


def footnote(verdict: Verdict) -> list[str]:
    """Return lines that explain the numbers in the report."""
    lines = [
        "Tables show means per step, and of the job per run. A part is confident if its"
        " difference is beyond doubt and exceeds the noise, which takes up to nine runs."
    ]
    unit = _unit(verdict)
    for side, values in zip(("before", "now"), verdict.values, strict=True):
        shown = ", ".join(four_digits(value / _SCALES[unit]) for value in values)
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
    changed = verdict.kernels[verdict.kernels["difference_ns"] != 0]
    shown, rest = changed.head(ROWS), len(verdict.kernels) - min(len(changed), ROWS)
    cells = {
        "kernel": list(shown["kernel"]),
        "calls base": shown["base_calls"].map("{:,.1f}".format).tolist(),
        "calls new": shown["new_calls"].map("{:,.1f}".format).tolist(),
        "change ms": _cells(shown["difference_ns"], "change", "ms"),
        "why": list(shown["blame"]),
    }
    return cells if len(shown) else {}, f"{rest:,} more kernels changed less" if rest else ""


def _cells(nanoseconds: Iterable[float], heading: str, unit: str) -> list[str]:
    sign = "+" if heading == "change" else ""
    return [f"{value / _SCALES[unit]:{sign},.3f}" for value in nanoseconds]


def as_json(verdict: Verdict) -> str:
    """Return the verdict as JSON. All times are in ns."""
    names = ["fails", "reason", "metric", "limit", "paired", "base_value", "new_value"]
    names += ["values", "origins", "ignored"]
    facts = {
        "verdict": verdict.word,
        **{name: getattr(verdict, name) for name in names},
        "ratio": verdict.ratio._asdict() if verdict.ratio else None,
        **{name: getattr(verdict, name).to_dict("records") for name in ("parts", "job", "kernels")},
    }
    return json.dumps(facts, indent=1) + "\n"
