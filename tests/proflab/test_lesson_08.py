"""The clinic of lesson 08 on the shipped modelled runs, and on signs and ledgers worked out by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import tidyprof
from cifar_train.errors import UserError
from proflab.correctness_gate import CorrectnessGate, Part
from proflab.errors import CourseError
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.ledger.entries import Experiment
from proflab.parts import clinic, clinic_runs
from proflab.parts.clinic_chart import change_chart

lesson = exercises_of("08")

SEED = 7
GREEN = CorrectnessGate(
    (Part("finite gradients", True, ""), Part("loss parity", True, ""), Part("same samples", True, ""))
)


@pytest.fixture(scope="module")
def healthy() -> clinic.Patient:
    return clinic.Patient("healthy", clinic._one_step(clinic.HEALTHY))


@pytest.fixture(scope="module")
def sick(healthy: clinic.Patient) -> dict[str, clinic.Patient]:
    """One patient for each fault that can be drawn, and one of a suspect that can't."""
    faults = [*(fault for faults in clinic.WARDS for fault in faults), "tiny-batch"]
    return {fault: clinic.Patient("A", clinic._one_step(f"modelled-{fault}"), healthy, fault) for fault in faults}


def experiment(before: int, after: int, gate: CorrectnessGate) -> Experiment:
    times = {"before_ns": (before,) * 5, "after_ns": (after,) * 5}
    return Experiment("h", "c", "image", "not stated", "modelled: by hand", gate=gate, **times)


@pytest.fixture
def ladder() -> list[Experiment]:
    """Green 1000 to 800 ns and 800 to 500 ns, not looked at 500 to 250 ns, green 250 to 100 ns."""
    open_gate = CorrectnessGate(())
    steps = [(1000, 800, GREEN), (800, 500, GREEN), (500, 250, open_gate), (250, 100, GREEN)]
    return [experiment(*step) for step in steps]


