"""The ledger of experiments. Each entry has a hypothesis, a change, times and a correctness gate.

from proflab import ledger

ledger.add("NHWC suits the convolutions", before, after, gate)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from proflab import journal
from proflab.correctness_gate import CorrectnessGate
from proflab.display import Table, show
from proflab.errors import CourseError
from proflab.ledger.entries import MODEL_ONLY, Experiment, nanoseconds, time_text, trainer
from proflab.showing import stated_once
from proflab.sources import stated
from tidyprof.tables.contract import NOT_STATED

__all__ = ["CorrectnessGate", "Experiment", "add", "trainer"]

FILE = "ledger.jsonl"


def add(
    hypothesis: str,
    before: Sequence[float],
    after: Sequence[float],
    gate: CorrectnessGate | None = None,
    *,
    change: str = "",
    per: str = "image",
    origin: object = None,
) -> Experiment:
    """Compare times before and after a change, show the result, and add it to runs/ledger.jsonl.

    - before, after: at least five times for each version, in seconds per step or image.
    - gate: evidence that the model still trains. If the gate isn't green, the verdict is
      `unproven` or `slower`.
    - change: short name of the change. The default is the hypothesis.
    - per: `step`, or `image` if the steps differ in size.
    - origin: a string, an Origin, or an object that has an Origin. A modeled speedup has two
      digits and no interval, and its verdict ends with "in the model".

    Raises CourseError for fewer than five times, an invalid time, or an invalid `per`.
    """
    if per not in ("step", "image"):
        raise CourseError(f"per must be step or image, not {per!r}")
    change = change or hypothesis
    known = journal.read(journal.runs_folder() / FILE)
    experiment = Experiment(
        hypothesis=hypothesis,
        change=change,
        per=per,
        origin=stated(origin) or str(NOT_STATED),
        before_ns=nanoseconds("before", before),
        after_ns=nanoseconds("after", after),
        gate=gate or CorrectnessGate(),
        attempt=1 + sum(entry.get("change") == change for entry in known),
    )
    for_people = {"interval": experiment.interval, "verdict": experiment.verdict}
    journal.append(FILE, asdict(experiment) | for_people)
    show(_result(experiment))
    return experiment


def _result(experiment: Experiment) -> Table:
    rows = [(MODEL_ONLY, experiment.interval)] if experiment.modeled else _measured(experiment)
    rows += [
        (part.name, f"{'passed' if part.passed else 'not passed'}: {part.figures}")
        for part in experiment.gate.parts
    ]
    if not experiment.gate.parts:
        rows.append(("correctness gate", "not checked"))
    rows.append(("verdict", experiment.verdict))
    title = f"Claim: {experiment.hypothesis}"
    note = f"Attempt {experiment.attempt}. {stated_once(experiment.origin, title)}"
    return Table(title, ("", "result"), rows, note)


def _measured(experiment: Experiment) -> list[tuple[str, str]]:
    """Return a row for each version with its range, and a row for the speedup."""
    rows = []
    for name in ("before", "after"):
        times = getattr(experiment, f"{name}_ns")
        middle, least, most = (
            time_text(time, False) for time in (getattr(experiment, name), min(times), max(times))
        )
        text = f"{middle} (mean of {len(times)}, {least} to {most})"
        rows.append((f"{name}, per {experiment.per}", text))
    return [*rows, ("speedup", experiment.interval)]
