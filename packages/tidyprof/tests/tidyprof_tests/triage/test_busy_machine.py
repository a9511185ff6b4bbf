"""triage if other programs had the CPU: their time is no fault of the host. Times in ms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof_tests.chrome_writer import BASE_NS
from tidyprof_tests.triage.traces import (
    CUDA,
    MS,
    WITHOUT_A_GPU,
    Fill,
    Step,
    blamed,
    diagnosed,
    facts,
    shares,
    trace,
    triaged,
    verdict,
)

SKETCH = {"data": 10, "forward": 60, "optimizer": 30}
"""Length of the parts of a step of 100; only the first 5 of `forward` and of `optimizer` have
operators.
"""


def watched(
    path: Path,
    queued: dict[str, float],
    device: float = 0,
    lengths: dict[str, float] | None = None,
    late: float = 0,
    **members: Any,
) -> Path:
    """Four steps. queued -- the share of a part that its thread waited for a CPU core; device --
    work after each launch; late -- how long it waited in the last part of the first step.
    """
    parts, sketch = [], lengths or SKETCH

    def fill(step: Step) -> None:
        at = 0.0
        for name, usual in sketch.items():
            length = usual + (late if step.number == 0 and name == [*sketch][-1] else 0)
            step.part(name, at, length)
            if name != "data":
                step.operator("aten::mm", at, 5)
                if device:
                    step.launch(at, device, late=0.01)
            begin_ns, length_ns = step.at(at, length)
            waited = round(usual * MS * queued.get(name, 0)) + round((length - usual) * MS)
            parts.append([name, BASE_NS + begin_ns, length_ns, length_ns - waited, waited])
            at += length

    whole = sum(sketch.values())
    header = (CUDA if device else WITHOUT_A_GPU) | {"watch_parts": parts} | members
    return trace(path, [whole + late, whole, whole, whole], fill, header=header)


def checked(folder: Path, *steps: Any, **more: Any) -> tidyprof.Diagnosis:
    return diagnosed(watched(folder / "trace.json", *steps, **more))


DEVICES = pytest.mark.parametrize("device", [0, 5], ids=["CPU", "GPU"])


@DEVICES
def test_what_others_had_is_subtracted_before_the_host_is_blamed(
    device: float, tmp_path: Path
) -> None:
    quiet = checked(tmp_path, {}, device)
    assert verdict(quiet) == ("outside-torch", True)
    busy = checked(tmp_path, {"forward": 0.5}, device)
    assert busy.cause == "outside-torch"
    assert busy.share == pytest.approx(quiet.share - 0.275, abs=0.01)


@DEVICES
@pytest.mark.parametrize("share", [0.6, 0.9])
def test_above_half_the_verdict_is_inconclusive(
    share: float, device: float, tmp_path: Path
) -> None:
    found = checked(tmp_path, dict.fromkeys(SKETCH, share), device)
    assert verdict(found) == ("inconclusive", False)
    assert "idle machine" in found.next_step


@pytest.mark.parametrize(("name", "cause"), [("data", "input-bound"), ("log", "outside-torch")])
def test_waiting_that_others_made_long_is_not_blamed(name: str, cause: str, tmp_path: Path) -> None:
    lengths = {name: 45, "forward": 5, "optimizer": 5}
    assert checked(tmp_path, {}, lengths=lengths).cause == cause
    assert cause not in blamed(checked(tmp_path, {name: 0.95}, lengths=lengths))


def computing(length: float, waited: float, parts: list[Any], collective: bool = False) -> Fill:
    """A step of 100 in which an operator runs for so long, and waits for a core for so long."""

    def fill(step: Step) -> None:
        step.operator("aten::mm", 0, length)
        if collective:
            step.part("gloo:all_reduce", length, 98 - length, thread=1001)
        parts.append(["forward", BASE_NS + step.begin_ns, 100 * MS, 100 * MS, round(waited * MS)])

    return fill


@pytest.mark.parametrize("waited", [0, 40, 70])
def test_a_cpu_that_computes_is_no_host_to_blame_however_many_share_it(
    waited: float, tmp_path: Path
) -> None:
    parts: list[Any] = []
    header = WITHOUT_A_GPU | {"watch_parts": parts}
    found = triaged(tmp_path, 100, computing(98, waited, parts), header=header)
    expected = {0: ("no-bottleneck", True), 40: ("no-bottleneck", False)}
    assert verdict(found) == expected.get(waited, ("inconclusive", False))
    assert shares(found)["other processes"] == pytest.approx(waited / 100)


@pytest.mark.parametrize(("waited", "is_straggler"), [(0, True), (40, False)])
def test_a_rank_whose_operators_others_made_long_is_no_straggler(
    waited: float, is_straggler: bool, tmp_path: Path
) -> None:
    """Rank 1 computes for 80 ms of each 100 and waits for a core for so much of it. Rank 0 computes
    for 40, and waits for rank 1.
    """
    parts: list[Any] = []
    fills = [computing(40, 0, parts, True), computing(80, waited, parts, True)]
    for rank, fill in enumerate(fills):
        parts.clear()
        known = {"distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2}}
        header = WITHOUT_A_GPU | {"watch_parts": parts} | known
        trace(tmp_path / f"trace_rank{rank}.json", 100, fill, header=header)
    found = diagnosed(tmp_path)
    assert (found.cause == "straggler") == is_straggler


def test_a_first_step_that_others_made_long_is_no_startup(tmp_path: Path) -> None:
    """A part that is sampled as a whole: 300 ms of the first step's last part it waited."""
    found = checked(tmp_path, {}, late=300)
    assert found.cause == "outside-torch"
    assert "startup" not in blamed(found)
    assert facts(found)["longest_step_ns"] == 100 * MS


LOADED = {"data": 60, "forward": 20, "optimizer": 20}


def timed(**parts: float) -> dict[str, Any]:
    """Twenty steps that the script timed before the trace."""
    parts_ns = {name: length * MS for name, length in parts.items()}
    return {"steps": 20, "step_ns": sum(parts_ns.values()), "parts_ns": parts_ns}


def test_time_that_others_took_of_the_traced_steps_is_none_of_the_unprofiled_one(
    tmp_path: Path,
) -> None:
    """The wait for data keeps what was timed, and others what the traced steps don't explain."""
    untraced = timed(data=40, forward=5, optimizer=5)
    busy = {"data": 0.3, "forward": 0.5}
    found = checked(tmp_path, busy, lengths=LOADED, watch_untraced=untraced)
    assert (found.cause, found.share) == ("input-bound", pytest.approx(0.8, abs=0.05))
    assert shares(found)["other processes"] == pytest.approx(0, abs=0.01)
