"""The diagnosis practice of lesson 08 on recorded and modeled runs, and feedback to wrong answers."""

from __future__ import annotations

import math

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts import faulty_runs

lesson = exercises_of("08")


@pytest.fixture(scope="module")
def recorded() -> dict[str, faulty_runs.Run]:
    """The recorded runs."""
    return faulty_runs.recorded()


@pytest.fixture(scope="module")
def modeled() -> dict[str, faulty_runs.Run]:
    """One modeled run for each fault that can be drawn."""
    return {
        fault: faulty_runs.with_fault("C", fault) for group in faulty_runs.FAULTS for fault in group
    }


def by_indicators(before: pd.Series | None, after: pd.Series) -> str:
    """Return the suspect that the indicators alone point to."""
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


def test_the_indicators_point_to_the_true_fault_and_no_other(
    modeled: dict[str, faulty_runs.Run], recorded: dict[str, faulty_runs.Run]
) -> None:
    for run in (*modeled.values(), *recorded.values()):
        before = run.control.indicators if run.control else None
        assert by_indicators(before, run.indicators) == lesson.fault_of(run)
    assert {lesson.fault_of(one) for one in (*modeled.values(), *recorded.values())} == set(
        lesson.suspects()
    )


def test_triage_names_each_run_as_the_table_of_suspects_says(
    modeled: dict[str, faulty_runs.Run], recorded: dict[str, faulty_runs.Run]
) -> None:
    for run in (*modeled.values(), *recorded.values()):
        assert (
            tidyprof.diagnose(run.profile).cause
            == lesson.suspects()[lesson.fault_of(run)]["triage"]
        )


def test_the_draw_is_the_same_for_a_seed_and_hides_the_fault(
    recorded: dict[str, faulty_runs.Run],
) -> None:
    first, again = faulty_runs.drawn(7), faulty_runs.drawn(7)
    assert list(first) == list(recorded) == ["A", "B", "C"]
    for letter in faulty_runs.LETTERS:
        assert first[letter].indicators.equals(again[letter].indicators)
    for run in (*first.values(), *recorded.values()):
        told = f"{run!r} {run.profile.meta}"
        assert not any(suspect in told for suspect in lesson.suspects())


@pytest.mark.parametrize(
    ("letter", "change", "words"),
    [
        ("A", {"fault": "outside-torch"}, "longest gap ms 0.7636 → 0.8005"),
        ("A", {"fault": "only-the-profiler"}, "busy percent 65.56 → 35.81"),
        (
            "B",
            {"fault": "many-small-kernels"},
            "In this run: launch bound ms 37.01, elementwise kernels 450. Look at `busy_percent`",
        ),
        ("C", {"fault": "sync-every-step"}, "copies to host 0 → 0"),
        ("C", {"fault": "the network"}, "not in the table of suspects"),
        ("C", {"alternative": "rank-skew"}, "doesn't lengthen the same part"),
        ("A", {"ruled_out_by": "copies_to_host"}, "is evidence for it"),
        (
            "B",
            {"alternative": "many-small-kernels", "ruled_out_by": "elementwise_kernels"},
            "without a control rules out nothing",
        ),
        ("C", {"ruled_out_by": "kernels"}, "kernels doesn't rule out"),
    ],
)
def test_a_wrong_diagnosis_gets_the_evidence_against_it(
    letter: str, change: dict[str, str], words: str, recorded: dict[str, faulty_runs.Run]
) -> None:
    answer = lesson.diagnoses(recorded) | {letter: lesson.diagnosis(recorded[letter]) | change}
    result = find("08.4").on(recorded).evaluate(answer)
    assert result.outcome is Outcome.WRONG
    assert f"Run {letter}: " in result.message
    assert words in result.message


def test_right_and_wrong_answers_of_every_run(
    modeled: dict[str, faulty_runs.Run], recorded: dict[str, faulty_runs.Run]
) -> None:
    """A notebook draws the faults of one seed only."""
    selftest("08.3", recorded)
    selftest("08.4", recorded)
    for run in modeled.values():
        selftest("08.5", dict.fromkeys(faulty_runs.LETTERS, run))
    assert not any(math.isnan(value) for value in recorded["A"].indicators)
