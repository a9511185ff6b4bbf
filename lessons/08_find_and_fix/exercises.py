"""Exercises of lesson 08, the blind clinic: a measured ladder, a trial without gradients,
patients.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proflab.display import near
from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.clinic import LETTERS, Patient, change

if TYPE_CHECKING:
    import pandas as pd

    from proflab.correctness_gate import Trial

CHANGE_TOLERANCE = 0.05
"""How far a change may be off, as a fraction."""

ASKED = "C"
"""The patient of 08.3."""


@cache
def suspects() -> dict[str, dict[str, str]]:
    """The lesson's table of suspects by name."""
    text = (Path(__file__).parent / "suspects.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {row["suspect"]: row for row in rows}


def fault_of(patient: Patient) -> str:
    """The suspect that was put into a run."""
    return next(name for name in suspects() if patient.is_ill_with(name))


def against(fault: str, patient: Patient) -> str:
    """What speaks against a suspect: its sign, and the figures of the control and of the
    patient.
    """
    from_to = "From the control to this one" if patient.healthy else "In this one"
    return f"With {fault}, {suspects()[fault]['sign']}. {from_to}: {figures(fault, patient)}."


def figures(fault: str, patient: Patient) -> str:
    """The part that a suspect lengthens and the sign that decides on it, in the control, if there
    is one, and here.
    """
    one, after = suspects()[fault], patient.signs
    names = (f"{one['lengthens']}_ms", one["decided_by"])
    names = tuple(name for name in names if not math.isnan(after[name]))
    before = {
        name: f"{patient.healthy.signs[name]:.4g} → " if patient.healthy else "" for name in names
    }
    return ", ".join(f"{name.replace('_', ' ')} {before[name]}{after[name]:.4g}" for name in names)


# 08.1: the measured ladder


def gated_part(ladder: pd.DataFrame) -> pd.DataFrame:
    """The rungs above the first one without a green gate, the plain trainer first; raises
    ValueError if that is all.
    """
    open_ones = [place for place, gate in enumerate(ladder["gate"]) if gate != "green"]
    kept = ladder.iloc[: open_ones[0]] if open_ones else ladder
    if len(kept) < 2:
        raise ValueError("the first change of the ladder has no green gate already")
    return kept


def overall(ladder: pd.DataFrame, column: str = "image_ns") -> float:
    """From the first row to the last, as a factor."""
    return float(ladder[column].iloc[0] / ladder[column].iloc[-1])


# 08.3: the changes


def changes(ward: Mapping[str, Patient]) -> pd.Series:
    """What is asked: the change of each part in ms, by the names of the budget's columns."""
    return _named(ward[ASKED].changes)


def _named(change: pd.Series) -> pd.Series:
    return change.rename(index=lambda part: f"{part}_ns")


def with_control_of(ward: Mapping[str, Patient], letter: str) -> pd.Series:
    """The asked patient, compared with the control of another one."""
    return _named(change(ward[ASKED], ward[letter].healthy))


def _equal(given: Mapping[str, float], other: pd.Series) -> bool:
    return all(
        math.isclose(given[name], other[name], rel_tol=0.01, abs_tol=1e-3) for name in other.index
    )


def changes_problem(answer: Any, ward: Mapping[str, Patient]) -> str | None:
    """What is wrong with a table of changes; None if each part is there and right."""
    right = changes(ward)
    try:
        given = {str(name): float(value) for name, value in dict(answer).items()}
    except (TypeError, ValueError):
        return f"A number for each part by its name is asked, this is a {type(answer).__name__}."
    if missing := [name for name in right.index if name not in given]:
        return (
            f"{missing[0]} is missing: the parts are the columns in ns but `start_ns` and"
            " `duration_ns`."
        )
    for letter, other in ward.items():
        if letter != ASKED and other.healthy and _equal(given, with_control_of(ward, letter)):
            return (
                f"This is patient {ASKED} minus the control of {letter}, another program. Take"
                " `patient.healthy`."
            )
        if letter != ASKED and _equal(given, _named(change(ward[ASKED], other))):
            return (
                f"This is patient {ASKED} minus patient {letter}, another program. Take"
                " `patient.healthy`."
            )
    if _equal(given, _named(change(ward[ASKED], ward[ASKED]) + _parts(ward[ASKED]))):
        return "This is how long the parts take. By how much are they longer than in the control?"
    largest = right.abs().idxmax()
    for factor, words in (
        (-1, "This is control minus patient."),
        (1e6, "This looks like ns; ms are asked."),
    ):
        if math.isclose(given[largest], factor * right[largest], rel_tol=CHANGE_TOLERANCE):
            return words
    wrong = [
        name
        for name in right.index
        if not math.isclose(given[name], right[name], rel_tol=0.01, abs_tol=1e-3)
    ]
    return f"{wrong[0]} is not right: {given[wrong[0]]:.4g}." if wrong else None


def _parts(patient: Patient) -> pd.Series:
    return patient.signs[[f"{part}_ms" for part in patient.changes.index]].rename(
        index=lambda name: name.removesuffix("_ms")
    )


# 08.4: the recorded patients


def _alternatives(fault: str) -> list[str]:
    part = suspects()[fault]["lengthens"]
    return [name for name, one in suspects().items() if one["lengthens"] == part and name != fault]


def diagnosis(patient: Patient) -> dict[str, str]:
    """The fault, and an alternative with the sign against it."""
    fault = fault_of(patient)
    alternative = _alternatives(fault)[0]
    return {
        "fault": fault,
        "alternative": alternative,
        "ruled_out_by": suspects()[alternative]["decided_by"],
    }


def diagnosis_problem(answer: Any, patient: Patient) -> str | None:
    """What is wrong with a diagnosis and its evidence; None if all is right."""
    wanted = diagnosis(patient)
    if not isinstance(answer, Mapping) or set(answer) != set(wanted):
        return f"A dictionary with {', '.join(f'`{name}`' for name in wanted)} is asked."
    fault, alternative, sign = (
        str(answer["fault"]),
        str(answer["alternative"]),
        str(answer["ruled_out_by"]),
    )
    for name in (fault, alternative):
        if name not in suspects():
            return f"`{name}` is not among the suspects: {near(name, suspects())}"
    if not patient.is_ill_with(fault):
        return against(fault, patient)
    if alternative not in _alternatives(fault):
        return (
            f"The fault is right, but {alternative} would not lengthen the same part: see `lengthens` in"
            " the suspects."
        )
    if sign not in (suspects()[alternative]["decided_by"], suspects()[fault]["decided_by"]):
        return (
            f"The fault is right, but {sign} doesn't tell it from {alternative}: which sign would be"
            " different?"
        )
    return None


def diagnoses(ward: Mapping[str, Patient]) -> dict[str, dict[str, str]]:
    """A diagnosis for each patient, by letter."""
    return {letter: diagnosis(ward[letter]) for letter in LETTERS}


def diagnoses_problem(answer: Any, ward: Mapping[str, Patient]) -> str | None:
    """What is wrong with the first wrong diagnosis; None if all are right."""
    if not isinstance(answer, Mapping) or set(answer) != set(LETTERS):
        return (
            f"A dictionary with {', '.join(f'`{letter}`' for letter in LETTERS)} is asked, each a"
            " dictionary."
        )
    for letter in LETTERS:
        if problem := diagnosis_problem(answer[letter], ward[letter]):
            return f"Patient {letter}: {problem}"
    return None


def _with(ward: Mapping[str, Patient], letter: str, **changed: Any) -> dict[str, dict[str, Any]]:
    """The right diagnoses, but for what is changed in that of one patient."""
    right = diagnoses(ward)
    return right | {letter: right[letter] | changed}


# 08.5: the modeled ones


def faults(ward: Mapping[str, Patient]) -> dict[str, str]:
    """What is wrong with each patient, by letter."""
    return {letter: fault_of(ward[letter]) for letter in LETTERS}


def faults_problem(answer: Any, ward: Mapping[str, Patient]) -> str | None:
    """Evidence against the first wrong suspect; None if all are right."""
    if not isinstance(answer, Mapping) or set(answer) != set(LETTERS):
        return (
            "A dictionary with a suspect for each of"
            f" {', '.join(f'`{letter}`' for letter in LETTERS)} is asked."
        )
    for letter in LETTERS:
        fault = str(answer[letter])
        if fault not in suspects():
            return (
                f"Patient {letter}: `{fault}` is not among the suspects: {near(fault, suspects())}"
            )
        if not ward[letter].is_ill_with(fault):
            return f"Patient {letter}: {against(fault, ward[letter])}"
    return None


def evidence_of_all(ward: Mapping[str, Patient]) -> str:
    """What each patient's fault shows."""
    return " ".join(
        f"{letter}: {against(fault_of(ward[letter]), ward[letter])}" for letter in LETTERS
    )


def alternative_of(patient: Patient) -> str:
    """Another suspect that lengthens the same part."""
    return _alternatives(fault_of(patient))[0]


# 08.2: the gate


def without_gradient(trials: tuple[Trial, Trial]) -> float:
    """Percent of the weights that have a gradient in the first trial and none in the second."""
    sizes = [one.numel() for one in trials[0].gradients]
    return (
        100
        * sum(size for size, one in zip(sizes, trials[1].gradients, strict=True) if one is None)
        / sum(sizes)
    )


def parameters_without(trials: tuple[Trial, Trial]) -> float:
    """Percent of the parameters without a gradient in the second trial, each counted once, whatever
    its size.
    """
    return 100 * sum(one is None for one in trials[1].gradients) / len(trials[1].gradients)


EXERCISES = (
    Exercise(
        id="08.1",
        answer=Number(lambda ladder: overall(gated_part(ladder)), unit="ratio"),
        mistakes=(
            Mistake(overall, "This goes to the last row, past gates that nobody has looked at."),
            Mistake(
                lambda ladder: overall(ladder.iloc[: len(gated_part(ladder)) + 1]),
                "This is one rung too many: its gate is open.",
            ),
            Mistake(
                lambda ladder: overall(ladder.iloc[:2]),
                "This is the first change alone. The next one has a green gate, too: count to the"
                " last before an open one.",
            ),
            Mistake(
                lambda ladder: overall(gated_part(ladder).iloc[-2:]),
                "This is the last gated change alone. Count from the plain trainer to it.",
            ),
            Mistake(
                lambda ladder: 1 / overall(gated_part(ladder)),
                "This is after over before: a speed-up is the longer time over the shorter one.",
            ),
            Mistake(
                lambda ladder: overall(gated_part(ladder), "median_ns"),
                "These are medians of steps, which hide the steps that waited. Take `image_ns`, the"
                " mean.",
            ),
        ),
        hints=(
            (
                "Go down the table until the first row whose `gate` is not `green`. That one"
                " doesn't count any more."
            ),
            "The `image_ns` of the first row over that of the last row that counts.",
        ),
        insight=lambda ladder: (
            f"{len(gated_part(ladder)) - 1} changes in a row have a green gate. The next rung looks"
            f" like {overall(ladder.iloc[: len(gated_part(ladder)) + 1]):.0f} times: another"
            " training, until somebody has looked."
        ),
    ),
    Exercise(
        id="08.2",
        answer=Number(without_gradient, unit="percent"),
        mistakes=(
            Mistake(
                parameters_without,
                "That is the share of the parameters, large and small. Add up their `.numel()`.",
            ),
            Mistake(
                lambda trials: 100 - without_gradient(trials),
                "That is the share that still learns.",
            ),
        ),
        hints=(
            "`zip(plainly.gradients, trials['trap'].gradients)` gives both for each parameter.",
            (
                "Add up `.numel()` of the plain one where the other one is None, and divide by the"
                " sum of all."
            ),
        ),
        insight=lambda trials: (
            f"These are {sum(one is None for one in trials[1].gradients)} of"
            f" {len(trials[1].gradients)} parameters, all in the last block. In your own script:"
            " `[name for name, weights in model.named_parameters() if weights.grad is None]` after"
            " `loss.backward()`."
        ),
    ),
    Exercise(
        id="08.3",
        answer=Property(changes_problem, changes),
        mistakes=(
            Mistake(lambda ward: -changes(ward), "This is control minus patient."),
            Mistake(lambda ward: changes(ward) * 1e6, "This looks like ns"),
            Mistake(
                lambda ward: with_control_of(ward, "A"), "minus the control of A, another program"
            ),
            Mistake(
                lambda ward: _named(change(ward[ASKED], ward["B"])),
                "minus patient B, another program",
            ),
            Mistake(lambda ward: _named(_parts(ward[ASKED])), "This is how long the parts take."),
        ),
        hints=(
            "`tidyprof.step_budget(patient.profile)` is the patient's budget.",
            (
                'The parts: `[one for one in budget if one.endswith("_ns") and one not in'
                ' ("start_ns", "duration_ns")]`.'
            ),
            "`table[parts].median()` of each, their difference, over 1e6.",
        ),
        insight=lambda ward: (
            f"The largest change is {ward[ASKED].changes.abs().idxmax().replace('_', ' ')}. Which"
            " suspects do that?"
        ),
    ),
    Exercise(
        id="08.4",
        answer=Property(diagnoses_problem, diagnoses),
        mistakes=(
            Mistake(
                lambda ward: _with(ward, "A", fault="outside-torch"),
                "Patient A: With outside-torch, one long gap",
            ),
            Mistake(
                lambda ward: _with(ward, "B", fault="tiny-batch"),
                "Patient B: With tiny-batch, as many kernels",
            ),
            Mistake(
                lambda ward: _with(ward, "C", fault="many-small-kernels"),
                "Patient C: With many-small-kernels, more element-wise kernels run",
            ),
            Mistake(
                lambda ward: _with(ward, "C", fault="only-the-profiler"),
                "busy percent 97.31 → 33.91",
            ),
            Mistake(
                lambda ward: _with(ward, "B", fault="no-bottleneck"),
                "`no-bottleneck` is not among the suspects",
            ),
            Mistake(
                lambda ward: _with(ward, "C", alternative="slow-loader"),
                "would not lengthen the same part",
            ),
            Mistake(
                lambda ward: _with(ward, "C", ruled_out_by="kernels"),
                "kernels doesn't tell it from",
            ),
            Mistake(lambda ward: diagnosis(ward["A"]), "A dictionary with `A`, `B`, `C` is asked"),
        ),
        hints=(
            (
                "All three lengthen, or seem to lengthen, one part. Its suspects are alternatives: go"
                " through `decided_by`."
            ),
            "A: which count grew by hundreds? C: no count grew at all. What did?",
            "B has no control. But somebody timed it without the profiler: `busy_percent`.",
        ),
        insight=evidence_of_all,
    ),
    Exercise(
        id="08.5",
        answer=Property(faults_problem, faults),
        mistakes=(
            Mistake(
                lambda ward: faults(ward) | {"C": alternative_of(ward["C"])},
                lambda ward: f"Patient C: {against(alternative_of(ward['C']), ward['C'])}",
            ),
            Mistake(
                lambda ward: faults(ward) | {"A": "gpu"},
                "Patient A: `gpu` is not among the suspects",
            ),
            Mistake(lambda ward: fault_of(ward["A"]), "A dictionary with a suspect for each of"),
        ),
        hints=(
            "First the part that grew most, from `patient.changes`: which suspects lengthen it?",
            "Between two of them the sign in `decided_by` tells: before and after it.",
            (
                "Where `launch_bound` grew: copies to the host, element-wise or copy kernels? If"
                " none, the mean kernel."
            ),
        ),
        insight=evidence_of_all,
    ),
)
