"""The clinic of lesson 08 on recorded and modelled runs, and what its checks say to wrong
answers.
"""

from __future__ import annotations

import math

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.lessons import lesson as lesson_of
from proflab.parts import clinic, clinic_runs
from tidyprof_tests.analyses.test_analyses import event, profile_of
from tidyprof_tests.conftest import STRANGERS

lesson = exercises_of("08")

PROGRAMS = STRANGERS / "gpu"


@pytest.fixture(scope="module")
def ward() -> dict[str, clinic.Patient]:
    """The recorded patients."""
    return clinic.recorded()


@pytest.fixture(scope="module")
def sick() -> dict[str, clinic.Patient]:
    """One modelled patient for each fault that can be drawn."""
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
        return "silent-host"
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


def test_the_three_recorded_ones_look_alike(ward: dict[str, clinic.Patient]) -> None:
    for patient in ward.values():
        assert patient.signs["launch_bound_ms"] / patient.signs["step_ms"] > 0.45
        if patient.healthy:
            assert patient.changes.idxmax() == "launch_bound"
            assert patient.signs["untraced_ms"] / patient.healthy.signs["untraced_ms"] > 1.8
    # What the profiler shows of B is not the run: it is busy for most of the step that nobody
    # watched.
    assert ward["B"].healthy is None
    assert (
        ward["B"].signs["busy_percent"]
        > 80
        > 50
        > 100 * ward["B"].signs["compute_ms"] / ward["B"].signs["step_ms"]
    )


def test_recorded_patients_are_the_programs_that_they_say() -> None:
    folder = lesson_of("08").folder
    for row in pd.read_csv(folder / "patients.csv", comment="#").itertuples():
        form = "cured" if row.form == "well" or row.fault == "only-the-profiler" else "sick"
        whole = PROGRAMS / row.program / form / "trace_rank0.json.zst"
        assert (folder / row.file).read_bytes() == whole.read_bytes()
        truth = pd.read_json(PROGRAMS / "truth.json").loc["untraced_ms", row.program]
        assert row.untraced_ms == pytest.approx(truth[form])


def test_triage_names_each_patient_as_the_table_of_suspects_says(
    sick: dict[str, clinic.Patient], ward: dict[str, clinic.Patient]
) -> None:
    for patient in (*sick.values(), *ward.values()):
        assert (
            tidyprof.triage(patient.profile).cause
            == lesson.suspects()[lesson.fault_of(patient)]["triage"]
        )


def test_a_modelled_patient_has_a_control_of_as_many_ranks(sick: dict[str, clinic.Patient]) -> None:
    assert {
        fault for fault, one in sick.items() if one.signs["ranks"] != one.healthy.signs["ranks"]
    } == set()
    drawn = clinic.admit(7)
    assert drawn["C"].signs["ranks"] == drawn["C"].healthy.signs["ranks"] == clinic.RANKS


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


def test_a_patient_says_how_many_steps_and_ranks_it_has(sick: dict[str, clinic.Patient]) -> None:
    unmarked = profile_of(event("kernel", "gemm", 0, 10, device=0))
    assert repr(clinic.Patient("A", unmarked)) == "Patient A: 0 steps"
    assert repr(sick["slow-loader"]) == "Patient C: 1 step"
    assert repr(sick["rank-skew"]) == "Patient C: 1 step, 4 ranks"


def test_one_modelled_step_of_every_rank_is_kept(sick: dict[str, clinic.Patient]) -> None:
    assert sick["rank-skew"].signs["ranks"] == 4
    assert sick["rank-skew"].signs["kernels"] == sick["slow-loader"].healthy.signs["kernels"]
    assert len(tidyprof.steps(sick["slow-loader"].profile)) == 1
    ranges = {
        fault: set(tidyprof.gaps(one.profile)["host_range"].dropna()) for fault, one in sick.items()
    }
    assert [fault for fault, found in ranges.items() if clinic.WRAPPER in found] == [
        "rank-skew",
        "slow-network",
    ]


def test_the_table_of_signs_has_a_row_for_each_run(sick: dict[str, clinic.Patient]) -> None:
    table = clinic.signs_table({"healthy": clinic.healthy_run()} | sick).set_index("run")
    # Two copies in a healthy step, images and labels; one by one, 256 images are 255 copies more.
    assert table.loc[["healthy", "unpinned-copies"], "copies_to_device"].tolist() == [2, 257]
    assert (
        table.loc["slow-loader", "data_wait_ns"] > 1e9 > 1e6 > table.loc["healthy", "data_wait_ns"]
    )
    assert str(table.attrs["origin"]).startswith("modelled")


def test_the_modelled_step_with_a_profiler_is_longer() -> None:
    plain, healthy = clinic_runs.plain_step(), clinic.healthy_run().signs
    # The device computes the same, about 8.4 ms; the host needs more than twice the time under the
    # profiler.
    assert 256e3 / clinic_runs.modelled().images_per_second == pytest.approx(
        plain["step_ms"], rel=0.05
    )
    assert plain["step_ms"] < healthy["step_ms"] / 2


@pytest.mark.parametrize("control", ["A", "B"])
def test_a_wrong_control_is_named(control: str, ward: dict[str, clinic.Patient]) -> None:
    other = ward[control].healthy or ward[control]
    wrong = clinic.change(ward["C"], other).rename(index=lambda part: f"{part}_ns")
    result = find("08.3").on(ward).evaluate(wrong)
    assert result.outcome is Outcome.WRONG
    assert "another program. Take `patient.healthy`." in result.message


@pytest.mark.parametrize(
    ("letter", "change", "words"),
    [
        ("A", {"fault": "silent-host"}, "longest gap ms 0.7636 → 0.8005"),
        ("A", {"fault": "only-the-profiler"}, "busy percent 65.56 → 35.81"),
        (
            "B",
            {"fault": "many-small-kernels"},
            "In this one: launch bound ms 37.01, elementwise kernels 450",
        ),
        ("C", {"fault": "sync-every-step"}, "copies to host 0 → 0"),
        ("C", {"fault": "the network"}, "not among the suspects"),
        ("C", {"rival": "rank-skew"}, "would not lengthen the same part"),
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


def ladder(*green: bool) -> pd.DataFrame:
    image_ns = [1000.0 / (1 + place) ** 2 for place in range(len(green))]
    gates = ["green" if one else "not looked at" for one in green]
    return pd.DataFrame(
        {"image_ns": image_ns, "median_ns": [one**1.1 for one in image_ns], "gate": gates}
    )


def test_only_the_chain_above_the_first_open_gate_is_gated() -> None:
    assert len(lesson.gated_part(ladder(True, True, True, False, True))) == 3
    assert lesson.overall(
        lesson.gated_part(ladder(True, True, True, False, True))
    ) == pytest.approx(9)
    selftest("08.1", ladder(True, True, True, False, False))
    assert find("08.1").on(ladder(True, False, True)).evaluate(2).outcome is Outcome.NOT_ATTEMPTED


def test_right_and_wrong_answers_of_every_patient(
    sick: dict[str, clinic.Patient], ward: dict[str, clinic.Patient]
) -> None:
    """A notebook plays the faults of one seed only."""
    selftest("08.3", ward)
    selftest("08.4", ward)
    for patient in sick.values():
        selftest("08.5", dict.fromkeys(clinic.LETTERS, patient))
    assert not any(math.isnan(value) for value in ward["A"].signs)
