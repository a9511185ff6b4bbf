"""Exercises of lesson 08, the blind clinic: a Patient, a CorrectnessGate, experiments, or a Ladder as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proflab.correctness_gate import REQUIRED, CorrectnessGate
from proflab.display import near
from proflab.exercises import Choice, Exercise, Mistake, Number, Property
from proflab.parts.clinic import SUSPECTS, Patient, against, differential

if TYPE_CHECKING:
    from proflab.ledger.entries import Experiment

CHANGE_TOLERANCE = 0.05
"""How far `change_ms` may be off, as a fraction."""

CHALLENGE_FACTOR = 2.0
CHALLENGE_OPTIONS = 2
"""The open challenge: so many times the plain trainer's images/s, with at most so many options."""


def part_percent(healthy: Patient, part: str = "launch_bound") -> float:
    """Share of the step that a part takes, in percent."""
    return 100 * healthy.signs[f"{part}_ms"] / healthy.signs["step_ms"]


def plain_percent() -> float:
    """Launch-bound share of the modelled step that no profiler watches, in percent."""
    from proflab.parts.clinic_runs import plain_step

    step = plain_step()
    return 100 * step["launch_bound_ms"] / step["step_ms"]


def diagnosis(patient: Patient) -> dict[str, Any]:
    """The fault that the signs speak for, and the part that changed most."""
    table = differential(patient)
    part, change_ms = patient.largest_change
    return {"fault": table.loc[table["fits"], "suspect"].iloc[0], "part": part, "change_ms": change_ms}


def diagnosis_problem(answer: Any, patient: Patient) -> str | None:
    """What is wrong with a diagnosis and its evidence; None if both are right."""
    if not isinstance(answer, Mapping) or set(answer) != {"fault", "part", "change_ms"}:
        return "A dictionary with `fault`, `part` and `change_ms` is asked."
    fault, part = str(answer["fault"]), str(answer["part"])
    if fault not in SUSPECTS:
        return f"`{fault}` is not among the suspects: {near(fault, SUSPECTS)}"
    names = patient.changes["part"].tolist()
    if part not in names:
        return f"`{part}` is no part of the step: {near(part, names)}"
    if not patient.is_ill_with(fault):
        return against(SUSPECTS[fault], patient)
    right_part, right_ms = patient.largest_change
    if part != right_part:
        return f"The fault is right, the evidence is not: another part changed more than {part.replace('_', ' ')}."
    return _change_problem(float(answer["change_ms"]), right_ms, patient)


def _change_problem(given_ms: float, right_ms: float, patient: Patient) -> str | None:
    if math.isclose(given_ms, right_ms, rel_tol=CHANGE_TOLERANCE):
        return None
    part = patient.largest_change[0]
    if math.isclose(given_ms, patient.signs[f"{part}_ms"], rel_tol=CHANGE_TOLERANCE):
        return "This is how long the part takes. How much longer than in the healthy run?"
    if math.isclose(given_ms, right_ms * 1e6, rel_tol=CHANGE_TOLERANCE):
        return "This looks like ns; ms are asked."
    return "Fault and part are right, `change_ms` is not: it is the patient's part minus the healthy one's."


def _wrong_fault(patient: Patient) -> str:
    return next(name for name in SUSPECTS if not patient.is_ill_with(name))


def _with_wrong_fault(patient: Patient) -> dict[str, Any]:
    return {**diagnosis(patient), "fault": _wrong_fault(patient)}


def _with_length(patient: Patient) -> dict[str, Any]:
    """The length of the part instead of its change; twice that where the two are equal, as in a part that is new."""
    found = diagnosis(patient)
    return {**found, "change_ms": 3 * found["change_ms"]}


def proven_speed_up(ladder: Sequence[Experiment]) -> float:
    """From the plain trainer down to the last change above the first that is not proven to be faster."""
    kept = _proven_part(ladder)
    return kept[0].speed_up.before_ns / kept[-1].speed_up.after_ns


def _proven_part(ladder: Sequence[Experiment]) -> list[Experiment]:
    """The changes above the first one whose gate is not green; raises ValueError if that is the first."""
    kept = []
    for one in ladder:
        if not one.gate.green:
            break
        kept.append(one)
    if not kept:
        raise ValueError("the first change of the ladder is unproven already")
    return kept


def _whole_ladder(ladder: Sequence[Experiment]) -> float:
    return ladder[0].speed_up.before_ns / ladder[-1].speed_up.after_ns


def _all_green(ladder: Sequence[Experiment]) -> float:
    return math.prod(one.speed_up.ratio for one in ladder if one.gate.green)


@dataclass(frozen=True)
class Challenge:
    """The plain trainer's modelled images/s, from which the open challenge starts."""

    plain_images_per_second: float


