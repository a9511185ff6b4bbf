"""A verdict as text for a merge request (Markdown), for a CI server (JUnit) and for programs (JSON)."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pandas as pd

from tidyprof.gate.verdict import Verdict

ROWS = 5
"""Kernels that a report names."""


def headline(verdict: Verdict) -> str:
    """The verdict in one sentence, with its interval."""
    times = f"a step took {verdict.base_ns / 1e6:,.2f} ms and takes {verdict.new_ns / 1e6:,.2f} ms"
    if verdict.ratio:
        low, high = (100 * (end - 1) for end in verdict.ratio[1:])
        times += f" ({100 * (verdict.ratio.ratio - 1):+.1f} %, 95 % interval {low:+.1f} to {high:+.1f} %)"
    return f"{verdict.word}: {times}; {verdict.reason}"


def footnote(verdict: Verdict) -> str:
    """What the numbers of a verdict and of its tables are, and where they come from."""
    runs = f"{verdict.repeats[0]} and {verdict.repeats[1]} runs"
    origins = "; ".join(verdict.origins)
    return f"A step's time is the median over {runs}, the tables hold means over them. Origin: {origins}"


def part_words(part: str) -> str:
    """What to call a part of a step in a table."""
    return part.replace("_", " ")


def markdown(verdict: Verdict) -> str:
    """A comment for a merge request."""
    mark = "❌" if verdict.fails else "✅"
    parts = [f"### {mark} {headline(verdict)}", ""]
    parts += _table(verdict.parts, {"part": "part", "base_ns": "base ms", "new_ns": "new ms", "difference_ns": "ms"})
    parts += _table(
        verdict.kernels.head(ROWS),
        {"kernel": "kernel", "base_calls": "calls", "new_calls": "calls now", "difference_ns": "ms", "blame": "why"},
    )
    if len(verdict.kernels):
        parts += ["Full names, in this order:", "", "```", *verdict.kernels["full_name"].head(ROWS), "```", ""]
    parts += [footnote(verdict), ""]
    return "\n".join(parts)


def junit(verdict: Verdict) -> str:
    """One test case in JUnit's XML, failed where the gate closes."""
    suite = ElementTree.Element("testsuite", name="tidyprof gate", tests="1", failures=str(int(verdict.fails)))
    case = ElementTree.SubElement(suite, "testcase", name="step time", classname="tidyprof.gate")
    if verdict.fails:
        ElementTree.SubElement(case, "failure", message=headline(verdict)).text = markdown(verdict)
    ElementTree.SubElement(case, "system-out").text = headline(verdict)
    return ElementTree.tostring(suite, encoding="unicode") + "\n"


def as_json(verdict: Verdict) -> str:
    """All of it; times in ns."""
    facts = {
        "verdict": verdict.word, "fails": verdict.fails, "reason": verdict.reason, "limit": verdict.limit,
        "base_ns": verdict.base_ns, "new_ns": verdict.new_ns, "repeats": list(verdict.repeats),
        "ratio": verdict.ratio._asdict() if verdict.ratio else None, "parts": verdict.parts.to_dict("records"),
        "kernels": verdict.kernels.to_dict("records"), "origins": list(verdict.origins),
    }  # fmt: skip
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
    return (part_words(value) if name == "part" else str(value)).replace("|", "\\|")
