"""The step without the profiler: estimated, stated by the trace, or given. Times in ms."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof.triage.profiler_overhead import Overhead, steps_to_judge
from tidyprof.triage.verdict import WrongStepError
from tidyprof_tests.triage.traces import (
    MS,
    NEXT,
    WITHOUT_A_GPU,
    Fill,
    Step,
    diagnosed,
    shares,
    trace,
    triaged,
    verdict,
    without_steps,
)


def nested(step: Step) -> None:
    """A step of 30 ms: 3,000 operators, each with another one 1.8 µs later; 600 kernels of 15 ms in
    all.
    """
    for place in range(3000):
        step.operator("aten::add", place * 0.01, 0.009)
        step.operator("aten::add_", place * 0.01 + 0.0018, 0.006)
        if place % 5 == 0:
            step.launch(place * 0.01 + 0.002, 0.025, f"kernel_{place % 7}")


def late(working: float = 0.06) -> Fill:
    """A step of 20 ms: 1,000 operators without others in them, 200 launches of kernels that work
    for so long each.
    """

    def fill(step: Step) -> None:
        for place in range(1000):
            step.operator("aten::add", place * 0.02, 0.018)
            if place % 5 == 0:
                step.launch(place * 0.02 + 0.001, working, f"kernel_{place % 7}")

    return fill


def short(step: Step) -> None:
    step.operator("aten::mm", 0, 0.1)
    step.launch(0.01, 0.5)


def loading(wait: float, part: str = "") -> Fill:
    """A step of 30 ms that waits so long for the processes that load, then computes."""

    def fill(step: Step) -> None:
        if part:
            step.part(part, 0, wait + 0.1)
        step.part(NEXT, 0, wait)
        step.operator("aten::mm", wait, 0.2)
        length = (29.98 - wait) / 5
        for place in range(5):
            late = 0.008 + place * (length - 0.008)
            step.launch(wait + 0.008 * place, length, f"kernel_{place}", late)

    return fill


def timed(step: float, **parts: float) -> dict[str, Any]:
    """Ten steps that the script timed before the trace."""
    parts_ns = {name: length * MS for name, length in parts.items()}
    return {"steps": 10, "step_ns": step * MS, "parts_ns": parts_ns}


UNTRACED = timed(18, data=1)


@pytest.fixture(scope="module")
def of_nested(tmp_path_factory: pytest.TempPathFactory) -> tidyprof.Profile:
    path = tmp_path_factory.mktemp("nested") / "trace.json"
    return tidyprof.read(trace(path, [30.0] * 3, nested))


def test_the_step_without_the_profiler_is_estimated(of_nested: tidyprof.Profile) -> None:
    estimated = tidyprof.diagnose(of_nested).overhead.estimated
    assert 12 * MS <= estimated.low <= estimated.likely <= estimated.high <= 1.1 * 30 * MS
    for step in (estimated.likely / MS, 18, 27, 60):
        found = tidyprof.diagnose(of_nested, step_time_ms=step)
        assert found.step_ns == found.overhead.measured_ns == pytest.approx(step * MS)
        assert shares(found)["compute"] == pytest.approx(15 / step, rel=0.01)


@pytest.mark.parametrize("off", [0.985, 1, 1.015])
def test_a_step_as_long_as_the_traced_ones_is_refused(
    of_nested: tidyprof.Profile, off: float
) -> None:
    with pytest.raises(WrongStepError):
        tidyprof.diagnose(of_nested, step_time_ms=off * 30)


def measured(found: tidyprof.Diagnosis) -> tuple[float | None, str]:
    """Return the unprofiled step in ms, and the first word that says where it comes from."""
    length = found.overhead.measured_ns
    return length and round(length / MS, 6), found.overhead.source.partition(" ")[0]


BROKEN = ("18e6", -18e6, float("nan"), [18e6], 1e300, 10**400)


@pytest.mark.parametrize("member", ["whole", *UNTRACED, "data"])
def test_broken_times_in_a_trace_are_ignored(member: str, tmp_path: Path) -> None:
    for value in BROKEN:
        stated = {"whole": value, "data": UNTRACED | {"parts_ns": {"data": value}}}
        untraced = stated.get(member, UNTRACED | {member: value})
        found = triaged(tmp_path, 1, short, watch_untraced=untraced)
        assert found.overhead.measured_ns is None, value


def test_a_given_step_counts_before_the_timed_ones(tmp_path: Path) -> None:
    assert measured(triaged(tmp_path, 20, late(), watch_untraced=UNTRACED)) == (18, "10")
    assert measured(diagnosed(tmp_path / "trace.json", step_time_ms=14)) == (14, "given")


def test_times_of_a_step_are_not_those_of_a_trace_without_steps(tmp_path: Path) -> None:
    path = without_steps(trace(tmp_path / "trace.json", 20, late(), watch_untraced=UNTRACED))
    assert diagnosed(path).overhead.measured_ns is None
    with pytest.raises(ValueError, match="marked"):
        diagnosed(path, step_time_ms=18)


@pytest.mark.parametrize(
    ("wait", "untraced", "cause", "share"),
    [
        (12, None, "input-bound", 12 / 30),
        (3, timed(60, data=40, forward=1), "input-bound", 33 / 60),
        (12, timed(18.1, data=0.1, forward=1), "no-bottleneck", 0.99),
        (3, timed(60, data=0.1, forward=1), "inconclusive", 0),
    ],
    ids=["as traced", "longer before", "only in the trace", "not in the trace"],
)
def test_data_is_as_late_as_it_was_without_the_profiler(
    wait: float, untraced: Any, cause: str, share: float, tmp_path: Path
) -> None:
    members = {"watch_untraced": untraced} if untraced else {}
    found = triaged(tmp_path, 30, loading(wait), **members)
    assert (found.cause, found.share) == (cause, pytest.approx(share, abs=0.01))
    missing = 33 / 60 if cause == "inconclusive" else 0
    assert shares(found)["not in the trace"] == pytest.approx(missing, abs=0.01)


def test_time_that_only_the_untraced_step_has_is_waiting_if_processes_load(tmp_path: Path) -> None:
    path = trace(tmp_path / "trace.json", 30, loading(3))
    assert diagnosed(path, step_time_ms=60).cause == "input-bound"


@pytest.mark.parametrize("step", [30, 60])
def test_a_loader_in_a_part_of_another_name_is_as_late_as_traced(
    step: float, tmp_path: Path
) -> None:
    """What the script calls `data` is then short, with the profiler as without it."""
    untraced = timed(step, data=0.03, batch=step - 18, forward=1)
    found = triaged(tmp_path, 30, loading(12, "batch"), watch_untraced=untraced)
    expected = ("input-bound", pytest.approx(1 - 18 / step, abs=0.01))
    assert (found.cause, found.share) == expected


@pytest.mark.parametrize("working", [0.06, 0.065])
def test_the_step_resolves_a_doubt(working: float, tmp_path: Path) -> None:
    path = trace(tmp_path / "trace.json", 20, late(working))
    found = diagnosed(path)
    low, high = (end / MS for end in found.overhead.estimated.ends)
    assert not found.confident
    assert verdict(diagnosed(path, step_time_ms=low)) == ("no-bottleneck", True)
    assert diagnosed(path, step_time_ms=high).cause == "launch-bound"


@pytest.mark.parametrize("step", [0, -1, float("nan"), float("inf"), 1e-300, 1e308, 0.01, 1000])
def test_a_step_that_these_can_not_be_is_refused(
    step: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(tmp_path / "trace.json", 1, short)
    with pytest.raises(WrongStepError, match=re.escape(f"{step:g} ms")):
        diagnosed(path, step_time_ms=step)
    try:
        code = main(["triage", str(path), f"--step-time-ms={step}"])
    except SystemExit as end:  # argparse ends by itself
        code = end.code
    assert (code, capsys.readouterr().err.count("\n")) == (2, 1)


@pytest.mark.parametrize("step", [80, 90, 95, 100, 105])
def test_the_wait_for_data_is_as_timed_however_long_the_unprofiled_step_is(step: int) -> None:
    """Data took 40 ms before the trace and 60 of 100 in it, because of the profiler."""
    overhead = Overhead(
        100 * MS,
        cost_ns=21 * MS,
        data_cost_ns=20 * MS,
        measured_ns=step * MS,
        data_change_ns=-20 * MS,
    )
    (judged,) = steps_to_judge({"data_wait": 60 * MS, "compute": 40 * MS}, overhead, False)
    assert judged.parts["data_wait"] == pytest.approx(40 * MS, abs=0.1 * MS)
    assert judged.length_ns == pytest.approx(step * MS)


def test_a_silence_longer_than_the_unprofiled_step_has_no_confidence(tmp_path: Path) -> None:
    """Steps of 2 ms in the trace, and of 0.2 before it: the trace doesn't show what took them."""

    def fill(step: Step) -> None:
        step.operator("aten::mm", 0, 0.1)

    untraced = timed(0.2, forward=0.2)
    found = triaged(tmp_path, 2, fill, header=WITHOUT_A_GPU, watch_untraced=untraced)
    assert verdict(found) == ("outside-torch", False)
