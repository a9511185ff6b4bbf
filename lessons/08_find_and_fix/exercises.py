"""Exercises of lesson 08: a sequence of fixes, lost gradients, and faulty runs."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proflab.display import near
from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.exercises.answers import likely_mistake
from proflab.parts.faulty_runs import LETTERS, Run, change

if TYPE_CHECKING:
    import pandas as pd

    from proflab.correctness_gate import Trial

ASKED = "C"
"""Letter of the run in 08.3."""


@cache
def suspects() -> dict[str, dict[str, str]]:
    """Return the lesson's table of suspects by name."""
    text = (Path(__file__).parent / "suspects.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {row["suspect"]: row for row in rows}


def fault_of(run: Run) -> str:
    """Return the suspect that was injected into a run."""
    return next(name for name in suspects() if run.has_fault(name))


def against(fault: str, run: Run) -> str:
    """Return a sentence on what a fault would show, and the numbers of the control and the run."""
    one, words = suspects()[fault], []
    for name in (f"{one['lengthens']}_ms", one["decided_by"]):
        if not math.isnan(run.indicators[name]):
            before = f"{run.control.indicators[name]:.4g} → " if run.control else ""
            words.append(f"{name.replace('_', ' ')} {before}{run.indicators[name]:.4g}")
    compared = "From the control to this run" if run.control else "In this run"
    return f"With {fault}, {one['effect']}. {compared}: {', '.join(words)}."


def by_letter(answer: Any, check: Callable[[Any, str], str | None]) -> str | None:
    """Return the problem of the first run whose entry fails the check, None if all entries pass."""
    if not isinstance(answer, Mapping) or set(answer) != set(LETTERS):
        return "Your answer needs one entry per run. Give a dictionary with the keys A, B and C."
    problems = ((letter, check(answer[letter], letter)) for letter in LETTERS)
    return next((f"Run {letter}: {problem}" for letter, problem in problems if problem), None)


def unknown(name: str) -> str | None:
    """Return a hint at similar names if a name isn't in the table of suspects."""
    if name in suspects():
        return None
    return f"`{name}` is not in the table of suspects: {near(name, suspects())}"


# 08.1: the measured sequence of fixes


def gated_part(fixes: pd.DataFrame) -> pd.DataFrame:
    """Return the rows above the first row without a green gate. Raises ValueError if only one is
    left.
    """
    kept = fixes[fixes["gate"].eq("green").cummin()]
    if len(kept) < 2:
        raise ValueError("the first change has no green gate")
    return kept


def overall(fixes: pd.DataFrame, column: str = "image_ns") -> float:
    """Return the speedup from the first row to the last."""
    return float(fixes[column].iloc[0] / fixes[column].iloc[-1])


# 08.2: the gate


def without_gradient(trials: tuple[Trial, Trial]) -> float:
    """Return the percentage of weights that have a gradient only in the first trial."""
    sizes = [one.numel() for one in trials[0].gradients]
    pairs = zip(sizes, trials[1].gradients, strict=True)
    return 100 * sum(size for size, one in pairs if one is None) / sum(sizes)


def parameters_without(trials: tuple[Trial, Trial]) -> float:
    """Return the percentage of parameters without a gradient, each counted once."""
    return 100 * sum(one is None for one in trials[1].gradients) / len(trials[1].gradients)


# 08.3: the changes


def changes(runs: Mapping[str, Run]) -> pd.Series:
    """Return the right answer: the change of each part in ms, by the names of the budget's columns."""
    return _named(runs[ASKED].changes)


def _named(parts: pd.Series) -> pd.Series:
    return parts.rename(index=lambda part: f"{part.removesuffix('_ms')}_ns")


def _means(runs: Mapping[str, Run]) -> pd.Series:
    import tidyprof

    own, well = (
        tidyprof.step_budget(run.profile)[list(changes(runs).index)].mean() / 1e6
        for run in (runs[ASKED], runs[ASKED].control)
    )
    return own - well


def _parts(runs: Mapping[str, Run]) -> pd.Series:
    run = runs[ASKED]
    return _named(run.indicators[[f"{part}_ms" for part in run.changes.index]])


WRONG_CHANGES: dict[str, Callable[[Mapping[str, Run]], pd.Series]] = {
    "You subtracted the control of run A, which is another program. Subtract `run.control`.": (
        lambda runs: _named(change(runs[ASKED], runs["A"].control))
    ),
    "You subtracted run B, which is another program. Subtract `run.control`.": (
        lambda runs: _named(change(runs[ASKED], runs["B"]))
    ),
    "You compared run A with its control. Use run C.": lambda runs: _named(runs["A"].changes),
    "You gave the length of each part in run C. Subtract its length in the control.": _parts,
    "You used means over the steps. Use medians, which a single unusual step hardly affects.": _means,
}
"""Feedback -> the wrong answer that it belongs to."""


def _equal(given: Mapping[str, float], other: pd.Series) -> bool:
    return all(
        math.isclose(given[name], other[name], rel_tol=0.01, abs_tol=1e-3) for name in other.index
    )


def changes_problem(answer: Any, runs: Mapping[str, Run]) -> str | None:
    """Return the problem of a table of changes, None if each part is right."""
    right = changes(runs)
    try:
        given = {str(name): float(value) for name, value in dict(answer).items()}
    except (TypeError, ValueError):
        return (
            "Your answer isn't a table of numbers. Give a Series or a dictionary with a number"
            " per part."
        )
    if missing := [name for name in right.index if name not in given]:
        return (
            f"The part {missing[0]} is missing. Include all `_ns` columns except `start_ns` and"
            " `duration_ns`."
        )
    if _equal(given, right):
        return None
    found = (words for words, wrong in WRONG_CHANGES.items() if _equal(given, wrong(runs)))
    largest = right.abs().idxmax()
    hint = likely_mistake(given[largest], right[largest], "ms")
    return next(found, hint or f"{largest} should not be {given[largest]:.4g}.")


# 08.4: the recorded runs


def alternatives(fault: str) -> list[str]:
    """Return the other suspects that lengthen the same part of the step."""
    part = suspects()[fault]["lengthens"]
    return [name for name, one in suspects().items() if one["lengthens"] == part and name != fault]


def deciding(alternative: str, run: Run) -> str:
    """Return the indicator that rules out an alternative. Without a control, counts rule out
    nothing, but the share of time that the device is busy does.
    """
    return suspects()[alternative]["decided_by"] if run.control else "busy_percent"


def diagnosis(run: Run) -> dict[str, str]:
    """Return a right diagnosis: the fault, an alternative, and the indicator against it."""
    fault = fault_of(run)
    alternative = alternatives(fault)[0]
    ruled_out_by = deciding(alternative, run)
    return {"fault": fault, "alternative": alternative, "ruled_out_by": ruled_out_by}


def diagnosis_problem(answer: Any, run: Run) -> str | None:
    """Return the problem of a diagnosis and its evidence, None if all is right."""
    if not isinstance(answer, Mapping) or set(answer) != set(diagnosis(run)):
        return "Give a dictionary with `fault`, `alternative` and `ruled_out_by`."
    fault, alternative, indicator = (str(answer[key]) for key in diagnosis(run))
    if problem := unknown(fault) or unknown(alternative):
        return problem
    if not run.has_fault(fault):
        return f"{against(fault, run)}{'' if run.control else _BUSY}"
    if alternative not in alternatives(fault):
        return (
            f"The fault is right, but {alternative} doesn't lengthen the same part. Choose a"
            " suspect with the same value in `lengthens`."
        )
    if indicator == deciding(alternative, run):
        return None
    if not run.control and indicator == suspects()[alternative]["decided_by"]:
        return f"The fault is right, but {indicator} without a control rules out nothing.{_BUSY}"
    if indicator == suspects()[fault]["decided_by"]:
        return (
            f"The fault is right, but {indicator} is evidence for it, not against {alternative}."
            " Name the indicator that the alternative would have changed, but that didn't change."
        )
    return (
        f"The fault is right, but {indicator} doesn't rule out {alternative}. Look up `decided_by`"
        " of the alternative."
    )


_BUSY = " Look at `busy_percent`, which needs no control."


def diagnoses(runs: Mapping[str, Run]) -> dict[str, dict[str, str]]:
    """Return a right diagnosis of each run, by letter."""
    return {letter: diagnosis(runs[letter]) for letter in LETTERS}


def _wrong(letter: str, words: str, **changed: str) -> Mistake:
    """Return a mistake in the diagnosis of one run, and words of its feedback."""
    return Mistake(
        lambda runs: diagnoses(runs) | {letter: diagnosis(runs[letter]) | changed}, words
    )


# 08.5: the modeled runs


def faults(runs: Mapping[str, Run]) -> dict[str, str]:
    """Return the fault of each run, by letter."""
    return {letter: fault_of(runs[letter]) for letter in LETTERS}


def fault_problem(fault: Any, run: Run) -> str | None:
    """Return evidence against a wrong suspect, None if it is right."""
    return unknown(str(fault)) or (None if run.has_fault(str(fault)) else against(str(fault), run))


def evidence_of_all(runs: Mapping[str, Run]) -> str:
    """Return what each run's fault shows."""
    return " ".join(f"{one}: {against(fault_of(runs[one]), runs[one])}" for one in LETTERS)


EXERCISES = (
    Exercise(
        id="08.1",
        answer=Number(lambda fixes: overall(gated_part(fixes)), unit="times"),
        mistakes=(
            Mistake(
                lambda fixes: overall(fixes.iloc[: len(gated_part(fixes)) + 1]),
                "You went too far, to a row without a green gate. Stop one row earlier.",
            ),
            Mistake(
                lambda fixes: overall(gated_part(fixes).iloc[:-1]),
                "You stopped one row too early. The next row has a green gate as well.",
            ),
            Mistake(
                lambda fixes: overall(fixes.iloc[:2]),
                "You used only the first change. Go down to the last row with a green gate.",
            ),
            Mistake(
                lambda fixes: overall(gated_part(fixes).iloc[-2:]),
                "You used only the last change. Start at the plain trainer.",
            ),
            Mistake(
                lambda fixes: overall(gated_part(fixes), "median_ns"),
                "You used medians, which hide the steps that waited. Use the mean, `image_ns`.",
            ),
        ),
        hints=(
            "Go down the table to the first row whose `gate` isn't `green`. Ignore that row and all"
            " rows below it.",
            "Divide `image_ns` of the first row by `image_ns` of the last row that is left.",
        ),
        insight=lambda fixes: (
            f"The next row suggests {overall(fixes.iloc[: len(gated_part(fixes)) + 1]):.0f} times,"
            " but a larger batch changes the training, and we haven't run its gate."
        ),
    ),
    Exercise(
        id="08.2",
        answer=Number(without_gradient, unit="percent"),
        mistakes=(
            Mistake(
                parameters_without,
                "You counted each parameter once, regardless of its size. Add up their `.numel()`.",
            ),
            Mistake(
                lambda trials: 100 - parameters_without(trials),
                "You counted the parameters that still learn. Add up `.numel()` of those that"
                " don't.",
            ),
        ),
        hints=(
            "Pair the gradients with `zip(trials['plain'].gradients, trials['trap'].gradients)`.",
            "Add up `.numel()` of each plain gradient whose counterpart is None. Divide by the sum"
            " over all plain gradients.",
        ),
        insight=lambda trials: (
            f"{sum(one is None for one in trials[1].gradients)} of {len(trials[1].gradients)}"
            " parameters get no gradient, and all of them are in the last block. In your own"
            " script, print `[name for name, weights in model.named_parameters() if weights.grad"
            " is None]` after `loss.backward()`."
        ),
    ),
    Exercise(
        id="08.3",
        answer=Property(changes_problem, changes),
        mistakes=tuple(Mistake(wrong, words) for words, wrong in WRONG_CHANGES.items()),
        hints=(
            "Call `tidyprof.step_budget(run.profile)` for the run and for its control.",
            'Select the parts: `[one for one in budget if one.endswith("_ns") and one not in'
            ' ("start_ns", "duration_ns")]`.',
            "Subtract `budget[parts].median()` of the control, and divide by 1e6.",
        ),
        insight=lambda runs: (
            f"{runs[ASKED].changes.abs().idxmax().replace('_', ' ').capitalize()} changes most, but"
            " several suspects can cause that."
        ),
    ),
    Exercise(
        id="08.4",
        answer=Property(
            lambda answer, runs: by_letter(
                answer, lambda one, letter: diagnosis_problem(one, runs[letter])
            ),
            diagnoses,
        ),
        mistakes=(
            _wrong(
                "A", "Run A: With outside-torch, each step has one long gap", fault="outside-torch"
            ),
            _wrong("B", "Run B: With tiny-batch, the number of kernels", fault="tiny-batch"),
            _wrong("B", "which needs no control", fault="many-small-kernels"),
            _wrong("C", "the number of element-wise kernels grows", fault="many-small-kernels"),
            _wrong("C", "busy percent 97.31 → 33.91", fault="only-the-profiler"),
            _wrong("C", "doesn't lengthen the same part", alternative="slow-loader"),
            _wrong("A", "is evidence for it", ruled_out_by="copies_to_host"),
            _wrong("B", "rules out nothing", ruled_out_by="copies_to_host"),
            _wrong("C", "kernels doesn't rule out", ruled_out_by="kernels"),
            Mistake(lambda runs: diagnosis(runs["A"]), "Your answer needs one entry per run"),
        ),
        hints=(
            "All three runs have launch-bound idle time. Compare the suspects that lengthen it, and"
            " look at their `decided_by`.",
            "For A, find the count that grew by hundreds. For C, no count grew, so look at a time.",
            "B has no control, but we timed its step without the profiler, so use `busy_percent`.",
        ),
        insight=evidence_of_all,
    ),
    Exercise(
        id="08.5",
        answer=Property(
            lambda answer, runs: by_letter(
                answer, lambda one, letter: fault_problem(one, runs[letter])
            ),
            faults,
        ),
        mistakes=(
            Mistake(
                lambda runs: faults(runs) | {"C": alternatives(fault_of(runs["C"]))[0]},
                lambda runs: f"Run C: {against(alternatives(fault_of(runs['C']))[0], runs['C'])}",
            ),
            Mistake(lambda runs: fault_of(runs["A"]), "Your answer needs one entry per run"),
        ),
        hints=(
            "Use `run.changes` to find the part that grew most, and look up the suspects that"
            " lengthen it.",
            "For each of these suspects, compare the indicator in `decided_by` with the control.",
            "If `launch_bound` grew, check copies to the host first, then element-wise and copy"
            " kernels, and finally the mean kernel duration.",
        ),
        insight=evidence_of_all,
    ),
)