def challenge_problem(answer: Any, challenge: Challenge) -> str | None:
    """Whether these options of the trainer reach the rate that is asked, in the model; None if they do."""
    import shlex

    from cifar_train.config import TrainConfig, parse
    from cifar_train.errors import UserError
    from proflab.parts.clinic_runs import modelled

    if not isinstance(answer, str):
        return f"Options of the trainer as one text are asked, this is a {type(answer).__name__}."
    try:
        config = parse(shlex.split(answer))
    except UserError as error:
        return f"The trainer refuses this: {error}"
    plain = TrainConfig()
    changed = [name for name, value in config.as_dict().items() if value != plain.as_dict()[name]]
    if "pathology" in changed or "model" in changed:
        return "Train the same model, and without a fault: it is the speed of this training that is asked."
    if len(changed) > CHALLENGE_OPTIONS:
        return f"These are {len(changed)} options; at most {CHALLENGE_OPTIONS} are allowed. Which part limits the step?"
    ratio = modelled(answer, repeats=1).images_per_second / challenge.plain_images_per_second
    if ratio < CHALLENGE_FACTOR:
        return (
            f"This gives {ratio:.2f} times the images/s of the plain trainer; {CHALLENGE_FACTOR:g} times are asked. "
            "Which part limits the step now?"
        )
    return None


def _diagnosis_exercise(number: int, letter: str, minutes: int) -> Exercise:
    return Exercise(
        id=f"08.{number}",
        answer=Property(diagnosis_problem, diagnosis),
        mistakes=(
            Mistake(_with_wrong_fault, lambda patient: against(SUSPECTS[_wrong_fault(patient)], patient)),
            Mistake(_with_length, "Fault and part are right, `change_ms` is not"),
            Mistake(lambda patient: {**diagnosis(patient), "fault": "the GPU"}, "not among the suspects"),
        ),
        hints=(
            "Start with the chart: which bar is longest? Then ask which suspects would lengthen just that part.",
            "Two suspects may lengthen the same part. Look for the count that one of them changes and the other does "
            "not, in the table of signs.",
            "The evidence is the row of `patient.changes` with the largest `change_ns`; 1 ms is 1e6 ns.",
        ),
        insight=lambda patient: against(SUSPECTS[diagnosis(patient)["fault"]], patient),
    )


EXERCISES = (
    Exercise(
        id="08.1",
        answer=Number(part_percent, unit="percent"),
        mistakes=(
            Mistake(lambda run: part_percent(run, "compute"), "This is the share of computation."),
            Mistake(lambda run: 100 - part_percent(run, "compute"), "This is everything but computation."),
        ),
        hints=(
            "See `healthy.signs`.",
            '`healthy.signs["launch_bound_ms"]` over `healthy.signs["step_ms"]`, in %.',
        ),
        insight=lambda run: (
            f"Part of this is the profiler's own cost. Without it {plain_percent():.0f} % of the modelled step are "
            "still launch-bound: this is what the cures will attack."
        ),
    ),
    _diagnosis_exercise(2, "A", 8),
    _diagnosis_exercise(3, "B", 8),
    _diagnosis_exercise(4, "C", 8),
    Exercise(
        id="08.5",
        answer=Choice(lambda gate: _failed(gate), REQUIRED),
        mistakes=(
            Mistake(lambda gate: "loss parity", "The losses agree: in so few steps hardly anything is learnt."),
            Mistake(lambda gate: "same samples", "Both runs trained on equally many images."),
        ),
        hints=("`print(gate)` says what was looked at.", "Each of `gate.parts` has `name` and `passed`."),
        insight="Times and losses look well. Only the look at the gradients tells that part of the model stands still.",
    ),
    Exercise(
        id="08.6",
        answer=Number(proven_speed_up, unit="ratio"),
        mistakes=(
            Mistake(_whole_ladder, "This is the whole ladder, with changes whose gate nobody has looked at."),
            Mistake(_all_green, "A proven change that stands on an unproven one is not proven in this chain."),
        ),
        hints=(
            "Go down the waterfall until the first hatched bar.",
            "Each experiment has `gate.green` and `speed_up.before_ns`, `speed_up.after_ns`, per image.",
        ),
        insight=lambda ladder: (
            f"{len(_proven_part(ladder))} of {len(ladder)} changes stand on proof. The whole ladder promises "
            f"{_whole_ladder(ladder):.1f} times: a reason to prove the rest, no result."
        ),
    ),
    Exercise(
        id="08.7",
        answer=Property(challenge_problem, lambda challenge: "--batch-size 1024 --batched-transforms"),
        mistakes=(
            Mistake(lambda challenge: "--batched-transforms", "Which part limits the step now?"),
            Mistake(lambda challenge: "--pathology broken-grad", "Train the same model, and without a fault"),
            Mistake(lambda challenge: "--fast", "The trainer refuses this"),
        ),
        hints=(
            "The plain step is launch-bound: how do you get more work out of each launch?",
            "Then two loader processes are too slow. Which cure makes an image cheaper to load?",
        ),
        insight="Each cure moves the limit elsewhere. Two that fit together beat five that don't.",
    ),
)


def _failed(gate: CorrectnessGate) -> str:
    return next(part.name for part in gate.parts if not part.passed)
