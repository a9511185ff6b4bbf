"""What `tidyprof triage` says of files whose truth somebody wrote down first, as tables for the
pages on triage. The verdicts are those of tests/tidyprof_tests/triage/facts.json, and those of
`tidyprof run` are in run_verdicts.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.run_verdicts import NO_VERDICT, programs, read_verdicts
from tidyprof_tests.triage.facts import TRUTHS, read_facts
from tidyprof_tests.triage.gpu_programs import TRUTH, is_right

FACTS = read_facts()
RUNS = read_verdicts()
LOADS = {loops: RUNS["verdicts"][loops] for loops in sorted(RUNS["verdicts"], key=int)}
PROGRAMS = programs()


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


def third_party() -> dict[str, list[Judged]]:
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
    """Return how many are right, refused, wrong and confident, as Markdown."""
    rows = []
    for what, own in found.items():
        right = [one for one in own if one.right]
        refused = [one for one in right if one.cause in ("inconclusive", "refused")]
        confident = f"{sum(one.confident for one in right)} of {len(right) - len(refused)}"
        wrong = [one for one in own if not one.right]
        numbers = [len(own), len(right), len(refused), confident, len(wrong)]
        rows.append([what, *numbers, sum(one.confident for one in wrong)])
    head = (
        "|>judged|>right|>refused with the reason, among these"
        "|>confident, among the other right ones|>wrong|>wrong and confident"
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
    return markdown("|truth|triage|confident|how it is known", rows)


def gpu_rates() -> str:
    """Return how many variants on a GPU are right, and what tracing cost them, as Markdown."""
    rows = []
    for how, words in (
        ("given", "with the unprofiled step given"),
        ("alone", "by the trace alone"),
    ):
        own = [(is_right(*one, _facts(*one, how)), _facts(*one, how)["confident"]) for one in TRUTH]
        counts = [sum(right for right, _ in own), own.count((True, True))]
        rows.append([words, len(own), *counts, len(own) - counts[0], own.count((False, True))])
    head = "|>variants|>right|>confident, among these|>wrong|>wrong and confident"
    return f"{markdown(head, rows)}\n{_recording_cost()}\n"


def _facts(name: str, form: str, how: str) -> dict[str, Any]:
    return FACTS[f"{name}/{form}/{how}"]


def _recording_cost() -> str:
    """Return how much longer traced steps are than others, and how often the trace alone contains
    the length of these.
    """
    longer, widths, inside = [], [], 0
    for (name, variant), truth in TRUTH.items():
        facts, step = _facts(name, variant, "alone"), truth["untraced_ms"]
        low, high = facts["estimated low"], facts["estimated high"]
        longer.append(facts["fact traced_step_ns"] / 1e6 / step)
        widths.append(high / low)
        inside += low <= step <= high
    return (
        f"Traced, the steps took {_span(longer)} times as long. The range that triage estimates from"
        f" the trace alone contains the unprofiled step of {inside} of {len(TRUTH)} variants; its"
        f" high end is {_span(widths)} times its low end."
    )


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f} (median {median(values):.2f})"


def gpu_forms() -> str:
    """Return each variant of the programs on a GPU, as Markdown; what is wrong is bold."""
    rows = []
    for (name, variant), truth in TRUTH.items():
        step, busy = truth["untraced_ms"], truth["device_busy_ms_a_step"]
        fault = "none" if truth["cause"] == "no-bottleneck" else truth["cause"]
        traced = _facts(name, variant, "alone")["fact traced_step_ns"] / 1e6
        row = [name, variant, fault, f"{step:.1f}", f"{traced:.1f}", f"{100 * busy / step:.0f}%"]
        for how in ("given", "alone"):
            facts = _facts(name, variant, how)
            cause = facts["cause"] if is_right(name, variant, facts) else f"**{facts['cause']}**"
            row.append(cause + ("" if facts["confident"] else ", not confident"))
        rows.append(row)
    head = (
        "program|variant|its fault|>unprofiled, ms|>traced, ms|>device busy|triage, step given"
        "|triage, trace alone"
    )
    return markdown(head, rows)


def run_rates() -> str:
    """Return how many verdicts of `tidyprof run` are right under each load, as Markdown."""
    rows = []
    for loops, verdicts in LOADS.items():
        judged = [(is_run_right(*one), one[1]["confident"]) for one in verdicts.items()]
        states = [right for right, _ in judged]
        counts = [states.count(state) for state in (True, None, False)]
        right, unclear, wrong = (f"{one} ({100 * one / len(judged):.0f}%)" for one in counts)
        confident, mistaken = judged.count((True, True)), judged.count((False, True))
        lost = median(one["cpu_steal_share"] for one in verdicts.values() if "why" not in one)
        row = [_load(loops), len(judged), right, confident, unclear, wrong, mistaken]
        rows.append([*row, f"{lost:.0%}"])
    head = (
        "|>programs|>right|>confident, among these|>inconclusive|>wrong|>wrong and confident"
        "|>CPU time lost to other processes, median"
    )
    return f"{markdown(head, rows)}\nMeasured in {RUNS['month']} on {RUNS['machine']}.\n"


def run_verdicts() -> str:
    """Return each verdict of `tidyprof run`, as Markdown; what is wrong is bold."""
    rows = []
    for name, program in PROGRAMS.items():
        verdicts = [verdicts.get(name) for verdicts in LOADS.values()]
        if any(verdicts):
            cells = [(one and _cell(name, one)) or "" for one in verdicts]
            rows.append([name, " or ".join(program.right), *cells])
    return markdown("|".join(["program", "truth", *map(_load, LOADS)]), rows)


def is_run_right(name: str, verdict: dict[str, Any]) -> bool | None:
    """Return whether a verdict of `tidyprof run` is right, or None if it names no cause."""
    cause = verdict["cause"]
    return None if cause in ("inconclusive", NO_VERDICT) else cause in PROGRAMS[name].right


def _cell(name: str, verdict: dict[str, Any]) -> str:
    right, cause = is_run_right(name, verdict), verdict["cause"]
    shown = f"**{cause}**" if right is False else cause
    return shown if right is None or verdict["confident"] else f"{shown}, not confident"


def _load(loops: str) -> str:
    return f"{loops} busy loops" if int(loops) else "quiet"