@pytest.fixture
def modelled_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain trainer loads 100 images/s; only a larger batch from a cheap loader is three times as fast."""

    def rate(options: str, repeats: int = 1, ranks: int = 1) -> SimpleNamespace:
        fast = "--batched-transforms" in options and "--batch-size" in options
        return SimpleNamespace(images_per_second=300.0 if fast else 110.0)

    monkeypatch.setattr(clinic_runs, "modelled", rate)


def test_every_exercise_is_tested_here() -> None:
    assert [exercise.id for exercise in lesson.EXERCISES] == [f"08.{number}" for number in range(1, 8)]


def test_the_signs_speak_for_the_true_fault_and_no_other(sick: dict[str, clinic.Patient]) -> None:
    for fault, patient in sick.items():
        table = clinic.differential(patient)
        assert table.loc[table["fits"], "suspect"].tolist() == [fault]


def test_the_healthy_run_fits_no_suspect(healthy: clinic.Patient) -> None:
    same = clinic.Patient("A", healthy.profile, healthy)
    assert not clinic.differential(same)["fits"].any()
    assert same.changes["change_ns"].tolist() == [0] * 7


def test_warm_up_exercise_on_the_healthy_run(healthy: clinic.Patient) -> None:
    selftest("08.1", healthy)


def test_the_healthy_step_says_what_the_profiler_costs(healthy: clinic.Patient) -> None:
    plain = clinic_runs.plain_step()
    # The device computes the same, about 8.4 ms; the host needs more than twice the time under the profiler.
    assert 256e3 / clinic_runs.modelled().images_per_second == pytest.approx(plain["step_ms"], rel=0.05)
    assert plain["step_ms"] < healthy.signs["step_ms"] / 2
    assert 0.3 < plain["launch_bound_ms"] / plain["step_ms"] < 0.5 < 0.7 < lesson.part_percent(healthy) / 100
    insight = find("08.1").on(healthy).evaluate(lesson.part_percent(healthy)).message
    share = 100 * plain["launch_bound_ms"] / plain["step_ms"]
    assert f"the profiler's own cost. Without it {share:.0f} % of the modelled step" in insight


@pytest.mark.parametrize("fault", [fault for faults in clinic.WARDS for fault in faults])
def test_right_and_wrong_diagnoses_of_every_fault(fault: str, sick: dict[str, clinic.Patient]) -> None:
    for number in ("08.2", "08.3", "08.4"):
        selftest(number, sick[fault])


def test_a_wrong_suspect_hears_the_evidence_against_it(sick: dict[str, clinic.Patient]) -> None:
    patient = sick["unpinned-copies"]
    answer = {**lesson.diagnosis(patient), "fault": "slow-loader"}
    message = find("08.2").on(patient).evaluate(answer).message
    # Two copies in a healthy step, images and labels; one by one, 256 images are 255 copies more.
    assert "copies to device 2 → 257" in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"part": "compute"}, "another part changed more"),
        ({"part": "the network"}, "no part of the step"),
        ({"change_ms": 28.6e6}, "This looks like ns"),
        ({"fault": ...}, "Replace the"),
    ],
)
def test_evidence_is_asked_for(change: dict, words: str, sick: dict[str, clinic.Patient]) -> None:
    patient = sick["unpinned-copies"]
    assert words in find("08.2").on(patient).evaluate({**lesson.diagnosis(patient), **change}).message


def test_the_length_of_a_part_is_not_its_change(sick: dict[str, clinic.Patient]) -> None:
    patient = sick["sync-every-step"]
    answer = {**lesson.diagnosis(patient), "change_ms": patient.signs["launch_bound_ms"]}
    assert "how long the part takes" in find("08.2").on(patient).evaluate(answer).message


def test_the_draw_is_the_same_for_a_seed_and_hides_the_fault(bench: Path) -> None:
    first, again = clinic.admit(SEED), clinic.admit(SEED)
    assert list(first) == ["healthy", "A", "B", "C"]
    for letter in clinic.LETTERS:
        assert first[letter].signs == again[letter].signs
        told = f"{first[letter]!r} {first[letter].profile.meta}"
        assert not any(suspect in told for suspect in clinic.SUSPECTS)


def test_one_step_of_every_rank_is_kept(sick: dict[str, clinic.Patient], healthy: clinic.Patient) -> None:
    assert sick["rank-skew"].signs["ranks"] == 4
    assert sick["rank-skew"].signs["kernels"] == healthy.signs["kernels"]
    assert len(tidyprof.steps(healthy.profile)) == 1


def test_the_table_of_signs_has_a_row_for_each_run(sick: dict[str, clinic.Patient], healthy: clinic.Patient) -> None:
    table = clinic.signs_table({"healthy": healthy, "A": sick["unpinned-copies"]}).set_index("run")
    assert table["copies_to_device"].tolist() == [2, 257]
    assert table.loc["A", "data_wait_ms"] > 25 > table.loc["healthy", "data_wait_ms"]
    assert str(table.attrs["origin"]).startswith("modelled")


def test_gaps_of_slow_copies_lie_in_the_data_range(sick: dict[str, clinic.Patient]) -> None:
    table = clinic.gap_table(sick["unpinned-copies"])
    assert table["host_range"].iloc[0] == "data"
    assert table["total_ns"].is_monotonic_decreasing


@pytest.mark.parametrize(
    ("answer", "option"),
    [
        ({"fault": "rank-skew"}, "--pathology rank-skew"),
        ({"fault": "slow-network"}, ""),
        ({"fault": ...}, ""),
        ("rank-skew", ""),
        (..., ""),
    ],
)
def test_only_a_fault_that_the_trainer_knows_becomes_an_option(answer: object, option: str) -> None:
    assert clinic.option_of(answer) == option


def test_the_healthy_run_has_no_changes(healthy: clinic.Patient) -> None:
    with pytest.raises(CourseError, match="nothing to compare it with"):
        _ = healthy.changes


def test_the_chart_says_in_words_what_grew(sick: dict[str, clinic.Patient]) -> None:
    figure = change_chart([sick["slow-loader"], sick["rank-skew"]])
    assert "A: data wait +1,315.8 ms" in figure.alternative_text
    assert str(figure.origin).startswith("modelled")
    with pytest.raises(ValueError, match="no patient"):
        change_chart([])


def test_the_gate_exercise_names_the_failed_part() -> None:
    gate = CorrectnessGate((Part("finite gradients", False, "9 missing"), *GREEN.parts[1:]))
    selftest("08.5", gate)


def test_only_the_chain_above_the_first_open_gate_is_proven(ladder: list[Experiment]) -> None:
    assert lesson.proven_speed_up(ladder) == pytest.approx(1000 / 500)
    selftest("08.6", ladder)


def test_a_ladder_without_proof_cannot_be_judged(ladder: list[Experiment]) -> None:
    assert find("08.6").on(ladder[2:]).evaluate(2).outcome is Outcome.NOT_ATTEMPTED


def test_challenge_accepts_two_cures_that_fit(modelled_rates: None) -> None:
    selftest("08.7", lesson.Challenge(100.0))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("--model vit --batch-size 512", "Train the same model"),
        ("--batch-size 512 --batched-transforms --compile", "These are 3 options"),
        (2, "as one text"),
    ],
)
def test_challenge_refuses_other_ways_out(answer: object, words: str, modelled_rates: None) -> None:
    assert words in find("08.7").on(lesson.Challenge(100.0)).evaluate(answer).message


def test_uneven_steps_are_averaged_by_time() -> None:
    # Two loaders take turns: steps of 10 and 30 ms for 100 images are 100 images in 20 ms, or 200 us each.
    rates = [1.0] * 4 + [100 / 0.010, 100 / 0.030] * 3
    assert clinic_runs._seconds_per_image(rates) == pytest.approx(0.0002)
    assert clinic_runs.ModelledRepeats((0.4, 0.2, 0.5), "by hand").images_per_second == pytest.approx(2.5)


def test_options_that_the_trainer_refuses_start_nothing(bench: Path) -> None:
    with pytest.raises(UserError, match="--nonsense"):
        clinic_runs.bench({"good": "", "bad": "--nonsense"})
    assert not (bench / clinic_runs.FOLDER).exists()


def test_a_run_that_fails_says_why_and_never_reuses_a_folder(
    bench: Path, warm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", warm)
    (bench / clinic_runs.FOLDER / "bad" / "0001").mkdir(parents=True)
    with pytest.raises(CourseError, match="--download-only"):
        clinic_runs.bench({"bad": "--data cifar100 --data-path /nonexistent"})
    assert clinic_runs._new_folder(bench / clinic_runs.FOLDER / "bad").name == "0003"
