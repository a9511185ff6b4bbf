"""The clinic of lesson 08 on the shipped modelled runs, and what its checks say to wrong answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts import clinic, clinic_runs
from proflab.parts.clinic_chart import change_chart

lesson = exercises_of("08")


def ward_of(patient: clinic.Patient) -> dict[str, clinic.Patient]:
    """A ward in which all patients have the same fault."""
    return dict.fromkeys(clinic.LETTERS, patient)


@pytest.fixture(scope="module")
def sick() -> dict[str, clinic.Patient]:
    """One patient for each suspect, and the healthy runs."""
    return clinic.waiting_room()


def test_the_signs_speak_for_the_true_fault_and_no_other(sick: dict[str, clinic.Patient]) -> None:
    assert {fault: lesson.differential(one.healthy.signs, one.signs) for fault, one in sick.items()} == {
        fault: fault.partition(",")[0] for fault in sick
    }
    assert not sick["healthy"].changes.any()


def test_a_rule_is_tried_on_each_suspect_beside_a_control_of_as_many_ranks(sick: dict[str, clinic.Patient]) -> None:
    assert {*lesson.suspects(), "healthy"} == {fault.partition(",")[0] for fault in sick}
    assert {fault for fault, one in sick.items() if one.signs["ranks"] != one.healthy.signs["ranks"]} == set()
    ward = clinic.admit(7)
    assert ward["C"].signs["ranks"] == ward["C"].healthy.signs["ranks"] == clinic.RANKS


@pytest.mark.parametrize("never", ["tiny-batch", "slow-network"])
def test_a_rule_that_never_says_a_suspect_is_refused(never: str, sick: dict[str, clinic.Patient]) -> None:
    def rule(before, after):
        found = lesson.differential(before, after)
        return "healthy" if found == never else found

    result = find("08.4").on(sick["healthy"]).evaluate(rule)
    assert result.outcome is Outcome.WRONG
    assert f"wrong about 1 of {len(sick)} runs" in result.message


def test_the_share_of_the_waiting_tells_nothing_where_little_is_waited(sick: dict[str, clinic.Patient]) -> None:
    slow, late = sick["slow-network"], sick["rank-skew"]
    assert min(one.signs["waits_for_one_rank_percent"] for one in (slow, slow.healthy, late)) > 50
    assert slow.signs["waiting_ms"] < slow.healthy.signs["waiting_ms"] < late.signs["waiting_ms"]


def test_the_draw_is_the_same_for_a_seed_and_hides_the_fault() -> None:
    first, again = clinic.admit(7), clinic.admit(7)
    assert list(first) == ["healthy", "A", "B", "C"]
    for letter in clinic.LETTERS:
        assert first[letter].signs.equals(again[letter].signs)
        told = f"{first[letter]!r} {first[letter].profile.meta}"
        assert not any(suspect in told for suspect in lesson.suspects())


def test_one_step_of_every_rank_is_kept(sick: dict[str, clinic.Patient]) -> None:
    assert sick["rank-skew"].signs["ranks"] == 4
    assert sick["rank-skew"].signs["kernels"] == sick["healthy"].signs["kernels"]
    assert len(tidyprof.steps(sick["healthy"].profile)) == 1


def test_a_single_rank_has_no_range_of_a_launcher(sick: dict[str, clinic.Patient]) -> None:
    ranges = {fault: set(tidyprof.gaps(one.profile)["host_range"].dropna()) for fault, one in sick.items()}
    several = [fault for fault, one in sick.items() if one.signs["ranks"] > 1]
    assert [fault for fault, found in ranges.items() if clinic.WRAPPER in found] == several
    assert "forward" in ranges["healthy"]


def test_the_table_of_signs_has_a_row_for_each_run(sick: dict[str, clinic.Patient]) -> None:
    table = clinic.signs_table(sick).set_index("run")
    # Two copies in a healthy step, images and labels; one by one, 256 images are 255 copies more.
    assert table.loc[["healthy", "unpinned-copies"], "copies_to_device"].tolist() == [2, 257]
    assert table.loc["slow-loader", "data_wait_ns"] > 1e9 > 1e6 > table.loc["healthy", "data_wait_ns"]
    assert str(table.attrs["origin"]).startswith("modelled")


def test_the_chart_says_in_words_what_grew(sick: dict[str, clinic.Patient]) -> None:
    figure = change_chart([sick["slow-loader"], sick["rank-skew"]])
    assert "data wait +1,315.8 ms" in figure.alternative_text
    assert str(figure.origin).startswith("modelled")
    assert len({axes.get_xlim() for axes in figure.axes}) == 1  # bars of different patients can be compared


def test_the_healthy_step_says_what_the_profiler_costs(sick: dict[str, clinic.Patient]) -> None:
    plain, healthy = clinic_runs.plain_step(), sick["healthy"].signs
    # The device computes the same, about 8.4 ms; the host needs more than twice the time under the profiler.
    assert 256e3 / clinic_runs.modelled().images_per_second == pytest.approx(plain["step_ms"], rel=0.05)
    assert plain["step_ms"] < healthy["step_ms"] / 2
    assert plain["launch_bound_ms"] / plain["step_ms"] < 0.5 < 0.7 < healthy["launch_bound_ms"] / healthy["step_ms"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fault": "slow-loader"}, "copies to device 2 → 257"),
        ({"fault": "the network"}, "not among the suspects"),
        ({"rival": "rank-skew"}, "would not lengthen the same part"),
        ({"ruled_out_by": "kernels"}, "kernels doesn't tell it from slow-loader"),
        ({"change_ms": 3.0}, "take the part that changed most"),
        ({"fault": ...}, "Replace the"),
    ],
)
def test_evidence_is_asked_for(change: dict, words: str, sick: dict[str, clinic.Patient]) -> None:
    patient = sick["unpinned-copies"]
    said = (
        find("08.5")
        .on(ward_of(patient))
        .evaluate(lesson.diagnoses(ward_of(patient)) | {"C": {**lesson.diagnosis(patient), **change}})
    )
    assert words in said.message


def test_the_length_of_a_part_is_not_its_change(sick: dict[str, clinic.Patient]) -> None:
    patient = sick["sync-every-step"]
    long = {**lesson.diagnosis(patient), "change_ms": patient.signs["launch_bound_ms"]}
    answer = lesson.diagnoses(ward_of(patient)) | {"B": long}
    assert "Patient B: This is how long the part takes" in find("08.5").on(ward_of(patient)).evaluate(answer).message


def test_a_wrong_differential_hears_the_evidence(sick: dict[str, clinic.Patient]) -> None:
    question = find("08.4").on(sick["healthy"])
    assert question.evaluate(lesson.differential).outcome is Outcome.PASSED
    wrong = question.evaluate(lesson._by_part_alone).message
    assert "wrong about 1 of 10 runs" in wrong
    assert "copies to device 2 → 257" in wrong


@pytest.mark.parametrize(("green", "kept"), [([1, 1, 0, 1], 2), ([1, 0, 1, 1], 1), ([1, 1, 1, 1], 4)])
def test_only_the_chain_above_the_first_open_gate_is_gated(green: list[int], kept: int) -> None:
    ladder = [SimpleNamespace(gate=SimpleNamespace(green=bool(one))) for one in green]
    assert len(lesson.gated_part(ladder)) == kept
    assert find("08.1").on(ladder[green.index(0) :] if 0 in green else []).evaluate(2).outcome is Outcome.NOT_ATTEMPTED


def test_right_and_wrong_diagnoses_of_every_fault(sick: dict[str, clinic.Patient]) -> None:
    """A notebook plays the faults of one seed only."""
    for fault, patient in sick.items():
        if fault in lesson.suspects():
            selftest("08.3", patient)
            selftest("08.5", ward_of(patient))
