"""Exercises of lesson 08, the blind clinic: patients, a trial without gradients, a ladder of experiments."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proflab.display import near
from proflab.exercises import Exercise, Mistake, Number, Property
from proflab.parts.clinic import LETTERS, Patient, waiting_room

if TYPE_CHECKING:
    import pandas as pd

    from proflab.correctness_gate import Trial
    from proflab.ledger.entries import Experiment

CHANGE_TOLERANCE = 0.05
"""How far a change may be off, as a fraction."""


@cache
def suspects() -> dict[str, dict[str, str]]:
    """The lesson's table of suspects by name."""
    text = (Path(__file__).parent / "suspects.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {row["suspect"]: row for row in rows}


def against(fault: str, patient: Patient) -> str:
    """What speaks against a suspect: its sign, and the figures of the healthy run and of the patient."""
    return f"With {fault}, {suspects()[fault]['sign']}. From the healthy run to this one: {figures(fault, patient)}."


def figures(fault: str, patient: Patient) -> str:
    """The part that a suspect lengthens and the sign that decides on it, each in the healthy run and in the patient."""
    one, before, after = suspects()[fault], patient.healthy.signs, patient.signs
    names = (f"{one['lengthens']}_ms", one["decided_by"])
    return ", ".join(f"{name.replace('_', ' ')} {before[name]:.4g} → {after[name]:.4g}" for name in names)


# 08.3: the changes


def changes(patient: Patient) -> pd.Series:
    """What is asked: the change of each part in ms, by the names of the budget's columns."""
    return patient.changes.rename(index=lambda part: f"{part}_ns")


def changes_problem(answer: Any, patient: Patient) -> str | None:
    """What is wrong with a table of changes; None if each part is there and right."""
    right = changes(patient)
    try:
        given = {str(name): float(value) for name, value in dict(answer).items()}
    except (TypeError, ValueError):
        return f"A number for each part by its name is asked, this is a {type(answer).__name__}."
    if missing := [name for name in right.index if name not in given]:
        return f"{missing[0]} is missing: the parts are the columns in ns but `start_ns` and `duration_ns`."
    largest = right.abs().idxmax()
    for factor, words in ((-1, "This is healthy minus sick."), (1e6, "This looks like ns; ms are asked.")):
        if math.isclose(given[largest], factor * right[largest], rel_tol=CHANGE_TOLERANCE):
            return words
    wrong = [name for name in right.index if not math.isclose(given[name], right[name], rel_tol=0.01, abs_tol=1e-3)]
    return f"{wrong[0]} is not right: {given[wrong[0]]:.4g}." if wrong else None


# 08.4: the differential


def differential(before: pd.Series, after: pd.Series) -> str:
    """The suspect that the signs speak for, or "healthy"."""
    grew, much = after - before, 0.2 * before["step_ms"]
    if grew["exposed_communication_ms"] > much:
        return "slow-network" if grew["transfer_ms"] > grew["waiting_ms"] else "rank-skew"
    if grew["data_wait_ms"] > much:
        return "unpinned-copies" if grew["copies_to_device"] > 100 else "slow-loader"
    names = {one["decided_by"]: fault for fault, one in suspects().items() if one["lengthens"] == "launch_bound"}
    counts = [name for name in names if name != "mean_kernel_us"]
    most = grew[counts].idxmax()
    if grew[most] > 100:
        return names[most]
    return "tiny-batch" if after["mean_kernel_us"] < 0.8 * before["mean_kernel_us"] else "healthy"


def differential_problem(answer: Any, healthy: Patient) -> str | None:
    """Evidence against the first wrong verdict of a differential; None if it is right about every run."""
    if not callable(answer):
        return f"A function differential(before, after) is asked, this is a {type(answer).__name__}."
    room = waiting_room()
    said = {fault: answer(patient.healthy.signs, patient.signs) for fault, patient in room.items()}
    wrong = [fault for fault, patient in room.items() if not patient.is_ill_with(said[fault])]
    if not wrong:
        return None
    first, share = said[wrong[0]], f"It is wrong about {len(wrong)} of {len(room)} runs."
    if wrong[0].startswith("healthy"):
        return f"{share} The healthy run compared with itself is `healthy`, not `{first}`."
    if first not in suspects():
        return f"{share} About one it says `{first}`. What grew there: {figures(wrong[0], room[wrong[0]])}."
    return f"{share} About one it says {first}. {against(first, room[wrong[0]])}"


def _by_part_alone(before: pd.Series, after: pd.Series) -> str:
    return "slow-loader" if (after - before)["data_wait_ms"] > 5 else differential(before, after)


def _by_blame(before: pd.Series, after: pd.Series) -> str:
    late = after["waits_for_one_rank_percent"] > 50 and after["exposed_communication_ms"] > 20
    return "rank-skew" if late else differential(before, after)


def _by_counts_alone(before: pd.Series, after: pd.Series) -> str:
    found = differential(before, after)
    return "healthy" if found == "tiny-batch" else found


def _by_kernels_first(before: pd.Series, after: pd.Series) -> str:
    return "tiny-batch" if after["mean_kernel_us"] < before["mean_kernel_us"] - 0.5 else differential(before, after)


def _by_times_alone(before: pd.Series, after: pd.Series) -> str:
    longest = (after - before)[["exposed_communication_ms", "data_wait_ms", "launch_bound_ms", "blocked_host_ms"]].max()
    return differential(before, after) if longest > 0.2 * before["step_ms"] else "healthy"


# 08.5: the patients


def diagnosis(patient: Patient) -> dict[str, Any]:
    """The fault that the signs speak for, the largest change, and a rival with the sign against it."""
    fault = differential(patient.healthy.signs, patient.signs)
    rival = _rivals(fault)[0]
    change = float(patient.changes[patient.changes.abs().idxmax()])
    return {"fault": fault, "change_ms": change, "rival": rival, "ruled_out_by": suspects()[rival]["decided_by"]}


def _rivals(fault: str) -> list[str]:
    part = suspects()[fault]["lengthens"]
    return [name for name, one in suspects().items() if one["lengthens"] == part and name != fault]


def diagnosis_problem(answer: Any, patient: Patient) -> str | None:
    """What is wrong with a diagnosis and its evidence; None if all is right."""
    wanted = diagnosis(patient)
    if not isinstance(answer, Mapping) or set(answer) != set(wanted):
        return f"A dictionary with {', '.join(f'`{name}`' for name in wanted)} is asked."
    fault, rival, sign = str(answer["fault"]), str(answer["rival"]), str(answer["ruled_out_by"])
    for name in (fault, rival):
        if name not in suspects():
            return f"`{name}` is not among the suspects: {near(name, suspects())}"
    if not patient.is_ill_with(fault):
        return against(fault, patient)
    if rival not in _rivals(fault):
        return f"The fault is right, but {rival} would not lengthen the same part: see `lengthens` in the suspects."
    if sign not in (suspects()[rival]["decided_by"], suspects()[fault]["decided_by"]):
        return f"The fault is right, but {sign} doesn't tell it from {rival}: which count would be different?"
    return _change_problem(float(answer["change_ms"]), wanted["change_ms"], patient)


def _change_problem(given: float, right: float, patient: Patient) -> str | None:
    if math.isclose(given, right, rel_tol=CHANGE_TOLERANCE):
        return None
    if math.isclose(given, patient.signs[f"{patient.changes.abs().idxmax()}_ms"], rel_tol=CHANGE_TOLERANCE):
        return "This is how long the part takes. How much longer than in the healthy run?"
    return "The fault is right, `change_ms` is not: take the part that changed most, patient minus healthy, in ms."


def _wrong_fault(patient: Patient) -> str:
    return next(name for name in suspects() if not patient.is_ill_with(name))


def diagnoses(ward: Mapping[str, Patient]) -> dict[str, dict[str, Any]]:
    """A diagnosis for each patient, by letter."""
    return {letter: diagnosis(ward[letter]) for letter in LETTERS}


def diagnoses_problem(answer: Any, ward: Mapping[str, Patient]) -> str | None:
    """What is wrong with the first wrong diagnosis; None if all are right."""
    if not isinstance(answer, Mapping) or set(answer) != set(LETTERS):
        return f"A dictionary with {', '.join(f'`{letter}`' for letter in LETTERS)} is asked, each a dictionary."
    for letter in LETTERS:
        if problem := diagnosis_problem(answer[letter], ward[letter]):
            return f"Patient {letter}: {problem}"
    return None


def _with(ward: Mapping[str, Patient], **changed: Any) -> dict[str, dict[str, Any]]:
    """The right diagnoses, but for what is changed in that of the last patient."""
    right, last = diagnoses(ward), LETTERS[-1]
    return right | {last: right[last] | changed}


# 08.1 and 08.2: ladder and gate


def without_gradient(trials: tuple[Trial, Trial]) -> float:
    """Percent of the weights that have a gradient in the first trial and none in the second."""
    sizes = [one.numel() for one in trials[0].gradients]
    return 100 * sum(size for size, one in zip(sizes, trials[1].gradients, strict=True) if one is None) / sum(sizes)


def parameters_without(trials: tuple[Trial, Trial]) -> float:
    """Percent of the parameters without a gradient in the second trial, each counted once, whatever its size."""
    return 100 * sum(one is None for one in trials[1].gradients) / len(trials[1].gradients)


def gated_part(ladder: Sequence[Experiment]) -> list[Experiment]:
    """The changes above the first one whose gate is not green; raises ValueError if that is the first."""
    kept = list(ladder[: next((place for place, one in enumerate(ladder) if not one.gate.green), len(ladder))])
    if not kept:
        raise ValueError("the first change of the ladder has no green gate already")
    return kept


def overall(ladder: Sequence[Experiment]) -> float:
    """From before the first change to after the last, as a factor."""
    return ladder[0].speed_up.before_ns / ladder[-1].speed_up.after_ns


def _always(verdict: str) -> Callable[[Any], Any]:
    return lambda data: lambda before, after: verdict


EXERCISES = (
    Exercise(
        id="08.3",
        answer=Property(changes_problem, changes),
        mistakes=(
            Mistake(lambda patient: -changes(patient), "This is healthy minus sick."),
            Mistake(lambda patient: changes(patient) * 1e6, "This looks like ns"),
        ),
        hints=(
            "`tidyprof.step_budget(patient.profile)` is the patient's budget.",
            'The parts: `[one for one in budget if one.endswith("_ns") and one not in ("start_ns", "duration_ns")]`.',
            "`table[parts].median()` of each, their difference, over 1e6.",
        ),
        insight=lambda patient: (
            f"The largest change is {patient.changes.abs().idxmax().replace('_', ' ')}. Which suspects do that?"
        ),
    ),
    Exercise(
        id="08.4",
        answer=Property(differential_problem, lambda healthy: differential),
        mistakes=(
            Mistake(lambda healthy: _by_part_alone, "About one it says slow-loader. With slow-loader, the wait"),
            Mistake(_always("rank-skew"), "The healthy run compared with itself"),
            Mistake(_always("healthy"), "About one it says `healthy`. What grew there:"),
            Mistake(lambda healthy: _by_times_alone, "elementwise kernels"),
            Mistake(
                lambda healthy: _by_blame,
                "About one it says rank-skew. With rank-skew, the waiting in collectives grows, and the transfer stays",
            ),
            Mistake(lambda healthy: _by_counts_alone, "About one it says `healthy`. What grew there: launch bound ms"),
            Mistake(
                lambda healthy: _by_kernels_first, "About one it says tiny-batch. With tiny-batch, as many kernels"
            ),
        ),
        hints=(
            "`grew = after - before`. First the parts that are easy: communication, then the wait for data.",
            "Of communication ask which of its two parts grew: `waiting_ms` or `transfer_ms`.",
            "Launch-bound idle alone tells little. Did copies to the host grow most, element-wise or copy kernels?",
            "`grew[names].idxmax()` is the count that grew most. Below a hundred more, only `mean_kernel_us` can tell.",
        ),
        insight=lambda healthy: (
            f"It was right about {len(waiting_room())} runs, most of which you have not seen: that is what a rule is "
            "good for."
        ),
    ),
    Exercise(
        id="08.5",
        answer=Property(diagnoses_problem, diagnoses),
        mistakes=(
            Mistake(
                lambda ward: _with(ward, fault=_wrong_fault(ward[LETTERS[-1]])),
                lambda ward: f"Patient C: {against(_wrong_fault(ward[LETTERS[-1]]), ward[LETTERS[-1]])}",
            ),
            Mistake(
                lambda ward: _with(ward, change_ms=3 * diagnosis(ward[LETTERS[-1]])["change_ms"]),
                "`change_ms` is not",
            ),
            Mistake(
                lambda ward: _with(ward, rival=diagnosis(ward[LETTERS[-1]])["fault"]),
                "would not lengthen the same part",
            ),
            Mistake(lambda ward: _with(ward, ruled_out_by="ranks"), "ranks doesn't tell it from"),
            Mistake(lambda ward: diagnosis(ward[LETTERS[0]]), "A dictionary with `A`, `B`, `C` is asked"),
        ),
        hints=(
            "Start with the chart: which bar is longest? The suspects that lengthen just that part are rivals.",
            "Which sign did your differential ask between two rivals? That one rules the other out.",
            "`patient.changes[patient.changes.abs().idxmax()]` is the largest change.",
        ),
        insight=lambda ward: " ".join(
            f"{letter}: {against(diagnosis(ward[letter])['fault'], ward[letter])}" for letter in LETTERS
        ),
    ),
    Exercise(
        id="08.2",
        answer=Number(without_gradient, unit="percent"),
        mistakes=(
            Mistake(
                parameters_without, "That is the share of the parameters, large and small. Add up their `.numel()`."
            ),
            Mistake(lambda trials: 100 - without_gradient(trials), "That is the share that still learns."),
        ),
        hints=(
            "`zip(plainly.gradients, trials['trap'].gradients)` gives both for each parameter.",
            "Add up `.numel()` of the plain one where the other one is None, and divide by the sum of all.",
        ),
        insight=lambda trials: (
            f"These are {sum(one is None for one in trials[1].gradients)} of {len(trials[1].gradients)} parameters, "
            "all in the last block. In your own script: `[name for name, weights in model.named_parameters() if "
            "weights.grad is None]` after `loss.backward()`."
        ),
    ),
    Exercise(
        id="08.1",
        measured=True,
        answer=Number(lambda ladder: overall(gated_part(ladder)), unit="ratio"),
        mistakes=(
            Mistake(overall, "This is the whole ladder, with changes whose gate nobody has looked at."),
            Mistake(
                lambda ladder: ladder[0].speed_up.ratio,
                "This is the first change alone. The next one has a green gate, too: count to the last before an open "
                "one.",
            ),
            Mistake(
                lambda ladder: gated_part(ladder)[-1].speed_up.ratio,
                "This is the last gated change alone. Count from before the first one to after it.",
            ),
            Mistake(
                lambda ladder: math.prod(one.speed_up.ratio for one in ladder if one.gate.green),
                "A green gate below an open one doesn't close that one: the chain ends at the first open gate.",
            ),
        ),
        hints=(
            "Go down the waterfall until the first hatched bar.",
            "Each experiment has `gate.green` and `speed_up.before_ns`, `speed_up.after_ns`, per image.",
        ),
        insight=lambda ladder: (
            f"{len(gated_part(ladder))} of {len(ladder)} changes have a green gate. The whole ladder promises "
            f"{overall(ladder):.1f} times. Both are promises of a model: a reason to measure on a GPU, no result."
        ),
    ),
)
