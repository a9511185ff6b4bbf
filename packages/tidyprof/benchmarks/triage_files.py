"""Every verdict of `tidyprof triage` and `tidyprof run` on a file or program whose truth was written
down first. The verdicts are in tests/tidyprof_tests/triage/facts.json and run_verdicts.json.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks.run_verdicts import NO_VERDICT, programs, read_verdicts
from tidyprof_tests.triage.facts import TRUTHS, read_facts
from tidyprof_tests.triage.gpu_programs import TRUTH, accepted_causes, is_right

FACTS = read_facts()
RUNS = read_verdicts()
QUIET = "quiet machine"
NAMES_NO_CAUSE = ("inconclusive", "refused", NO_VERDICT)


class Row(NamedTuple):
    """One verdict, next to the causes that are right."""

    collection: str
    program: str
    conditions: str
    truth: str
    verdict: str
    confident: str
    share_percent: str
    right: str


def table() -> list[Row]:
    """Return all verdicts."""
    return [*_gpu_programs(), *_stored_traces(), *_runs()]


def as_csv(rows: Sequence[Row]) -> str:
    """Return the verdicts as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([Row._fields, *rows])
    return file.getvalue()


def rates(rows: Sequence[Row]) -> str:
    """Return how many verdicts are right, wrong and confident, as Markdown."""
    lines = [
        "| collection | conditions | verdicts | right | right: confident | right: inconclusive"
        " | names no cause | wrong |",
        "|---|---|" + "--:|" * 6,
    ]
    for collection, conditions in dict.fromkeys((row.collection, row.conditions) for row in rows):
        own = [row for row in rows if (row.collection, row.conditions) == (collection, conditions)]
        right, wrong = ([row for row in own if row.right == word] for word in ("yes", "no"))
        no_cause = sum(row.verdict in NAMES_NO_CAUSE for row in right)
        numbers = [len(own), len(right), _confident(right), no_cause]
        # The page states below the table that no wrong verdict is confident.
        assert not _confident(wrong), own[0]
        numbers += [len(own) - len(right) - len(wrong), len(wrong)]
        lines.append("| " + " | ".join(map(str, (collection, conditions, *numbers))) + " |")
    lost = [
        f"{median(one['cpu_steal_share'] for one in verdicts.values() if 'why' not in one):.0%}"
        f" ({_load(loops)})"
        for loops, verdicts in _loads()
    ]
    return "\n".join(
        [
            *lines,
            "",
            f"We ran the programs with `tidyprof run` in {RUNS['month']} on {RUNS['machine']}. The"
            f" median CPU time lost to other processes was {' and '.join(lost)}.",
            "",
            _overhead(),
        ]
    )


def _gpu_programs() -> Iterator[Row]:
    for how, conditions in (("given", "unprofiled step time given"), ("alone", "trace alone")):
        for (name, variant), truth in TRUTH.items():
            facts = FACTS[f"{name}/{variant}/{how}"]
            faulty = " (faulty)" if variant == "sick" else " (fixed)"
            program = name + faulty * (truth["cause"] != "no-bottleneck")
            right = "yes" if is_right(name, variant, facts) else "no"
            causes = accepted_causes(name, variant)
            yield _row("programs on a GPU", program, conditions, causes, facts, right)


def _stored_traces() -> Iterator[Row]:
    for collection, truths in TRUTHS.items():
        conditions = "as published" if collection == "public traces" else "code block of lesson 14"
        for name, truth in truths.items():
            facts = FACTS.get(name, {"cause": "refused", "confident": False})
            causes = (truth["cause"], *truth.get("also", ()))
            right = "yes" if facts["cause"] in causes else "no"
            yield _row(collection, name, conditions, causes, facts, right)


def _runs() -> Iterator[Row]:
    for loops, verdicts in _loads():
        for name, program in programs().items():
            if one := verdicts.get(name):
                right = "yes" if one["cause"] in program.right else "no"
                right = "names no cause" if one["cause"] in NAMES_NO_CAUSE else right
                yield _row("unmodified programs", name, _load(loops), program.right, one, right)


def _row(
    collection: str,
    name: str,
    conditions: str,
    causes: Sequence[str],
    one: dict[str, Any],
    right: str,
) -> Row:
    confident = "yes" if one["confident"] else "no"
    share = f"{100 * one['share']:.0f}" if one.get("share") else ""
    truth = " or ".join(causes)
    return Row(collection, name, conditions, truth, one["cause"], confident, share, right)


def _loads() -> list[tuple[str, dict[str, Any]]]:
    return sorted(RUNS["verdicts"].items(), key=lambda one: int(one[0]))


def _load(loops: str) -> str:
    return f"{loops} busy loops" if int(loops) else QUIET


def _confident(rows: Sequence[Row]) -> int:
    return sum(row.confident == "yes" for row in rows)


def _overhead() -> str:
    """Return how much tracing lengthens steps, and how often the estimate is right."""
    longer, widths, inside = [], [], 0
    for (name, variant), truth in TRUTH.items():
        facts, step = FACTS[f"{name}/{variant}/alone"], truth["untraced_ms"]
        low, high = facts["estimated low"], facts["estimated high"]
        longer.append(facts["fact traced_step_ns"] / 1e6 / step)
        widths.append(high / low)
        inside += low <= step <= high
    return (
        f"On the GPU, traced steps took {_span(longer)} times as long as unprofiled steps. Triage"
        " estimates a range for the unprofiled step from the trace alone. This range contains the"
        f" measured step of {inside} of {len(TRUTH)} variants. Its high end is {_span(widths)} times"
        " its low end."
    )


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f} (median {median(values):.2f})"
