"""A verdict as text for a merge request (Markdown), for a CI server (JUnit) and for programs
(JSON).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from tidyprof.analyses.common import four_digits
from tidyprof.gate.measures import MEASURES
from tidyprof.gate.verdict import Verdict, repeats_for_parts
from tidyprof.harmless import markdown_block, markdown_text, printable_lines

ROWS = 5
"""A report names at most so many kernels."""

APART = (
    "Not in turns: where noise lasts over several runs, 22 to 51 % of equal sides are called faster"
    " or slower"
)
"""Measured by benchmarks/bench_gate.py, see docs/gate.md."""


def headline(verdict: Verdict) -> str:
    """The verdict in one sentence, with its interval."""
    what = MEASURES[verdict.measure].words
    times = f"{what} took {verdict.base_ns / 1e6:,.2f} ms and takes {verdict.new_ns / 1e6:,.2f} ms"
    if verdict.ratio:
        change, low, high = (100 * (ratio - 1) for ratio in verdict.ratio[:3])
        how = "turn by turn " if verdict.in_turns else ""
        level = f"{100 * verdict.ratio.level:.1f} % interval"
        times += f" ({how}{change:+,.1f} %, {level} {low:+,.1f} to {high:+,.1f} %)"
    return f"{verdict.word}: {times}; {verdict.reason}"


def footnote(verdict: Verdict, text: Callable[[str], str] = str) -> str:
    """What the numbers of a verdict and of its tables are, and where they come from. text -- makes
    texts from files harmless.
    """
    before, now = (", ".join(four_digits(time / 1e6) for time in side) for side in verdict.times_ns)
    origins = "; ".join(map(text, verdict.origins))
    turns = ", of a part's difference over the turns" if verdict.in_turns else ""
    ignored = "".join(f". In {line}" for line in verdict.ignored)
    cure = (
        "give --in-turns, since both sides have the same names"
        if verdict.same_names
        else "record in turns"
    )
    apart = "" if verdict.in_turns else f"{APART}; {cure}. "
    needed = repeats_for_parts(verdict.parts, verdict.in_turns)
    repeats = min(map(len, verdict.times_ns))
    sure = "" if repeats >= needed else f", which takes {needed} runs a side (here {repeats})"
    measure = "Step time" if verdict.measure == "step" else verdict.measure
    return (
        f"Medians over the runs{turns}; a part is sure if its difference is not small, and beyond"
        f" doubt for all parts together{sure}. {measure} of each run, ms: {before} before,"
        f" {now} now. {apart}Origin: {origins}{ignored}"
    )


def moved_parts(verdict: Verdict) -> pd.DataFrame:
    """The parts that take time on either side, with their names as words."""
    parts = verdict.parts[(verdict.parts[["base_ns", "new_ns"]] != 0).any(axis=1)]
    return parts.assign(
        part=parts["part"].astype(str).str.replace("_", " "),
        sure=np.where(parts["sure"], "yes", ""),
    )


def markdown(verdict: Verdict) -> str:
    """A comment for a merge request."""
    mark = "❔" if verdict.word == "can't tell" else "❌" if verdict.fails else "✅"
    parts = [f"### {mark} {headline(verdict)}", ""]
    columns = {
        "part": "part",
        "base_ns": "base ms",
        "new_ns": "new ms",
        "difference_ns": "ms",
        "sure": "sure",
    }
    parts += _table(moved_parts(verdict), columns)
    if len(verdict.kernels):
        columns = {"kernel": "kernel", "base_calls": "calls", "new_calls": "calls now"}
        parts += _table(
            verdict.kernels.head(ROWS), columns | {"difference_ns": "ms", "blame": "why"}
        )
        parts += [
            "Full names, in this order:",
            "",
            *markdown_block(verdict.kernels["full_name"].head(ROWS)),
            "",
        ]
    parts += [footnote(verdict, markdown_text), ""]
    return "\n".join(parts)


def junit(verdict: Verdict) -> str:
    """One test case in JUnit's XML, failed where the gate closes."""
    suite = ElementTree.Element(
        "testsuite", name="tidyprof gate", tests="1", failures=str(int(verdict.fails))
    )
    case = ElementTree.SubElement(
        suite, "testcase", name=f"{verdict.measure} time", classname="tidyprof.gate"
    )
    if verdict.fails:
        ElementTree.SubElement(case, "failure", message=headline(verdict)).text = printable_lines(
            markdown(verdict)
        )
    # Names and reasons come from files: XML must stay well-formed whatever they hold.
    ElementTree.SubElement(case, "system-out").text = printable_lines(
        f"{headline(verdict)}\n{footnote(verdict)}"
    )
    return ElementTree.tostring(suite, encoding="unicode") + "\n"


def as_json(verdict: Verdict) -> str:
    """The whole verdict; times in ns."""
    facts = {
        "verdict": verdict.word,
        "fails": verdict.fails,
        "reason": verdict.reason,
        "measure": verdict.measure,
        "limit": verdict.limit,
        "base_ns": verdict.base_ns,
        "new_ns": verdict.new_ns,
        "times_ns": verdict.times_ns,
        "in_turns": verdict.in_turns,
        "ratio": verdict.ratio._asdict() if verdict.ratio else None,
        "parts": verdict.parts.to_dict("records"),
        "kernels": verdict.kernels.to_dict("records"),
        "origins": list(verdict.origins),
        "ignored": list(verdict.ignored),
    }
    return json.dumps(facts, indent=1) + "\n"


def _table(table: pd.DataFrame, headings: dict[str, str]) -> list[str]:
    lines = ["| " + " | ".join(headings.values()) + " |", "| --- " * len(headings) + "|"]
    for row in table[list(headings)].to_dict("records"):
        lines.append("| " + " | ".join(_text(name, value) for name, value in row.items()) + " |")
    return [*lines, ""]


def _text(name: str, value: object) -> str:
    if name == "difference_ns":
        return f"{value / 1e6:+,.3f}"
    if name.endswith("_ns"):
        return f"{value / 1e6:,.3f}"
    if name.endswith("_calls"):
        return f"{value:,.1f}".removesuffix(".0")
    return markdown_text(str(value))
