"""The ledger of experiments: hypothesis, change, before, after, spread, and whether the model still
trains.

    from proflab import ledger

    ledger.add(
        "NHWC suits the convolutions", ledger.trainer(""), ledger.trainer("--channels-last"), gate
    )
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proflab.correctness_gate import CorrectnessGate
from proflab.display import Table, near, show
from proflab.errors import CourseError
from proflab.ledger.entries import (
    MODEL_ONLY,
    VERDICTS,
    Experiment,
    Measure,
    gather,
    here_and_now,
    store,
    stored,
    time_text,
    trainer,
)
from proflab.showing import stated_once
from proflab.sources import stated
from tidyprof.tables.contract import NOT_STATED

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.plots import TidyFigure

__all__ = [
    "VERDICTS",
    "CorrectnessGate",
    "Experiment",
    "add",
    "experiments",
    "table",
    "trainer",
    "waterfall",
]


def add(
    hypothesis: str,
    before: Measure | Sequence[float],
    after: Measure | Sequence[float],
    gate: CorrectnessGate | None = None,
    *,
    change: str = "",
    repeats: int = 5,
    per: str = "image",
    origin: object = None,
) -> Experiment:
    """Compare before and after, show the result, and add it to runs/ledger.jsonl.

    before, after -- functions that run once and return seconds per step or image, called in turn
                     `repeats` times each; or lists of at least five such times.
    gate          -- whether the model still trains. Unless it is green, the verdict is `unproven`,
                     or `slower`.
    change        -- a short name of the change, for charts; the hypothesis if not given.
    per           -- `step`, or `image` if the steps differ in size.
    origin        -- of lists: a text, an Origin, or something that has one. If it is modelled, the
                     verdict says so, and the speed-up has two digits and no interval.

    Raises CourseError for too few repeats, for a value that is no time, and for another `per`.
    """
    if per not in ("step", "image"):
        raise CourseError(f"per must be step or image, not {per!r}")
    times = gather(before, after, repeats)
    change = change or hypothesis
    experiment = Experiment(
        hypothesis=hypothesis,
        change=change,
        per=per,
        origin=stated(origin) or (here_and_now() if callable(before) else str(NOT_STATED)),
        before_ns=tuple(times[0]),
        after_ns=tuple(times[1]),
        gate=gate or CorrectnessGate(),
        attempt=1 + sum(known.change == change for known in stored()),
    )
    store(experiment)
    show(_result(experiment))
    return experiment


def experiments(names: Sequence[str] | None = None) -> list[Experiment]:
    """The last attempt at each change, in the order of their first attempts; `names` chooses and
    orders changes.

    Raises CourseError for a change that is not in the ledger.
    """
    last = {experiment.change: experiment for experiment in stored()}
    for name in names or ():
        if name not in last:
            raise CourseError(f"there is no experiment {name!r} in the ledger: {near(name, last)}")
    return [last[name] for name in (last if names is None else names)]


def table() -> pd.DataFrame:
    """Every attempt, one row each: hypothesis, change, attempt, per, before_ns and after_ns
    (medians in ns), speed_up (before / after), low and high (its 95 % interval, NaN for modelled
    times), interval (as text), verdict, gate, origin.
    """
    import pandas as pd

    found = stored()
    names = ("hypothesis", "change", "attempt", "per", "interval", "verdict", "gate", "origin")
    result = pd.DataFrame(
        [{name: str(getattr(one, name)) for name in names} for one in found], columns=list(names)
    )
    for name, column in {
        "before_ns": "before_ns",
        "after_ns": "after_ns",
        "ratio": "speed_up",
    }.items():
        result[column] = [getattr(one.speed_up, name) for one in found]
    for end in ("low", "high"):
        result[end] = [
            float("nan") if one.modelled else getattr(one.speed_up, end) for one in found
        ]
    result["attempt"] = result["attempt"].astype("int64")
    result.attrs["origin"] = "; ".join(dict.fromkeys(experiment.origin for experiment in found))
    return result


def waterfall(names: Sequence[str] | None = None, title: str | None = None) -> TidyFigure:
    """The steps from the plain trainer to the final one, with the gain of each.

    names -- changes in order; without them, the last attempts that were faster or are unproven,
             since slower and undecided ones would not be kept.

    Raises CourseError if there is nothing to draw.
    """
    from proflab.ledger.charts import waterfall

    kept = [
        one
        for one in experiments(names)
        if names is not None or one.verdict.startswith(("faster", "unproven"))
    ]
    return waterfall(kept, title)


def _result(experiment: Experiment) -> Table:
    rows = [(MODEL_ONLY, experiment.interval)] if experiment.modelled else _measured(experiment)
    rows += [
        (part.name, f"{'passed' if part.passed else 'not passed'}: {part.figures}")
        for part in experiment.gate.parts
    ]
    if not experiment.gate.parts:
        rows.append(("correctness gate", "not looked at"))
    rows.append(("verdict", experiment.verdict))
    title = f"Claim: {experiment.hypothesis}"
    note = f"Attempt {experiment.attempt}. {stated_once(experiment.origin, title)}"
    if not experiment.modelled and len({*experiment.before_ns}) == len({*experiment.after_ns}) == 1:
        note = (
            "The repeats don't differ at all: they were computed or copied, and the interval says"
            f" nothing. {note}"
        )
    return Table(title, ("", "result"), rows, note)


def _measured(experiment: Experiment) -> list[tuple[str, str]]:
    """Rows of both sides, with their spread, and of the speed-up."""
    found = experiment.speed_up
    sides = {
        "before": (found.before_ns, experiment.before_ns),
        "after": (found.after_ns, experiment.after_ns),
    }
    rows = []
    for name, (median, times) in sides.items():
        middle, least, most = (time_text(time, False) for time in (median, min(times), max(times)))
        rows.append(
            (
                f"{name}, per {experiment.per}",
                f"{middle} (median of {len(times)}, {least} to {most})",
            )
        )
    return [*rows, ("speed-up", experiment.interval)]
