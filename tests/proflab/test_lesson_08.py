"""The clinic of lesson 08 on recorded and modeled runs, and what its checks say to wrong
answers.
"""

from __future__ import annotations

import math

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts import clinic

lesson = exercises_of("08")


@pytest.fixture(scope="module")
def ward() -> dict[str, clinic.Patient]:
    """The recorded patients."""
    return clinic.recorded()


@pytest.fixture(scope="module")
def sick() -> dict[str, clinic.Patient]:
    """One modeled patient for each fault that can be drawn."""
    return {fault: clinic.with_fault("C", fault) for group in clinic.WARDS for fault in group}


def by_signs(before: pd.Series | None, after: pd.Series) -> str:
    """The suspect that the signs alone speak for."""
    if before is None:
        return "only-the-profiler" if after["busy_percent"] > 80 else "unknown"
    grew, much = after - before, 0.2 * before["step_ms"]
    if grew["exposed_communication_ms"] > much:
        return "slow-network" if grew["transfer_ms"] > grew["waiting_ms"] else "rank-skew"
    if grew["data_wait_ms"] > much:
        return "unpinned-copies" if grew["copies_to_device"] > 100 else "slow-loader"
    if grew["longest_gap_ms"] > much:
        return "outside-torch"
    counts = {"copies_to_host": "sync-every-step", "elementwise_kernels": "many-small-kernels"}
    counts["copy_kernels"] = "wrong-layout"
    most = grew[list(counts)].idxmax()
    if grew[most] > 100:
        return counts[most]
    return "tiny-batch" if after["mean_kernel_us"] < 0.8 * before["mean_kernel_us"] else "unknown"


def test_the_signs_speak_for_the_true_fault_and_no_other(
    sick: dict[str, clinic.Patient], ward: dict[str, clinic.Patient]
) -> None:
    for patient in (*sick.values(), *ward.values()):
        before = patient.healthy.signs if patient.healthy else None
        assert by_signs(before, patient.signs) == lesson.fault_of(patient)
    assert {lesson.fault_of(one) for one in (*sick.values(), *ward.values())} == set(
        lesson.suspects()
    )


def test_triage_names_each_patient_as_the_table_of_suspects_says(
    sick: dict[str, clinic.Patient], ward: dict[str, clinic.Patient]
) -> None:
    for patient in (*sick.values(), *ward.values()):
        assert (
            tidyprof.diagnose(patient.profile).cause
            == lesson.suspects()[lesson.fault_of(patient)]["triage"]
        )


def test_the_draw_is_the_same_for_a_seed_and_hides_the_fault(
    ward: dict[str, clinic.Patient],
) -> None:
    first, again = clinic.admit(7), clinic.admit(7)
    assert list(first) == list(ward) == ["A", "B", "C"]
    for letter in clinic.LETTERS:
        assert first[letter].signs.equals(again[letter].signs)
    for patient in (*first.values(), *ward.values()):
        told = f"{patient!r} {patient.profile.meta}"
        assert not any(suspect in told for suspect in lesson.suspects())


@pytest.mark.parametrize(
    ("letter", "change", "words"),
    [
        ("A", {"fault": "outside-torch"}, "longest gap ms 0.7636 → 0.8005"),
        ("A", {"fault": "only-the-profiler"}, "busy percent 65.56 → 35.81"),
        (
            "B",
            {"fault": "many-small-kernels"},
            "In this one: launch bound ms 37.01, elementwise kernels 450",
        ),
        ("C", {"fault": "sync-every-step"}, "copies to host 0 → 0"),
        ("C", {"fault": "the network"}, "not among the suspects"),
        ("C", {"alternative": "rank-skew"}, "would not lengthen the same part"),
        ("C", {"ruled_out_by": "kernels"}, "kernels doesn't tell it from"),
    ],
)
def test_a_wrong_diagnosis_gets_the_evidence_against_it(
    letter: str, change: dict[str, str], words: str, ward: dict[str, clinic.Patient]
) -> None:
    answer = lesson.diagnoses(ward) | {letter: lesson.diagnosis(ward[letter]) | change}
    result = find("08.4").on(ward).evaluate(answer)
    assert result.outcome is Outcome.WRONG
    assert f"Patient {letter}: " in result.message
    assert words in result.message


def test_right_and_wrong_answers_of_every_patient(
    sick: dict[str, clinic.Patient], ward: dict[str, clinic.Patient]
) -> None:
    """A notebook plays the faults of one seed only."""
    selftest("08.3", ward)
    selftest("08.4", ward)
    for patient in sick.values():
        selftest("08.5", dict.fromkeys(clinic.LETTERS, patient))
    assert not any(math.isnan(value) for value in ward["A"].signs)
