"""triage on ranks of which one is late: what it does more, and the command that shows it. Times in
ms.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tidyprof_tests.triage.traces import (
    CUDA,
    WITHOUT_A_GPU,
    Fill,
    Step,
    blamed,
    facts,
    ranks,
    verdict,
)


def working(lengths: tuple[float, float], silent: float = 1, gpu: bool = False) -> Fill:
    """Steps of 100: a rank computes for so long in even and in odd steps, is silent, and is in a
    collective until the step ends.
    """

    def fill(step: Step) -> None:
        length = lengths[step.number % 2]
        enters = length + silent
        step.operator("aten::mm", 0, 5 if gpu else length)
        if gpu:
            step.launch(0, length)
            step.launch(enters - 0.01, 99 - enters, "ncclDevKernel_Generic", late=0.01)
        else:
            step.part("gloo:all_reduce", enters, 99 - enters)

    return fill


@pytest.mark.parametrize("gpu", [False, True], ids=["CPU", "GPU"])
@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_computes_longer_is_compared_with_one_that_waits(
    late: int, gpu: bool, tmp_path: Path
) -> None:
    lengths = [80, 30] if late == 0 else [30, 80]
    fills = [working((length, length), gpu=gpu) for length in lengths]
    found = ranks(tmp_path, 100, fills, header=CUDA if gpu else WITHOUT_A_GPU)
    assert found.cause == "straggler"
    assert (facts(found).get("straggler", 0), facts(found)["straggler_part"]) == (late, "compute")
    assert f"table compare RANK{1 - late} RANK{late}" in found.next_step


def test_a_rank_that_is_silent_is_judged_alone(tmp_path: Path) -> None:
    fills = [working((30, 30), 50), working((20, 20), 1)]
    found = ranks(tmp_path, 100, fills, header=WITHOUT_A_GPU)
    assert (found.cause, facts(found)["straggler_part"]) == ("straggler", "silent")
    assert "triage RANK0" in found.next_step


def test_ranks_that_are_late_in_turn_are_no_stragglers(tmp_path: Path) -> None:
    fills = [working((80, 10), gpu=True), working((10, 80), gpu=True)]
    assert verdict(ranks(tmp_path, 100, fills)) == ("inconclusive", False)


def launching(at: float) -> Fill:
    """A rank that launches small kernels until this time, and then a collective."""

    def fill(step: Step) -> None:
        for place in range(round(10 * at)):
            step.operator("aten::add", place / 10, 0.09)
            step.launch(place / 10, 0.02)
        step.launch(at, 98 - at, "ncclDevKernel_Generic")

    return fill


def test_the_rank_that_launches_last_sets_the_pace(tmp_path: Path) -> None:
    """Both ranks do the same, one of them more slowly, and the other's device waits for it."""
    found = ranks(tmp_path, 100, [launching(60), launching(90)])
    assert found.cause == "launch-bound"
    assert "straggler" not in blamed(found)
    assert facts(found)["straggler_excess"] < 0.2
