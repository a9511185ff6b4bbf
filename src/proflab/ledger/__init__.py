"""The ledger of experiments: hypothesis, change, before, after, spread, and whether the model still trains.

from proflab import ledger
ledger.add("NHWC suits the convolutions", ledger.trainer(""), ledger.trainer("--channels-last"), change="channels last")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from proflab.correctness_gate import CorrectnessGate
from proflab.display import Notice, Table, near, show
from proflab.errors import CourseError
from proflab.ledger.entries import VERDICTS, Experiment, store, stored
from proflab.ledger.repeats import Measure, Side, gather
from proflab.ledger.training_repeats import trainer
from proflab.showing import show_figure
from proflab.sources import stated

if TYPE_CHECKING:
    import pandas as pd

    from proflab.training import TrainingRun
    from tidyprof.plots import TidyFigure

__all__ = [
    "VERDICTS",
    "CorrectnessGate",
    "Experiment",
    "add",
    "calibration",
    "experiments",
    "show_calibration",
    "table",
    "trainer",
    "waterfall",
]

TABLE_COLUMNS = {
    "hypothesis": "str",
    "change": "str",
    "attempt": "int64",
    "per": "str",
    "repeats": "int64",
    "before_ns": "int64",
    "after_ns": "int64",
    "speed_up": "float64",
    "low": "float64",
    "high": "float64",
    "verdict": "str",
    "gate": "str",
    "origin": "str",
}
"""Columns of `table` and their dtypes."""


def add(
    hypothesis: str,
    before: Measure | Sequence[float | TrainingRun],
    after: Measure | Sequence[float | TrainingRun],
    gate: CorrectnessGate | None = None,
    *,
    change: str = "",
    repeats: int = 5,
    per: str = "step",
    origin: object = None,
) -> Experiment:
    """Compare before and after, show what came out, and add it to runs/ledger.jsonl.

    before, after -- functions that run once and return seconds or a TrainingRun, called in turn `repeats` times each;
                     or lists of at least five such repeats.
    gate   -- whether the model still trains. Without one it is made from the first run of each side, where there are
              runs. Unless it is green, the verdict is `unproven`, whatever the times say.
    change -- a short name of what was changed, for charts; the hypothesis if not given. per -- `step`, or `image`
              where the steps differ in size. origin -- of plain numbers: its text, an Origin, or what has one.

    Raises CourseError for too few repeats, for what is no time, and for steps of different size.
    """
    first, second, order = gather(before, after, repeats, per, stated(origin))
    change = change or hypothesis
    experiment = Experiment(
        hypothesis=hypothesis,
        change=change,
        per=per,
        order=order,
        origin="; ".join(dict.fromkeys([*first.origins, *second.origins])),
        before_ns=tuple(first.times_ns),
        after_ns=tuple(second.times_ns),
        gate=_gate(first, second) if gate is None else gate,
        attempt=1 + sum(known.change == change for known in stored()),
    )
    store(experiment)
    show(_result(experiment))
    return experiment


def experiments(names: Sequence[str] | None = None) -> list[Experiment]:
    """The last attempt at each change, in the order of their first attempts; `names` chooses and orders changes.

    Raises CourseError for a change that is not in the ledger.
    """
    last = {experiment.change: experiment for experiment in stored()}
    for name in names or ():
        if name not in last:
            raise CourseError(f"there is no experiment {name!r} in the ledger: {near(name, last)}")
    return [last[name] for name in (last if names is None else names)]


def table() -> pd.DataFrame:
    """Every attempt, one row each: columns TABLE_COLUMNS; times are medians in ns per step or image.

    speed_up is before / after, low and high its 95 % interval; gate is `green` or what is wrong with it.
    """
    import pandas as pd

    found = stored()
    rows = [_row(experiment) for experiment in found]
    result = pd.DataFrame(rows, columns=list(TABLE_COLUMNS)).astype(TABLE_COLUMNS)
    result.attrs["origin"] = "; ".join(dict.fromkeys(experiment.origin for experiment in found))
    return result


def waterfall(names: Sequence[str] | None = None, title: str | None = None) -> TidyFigure:
    """The steps from the plain trainer to the final one, with what each brought.

    names -- changes in order; without them the last attempts that were faster or are unproven, as those that are
    slower or undecided would not be kept. Raises CourseError if there is nothing to draw.
    """
    from proflab.ledger.charts import waterfall

    kept = [one for one in experiments(names) if names is not None or one.verdict in ("faster", "unproven")]
    return waterfall(kept, title)


def calibration(title: str | None = None) -> TidyFigure:
    """What was predicted against what was found in all lessons so far, from the journal of predictions."""
    from proflab.ledger.charts import calibration
    from proflab.predictions import compared

    return calibration(compared(), title)


def show_calibration(title: str | None = None) -> None:
    """Show the chart of `calibration`, or say that there is nothing in it yet."""
    try:
        figure = calibration(title)
    except CourseError as error:
        show(Notice("No chart of your guesses", f"{error}.", "open"))
    else:
        show_figure(figure)


def _gate(before: Side, after: Side) -> CorrectnessGate:
    if before.runs and after.runs:
        return CorrectnessGate.of_runs(before.runs[0], after.runs[0])
    return CorrectnessGate(())


def _row(experiment: Experiment) -> dict[str, Any]:
    found = experiment.speed_up
    return {
        "hypothesis": experiment.hypothesis,
        "change": experiment.change,
        "attempt": experiment.attempt,
        "per": experiment.per,
        "repeats": min(len(experiment.before_ns), len(experiment.after_ns)),
        "before_ns": found.before_ns,
        "after_ns": found.after_ns,
        "speed_up": found.ratio,
        "low": found.low,
        "high": found.high,
        "verdict": experiment.verdict,
        "gate": str(experiment.gate),
        "origin": experiment.origin,
    }


def _result(experiment: Experiment) -> Table:
    from tidyprof.plots.figure import duration_text

    found = experiment.speed_up
    sides = {"before": (found.before_ns, experiment.before_ns), "after": (found.after_ns, experiment.after_ns)}
    rows = [
        (
            f"{name}, per {experiment.per}",
            f"{duration_text(median)} (median of {len(times)}, "
            f"{duration_text(min(times))} to {duration_text(max(times))})",
        )
        for name, (median, times) in sides.items()
    ]
    rows.append(("speed-up", experiment.interval))
    rows += [
        (part.name, f"{'passed' if part.passed else 'not passed'}: {part.figures}") for part in experiment.gate.parts
    ]
    if not experiment.gate.parts:
        rows.append(("correctness gate", "not looked at; pass gate=CorrectnessGate.of_runs(before, after)"))
    rows.append(("verdict", experiment.verdict))
    note = f"Attempt {experiment.attempt}. {experiment.origin}"
    if len(set(experiment.before_ns)) == 1 and len(set(experiment.after_ns)) == 1:
        note = f"The repeats don't differ at all: they were computed or copied, and the interval says nothing. {note}"
    return Table(experiment.hypothesis, ("", "result"), rows, note)
