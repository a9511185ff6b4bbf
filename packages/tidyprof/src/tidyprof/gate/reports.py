"""A verdict as text for a merge request (Markdown), for a CI server (JUnit) and for programs
(JSON).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from tidyprof.analyses.budget import part_words
from tidyprof.analyses.common import four_digits
from tidyprof.escaping import markdown_block, markdown_text, printable_lines
from tidyprof.gate.measures import MEASURES
from tidyprof.gate.verdict import LEAST_REPEATS, Verdict, repeats_for_parts

ROWS = 5
"""A report names at most so many kernels."""

NOTICED = 0.01
"""Share of a step from which a row is shown where too few runs say what noise is."""

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


def moved_parts(verdict: Verdict, text: Callable[[str], str] = str) -> tuple[pd.DataFrame, str]:
    """The parts that changed, with their names as words, and a line on those that did not; text as
    of `footnote`.
    """
    parts = verdict.parts[(verdict.parts[["base_ns", "new_ns"]] != 0).any(axis=1)]
    parts = parts.assign(
        part=parts["part"].astype(str).map(part_words),
        sure=np.where(parts["sure"], "yes", ""),
    )
    changed = _changed(verdict, parts)
    return parts[changed], _parts_that_stayed(verdict, parts, ~changed, text)


def moved_kernels(verdict: Verdict) -> tuple[pd.DataFrame, str]:
    """The ROWS kernels that changed most, and a line on the others."""
    kernels = verdict.kernels
    changed = _changed(verdict, kernels)
    more = int(changed.sum()) - ROWS
    told = [f"{more:,} more kernel{'s' * (more > 1)} changed"] if more > 0 else []
    if stayed := int((~changed).sum()):
        other = "other " if changed.any() else ""
        number = f"{stayed:,} {other}kernel{'s' * (stayed > 1)}"
        told.append(f"{number} changed by less than {_floor_ms(verdict)} ms")
    return kernels[changed].head(ROWS), "; ".join(told)


def _floor_ns(verdict: Verdict) -> float:
    """The difference from which a row is shown: what can be to blame, and where too few runs say
    what noise is no less than NOTICED.
    """
    few = min(map(len, verdict.times_ns)) < LEAST_REPEATS
    return max(verdict.least_ns, NOTICED * max(verdict.base_ns, verdict.new_ns) if few else 0.0)


def _floor_ms(verdict: Verdict) -> str:
    return four_digits(_floor_ns(verdict) / 1e6)


def _changed(verdict: Verdict, table: pd.DataFrame) -> pd.Series:
    size = table["difference_ns"].abs()
    return (size > 0) & (size >= _floor_ns(verdict))


def _parts_that_stayed(
    verdict: Verdict, parts: pd.DataFrame, stayed: pd.Series, text: Callable[[str], str]
) -> str:
    if not stayed.any():
        return ""
    other = "" if stayed.all() else "other "
    parts = parts[stayed].sort_values("new_ns", ascending=False, kind="stable")
    now = ", ".join(
        f"{text(part)} {time / 1e6:,.3f}"
        for part, time in zip(parts["part"], parts["new_ns"], strict=True)
    )
    number = f"{len(parts)} {other}part{'s' * (len(parts) > 1)}"
    return f"{number} changed by less than {_floor_ms(verdict)} ms; ms now: {now}"


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
    parts += _table_and_rest(*moved_parts(verdict, markdown_text), columns)
    columns = {"kernel": "kernel", "base_calls": "calls", "new_calls": "calls now"}
    columns |= {"difference_ns": "ms", "blame": "why"}
    kernels, rest = moved_kernels(verdict)
    parts += _table_and_rest(kernels, rest, columns)
    if len(kernels):
        full_names = markdown_block(kernels["full_name"])
        parts += ["Full names, in this order:", "", *full_names, ""]
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


def _table_and_rest(table: pd.DataFrame, rest: str, headings: dict[str, str]) -> list[str]:
    """Rows, and a line on what is not among them; nothing of what is empty."""
    lines = _table(table, headings) if len(table) else []
    return [*lines, *([rest, ""] if rest else [])]


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
