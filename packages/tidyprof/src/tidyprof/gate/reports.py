"""Reports of a verdict: text for a terminal or a merge request (Markdown), JUnit for a CI server,
and JSON for programs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from xml.etree import ElementTree

import numpy as np

from tidyprof.analyses.budget import part_words
from tidyprof.analyses.common import four_digits
from tidyprof.escaping import markdown_block, markdown_text, printable_lines
from tidyprof.gate.metrics import METRICS
from tidyprof.gate.verdict import INCONCLUSIVE, Verdict, least_difference

ROWS = 5
"""The most kernels that a report names."""

PART, CONFIDENT, KERNEL, WHY = TEXTS = ("part of a step", "confident", "kernel", "why")
"""Headings of the columns that hold texts."""

UNPAIRED = (
    "Not paired: if noise lasts over several runs, this comparison calls 27% to 59% of equal"
    " versions slower or faster. Record pairs and use --paired."
)
"""Simulated by benchmarks/bench_gate.py, see docs/gate.md."""


def headline(verdict: Verdict) -> str:
    """Return the verdict and its interval in one sentence."""
    if not verdict.ratio:
        return f"{verdict.word}: {verdict.reason}"
    words = "whole run" if verdict.metric == "step" else METRICS[verdict.metric].words.lower()
    change, low, high = (100 * (ratio - 1) for ratio in verdict.ratio[:3])
    level, length = 100 * verdict.ratio.level, "longer" if change >= 0 else "shorter"
    interval = f"({level:.1f}% interval {low:+,.1f}% to {high:+,.1f}%)"
    return f"{verdict.word}: the {words} is {abs(change):,.1f}% {length} {interval}"


def details(verdict: Verdict) -> list[str]:
    """Return a line with the times, one with the medians if these differ, and the reason."""
    words = METRICS[verdict.metric].words
    lines = [f"{words}: {_before_and_now(verdict.base_ns, verdict.new_ns)}."]
    if verdict.median_word:
        other = verdict.median_word != verdict.word
        alone = f"By the median alone: {verdict.median_word}, but the" if other else "The"
        lines.append(f"Median: {_before_and_now(*verdict.median_ns)}. {alone} whole run decides.")
    return [*lines, verdict.reason] if verdict.ratio else lines


def _before_and_now(before_ns: float, now_ns: float) -> str:
    ends = sorted((before_ns, now_ns))
    change = f"{ends[1] / ends[0]:,.2f} times as {'long' if now_ns > before_ns else 'fast'}"
    return f"{before_ns / 1e6:,.2f} ms before, {now_ns / 1e6:,.2f} ms now ({change})"


def footnote(verdict: Verdict) -> list[str]:
    """Return what the numbers are, a line per fact."""
    few = min(map(len, verdict.times_ns)) < verdict.fewest_runs
    needed = f", which takes {verdict.fewest_runs} runs of each version" if few else ""
    lines = [
        "Tables show means per step. A part is confident if it differs beyond doubt and by"
        f" more than noise{needed}."
    ]
    for side, times in zip(("before", "now"), verdict.times_ns, strict=True):
        lines.append(f"Runs {side}, ms: " + ", ".join(four_digits(time / 1e6) for time in times))
    return lines if verdict.paired else [*lines, UNPAIRED]


def sources(verdict: Verdict, text: Callable[[str], str] = str) -> list[str]:
    """Return where the numbers come from, and the files that weren't read. text -- escapes what
    files say.
    """
    ignored = [text(f"Not read in {line}") for line in verdict.ignored]
    return ["Origin: " + "; ".join(map(text, verdict.origins)), *ignored]


def part_table(verdict: Verdict) -> dict[str, list[str]]:
    """Return heading -> cells of the parts that take time, and of their sum in the last row; empty
    without parts.
    """
    parts = verdict.parts[(verdict.parts[["base_ns", "new_ns"]] != 0).any(axis=1)]
    if not len(parts):
        return {}
    times = {"base ms": "base_ns", "new ms": "new_ns", "change ms": "difference_ns"}
    return {
        PART: [*parts["part"].astype(str).map(part_words), "sum"],
        **{one: _ms([*parts[name], parts[name].sum()], one) for one, name in times.items()},
        CONFIDENT: [*np.where(parts["confident"], "yes", ""), ""],
    }


def kernel_table(verdict: Verdict) -> tuple[dict[str, list[str]], list[str], str]:
    """Return heading -> cells of the ROWS kernels that changed most, their full names, and a line
    on the other kernels.
    """
    kernels = verdict.kernels
    floor_ns = least_difference(verdict.base, verdict.new, verdict.paired)
    size = kernels["difference_ns"].abs()
    changed = kernels[(size > 0) & (size >= floor_ns)]
    shown, rest = changed.head(ROWS), len(kernels) - min(len(changed), ROWS)
    small = f"{len(kernels) - len(changed):,} changed by less than {four_digits(floor_ns / 1e6)} ms"
    cells = {
        KERNEL: list(shown["kernel"]),
        "calls base": shown["base_calls"].map("{:,.1f}".format).tolist(),
        "calls new": shown["new_calls"].map("{:,.1f}".format).tolist(),
        "change ms": _ms(shown["difference_ns"], "change ms"),
        WHY: list(shown["blame"]),
    }
    other = f"{rest:,} more kernels, of which {small}" if rest else ""
    return cells if len(shown) else {}, list(shown["full_name"]), other


def _ms(nanoseconds: Iterable[float], heading: str) -> list[str]:
    sign = "+" if heading == "change ms" else ""
    return [f"{value / 1e6:{sign},.3f}" for value in nanoseconds]


def markdown(verdict: Verdict) -> str:
    """Return a comment for a merge request."""
    mark = "❔" if verdict.word == INCONCLUSIVE else "❌" if verdict.fails else "✅"
    lines = [f"### {mark} {headline(verdict)}", "", *_items(details(verdict))]
    kernels, full_names, rest = kernel_table(verdict)
    lines += _table(part_table(verdict)) + _table(kernels)
    lines += [rest, ""] if rest else []
    if full_names:
        lines += ["Full names, in this order:", "", *markdown_block(full_names), ""]
    return "\n".join([*lines, *_items(footnote(verdict) + sources(verdict, markdown_text))])


def junit(verdict: Verdict) -> str:
    """Return one test case in JUnit's XML, a failure if the gate fails."""
    suite = ElementTree.Element(
        "testsuite", name="tidyprof gate", tests="1", failures=str(int(verdict.fails))
    )
    case = ElementTree.SubElement(
        suite, "testcase", name=f"{verdict.metric} time", classname="tidyprof.gate"
    )
    if verdict.fails:
        ElementTree.SubElement(case, "failure", message=headline(verdict)).text = printable_lines(
            markdown(verdict)
        )
    # Names come from files, and XML must stay well-formed whatever they hold.
    ElementTree.SubElement(case, "system-out").text = printable_lines(
        "\n".join([headline(verdict), *details(verdict), *footnote(verdict), *sources(verdict)])
    )
    return ElementTree.tostring(suite, encoding="unicode") + "\n"


def as_json(verdict: Verdict) -> str:
    """Return the whole verdict; times are in ns."""
    names = ["fails", "reason", "metric", "limit", "paired", "base_ns", "new_ns", "times_ns"]
    facts = {
        "verdict": verdict.word,
        **{name: getattr(verdict, name) for name in [*names, "median_ns", "origins", "ignored"]},
        "ratio": verdict.ratio._asdict() if verdict.ratio else None,
        "median_verdict": verdict.median_word or verdict.word,
        "parts": verdict.parts.to_dict("records"),
        "kernels": verdict.kernels.to_dict("records"),
    }
    return json.dumps(facts, indent=1) + "\n"


def _items(lines: list[str]) -> list[str]:
    return [*(f"- {line}" for line in lines), ""]


def _table(columns: dict[str, list[str]]) -> list[str]:
    """Return the columns as Markdown; no lines for no columns."""
    if not columns:
        return []
    cells = [
        map(markdown_text, values) if heading in TEXTS else values
        for heading, values in columns.items()
    ]
    rows = [columns, ["---"] * len(columns), *zip(*cells, strict=True)]
    return [*(f"| {' | '.join(row)} |" for row in rows), ""]
