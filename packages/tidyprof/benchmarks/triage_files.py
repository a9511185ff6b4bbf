"""What `tidyprof triage` says of files whose truth somebody wrote down first, as tables for the
pages on triage. The verdicts are those of tests/tidyprof_tests/triage/facts.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tidyprof.diagnosis.profiler_overhead import NEARLY
from tidyprof_tests.triage.facts import TRUTHS, read_facts
from tidyprof_tests.triage.gpu_programs import FORMS, HOST_LIMITED, TRUTH, is_right

FACTS = read_facts()


@dataclass(frozen=True)
class Judged:
    """What triage says of a file, next to what somebody else wrote down first, and why."""

    name: str
    truth: tuple[str, ...]
    cause: str
    confident: bool
    why: str

    @property
    def right(self) -> bool:
        """Whether it is one of the answers that an expert takes for right."""
        return self.cause in self.truth


def strangers() -> dict[str, list[Judged]]:
    """Return public recordings and third-party scripts, by what they are."""
    refused = {"cause": "refused", "confident": False}
    found = {}
    for what, truths in TRUTHS.items():
        found[what] = []
        for name, truth in truths.items():
            facts, answers = FACTS.get(name, refused), (truth["cause"], *truth.get("also", ()))
            judged = Judged(name, answers, facts["cause"], facts["confident"], truth["why"])
            found[what].append(judged)
    return found


def markdown(head: str, rows: Sequence[Sequence[object]]) -> str:
    """Return a table whose head names the columns; those that begin with > hold numbers."""
    columns = head.split("|")
    rules = ["--:" if name.startswith(">") else "---" for name in columns]
    lines = [[name.lstrip(">") for name in columns], rules, *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines).replace(
        "|  |", "| |", 1
    )


def rates(found: dict[str, list[Judged]]) -> str:
    """Return how many are right, refused, wrong and sure, as Markdown."""
    rows = []
    for what, own in found.items():
        right = [one for one in own if one.right]
        refused = [one for one in right if one.cause in ("inconclusive", "refused")]
        confident = f"{sum(one.confident for one in right)} of {len(right) - len(refused)}"
        wrong = [one for one in own if not one.right]
        numbers = [len(own), len(right), len(refused), confident, len(wrong)]
        rows.append([what, *numbers, sum(one.confident for one in wrong)])
    head = (
        "|>judged|>right|>refused with the reason, among these|>sure, among the other right ones"
        "|>wrong|>wrong and sure"
    )
    return markdown(head, rows)


def listed(own: list[Judged]) -> str:
    """Return all of one sort, as Markdown; what is wrong is bold."""
    rows = [
        [
            one.name,
            " or ".join(one.truth),
            one.cause if one.right else f"**{one.cause}**",
            "yes" if one.confident else "",
            one.why,
        ]
        for one in own
    ]
    return markdown("|truth|triage|sure|how it is known", rows)


def gpu_rates() -> str:
    """Return how many forms on a GPU are right, and what recording cost them, as Markdown."""
    rows = []
    for how, words in (
        ("given", "with the untraced step given"),
        ("alone", "by the trace alone"),
    ):
        own = [(is_right(*one, _facts(*one, how)), _facts(*one, how)["confident"]) for one in FORMS]
        counts = [sum(right for right, _ in own), own.count((True, True))]
        rows.append([words, len(own), *counts, len(own) - counts[0], own.count((False, True))])
    head = "|>forms|>right|>sure, among these|>wrong|>wrong and sure"
    return f"{markdown(head, rows)}\n{_recording_cost()}\n"


def _facts(name: str, form: str, how: str) -> dict[str, Any]:
    return FACTS[f"{name}/{form}/{how}"]


def _recording_cost() -> str:
    """Return how much longer traced steps are than others, and how well the trace alone tells the
    length of these.
    """
    observed = {
        one: [
            _facts(*one, "alone")[f"signs.observer.{name}"]
            for name in ("traced_ns", "events", "estimated_ns.low", "estimated_ns.high")
        ]
        for one in FORMS
    }
    longer, cost, widths, device, inside = [], [], [], [], 0
    for one, (traced, events, low, high) in observed.items():
        untraced = 1e6 * TRUTH[one[0]]["untraced_ms"][one[1]]
        if one in HOST_LIMITED:
            longer.append(traced / untraced)
            cost.append((traced - untraced) / events / 1e3)
            widths.append(high / low)
            inside += low <= untraced <= high
        if low >= NEARLY * traced:
            device.append(traced / untraced)
    return (
        f"The host limits {len(HOST_LIMITED)} of these forms. Traced, their steps took"
        f" {_span(longer)} times as long, {median(cost):.1f} µs for"
        " each recorded event (median). The range that triage estimates by the trace alone holds"
        f" the untraced step in {inside} of them; its high end is {_span(widths)} times its low"
        f" end. In {len(device)} other forms the device worked in nearly all of the traced step:"
        f" these took {_span(device)} times as long."
    )


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f} (median {median(values):.2f})"


def gpu_forms() -> str:
    """Return each form of the programs on a GPU, as Markdown; what is wrong is bold."""
    rows = []
    for name, form in FORMS:
        truth, row = TRUTH[name], [name, form]
        step, busy = truth["untraced_ms"][form], truth["device_busy_ms_a_step"][form]
        row.append("none" if truth["cause"] == "no-bottleneck" else truth["cause"])
        traced = _facts(name, form, "alone")["signs.observer.traced_ns"] / 1e6
        row += [f"{step:.1f}", f"{traced:.1f}", f"{100 * busy / step:.0f} %"]
        for how in ("given", "alone"):
            facts = _facts(name, form, how)
            cause = facts["cause"] if is_right(name, form, facts) else f"**{facts['cause']}**"
            row.append(cause + ("" if facts["confident"] else ", not sure"))
        rows.append(row)
    head = (
        "program|form|its fault|>untraced, ms|>traced, ms|>device busy|triage, step given"
        "|triage, trace alone"
    )
    return markdown(head, rows)
