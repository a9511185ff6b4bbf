"""triage where other programs had the processor: their time is no fault of the host. Times in
ms.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidyprof
from tidyprof_tests.chrome_writer import (
    BASE_NS,
    HEADER,
    TraceEvent,
    call,
    kernel,
    operator,
    write_trace,
)

MS = 1_000_000
ON_A_PROCESSOR = {"schemaVersion": 1, "deviceProperties": []}
SKETCH = {"data": 10, "forward": 60, "optimizer": 30}
"""Length of the parts of a step of 100; only the first 5 of `forward` and of `optimizer` have
operators.
"""


def watched(
    path: Path,
    queued: dict[str, float],
    device: float = 0,
    lengths: dict[str, float] | None = None,
    late: int = 0,
    **header: object,
) -> Path:
    """Four steps; queued -- the share of a part that its thread stood in line; device -- work
    behind each launch; late -- how long it stood in line in the last part of the first step.
    """
    events, parts, end = [], [], MS
    sketch = lengths or SKETCH
    for step in range(4):
        begin, lasting = end, dict(sketch)
        lasting[[*sketch][-1]] += 0 if step else late
        end = begin + sum(lasting.values()) * MS
        events.append(TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, end - begin))
        for name, length in lasting.items():
            long = length * MS
            events.append(TraceEvent("user_annotation", name, begin, long))
            if name != "data":
                events.append(operator("aten::mm", begin, 5 * MS, len(events)))
                if device:
                    number = len(events)
                    events += [
                        call("hipLaunchKernel", begin, 5000, number),
                        kernel("gemm", begin + 10_000, round(device * MS), number),
                    ]
            line = round(long * queued.get(name, 0)) + (length - sketch[name]) * MS
            parts.append([name, BASE_NS + begin, long, long - line, line])
            begin += long
    header |= {"watch_parts": parts} | (HEADER if device else ON_A_PROCESSOR)
    return write_trace(path, events, header=header)


def checked(path: Path) -> tidyprof.Diagnosis:
    return tidyprof.triage(tidyprof.read(path))


@pytest.mark.parametrize("device", [0, 5], ids=["processor", "GPU"])
def test_what_others_had_is_taken_off_before_the_host_is_blamed(
    device: float, tmp_path: Path
) -> None:
    quiet = checked(watched(tmp_path / "quiet.json", {}, device))
    assert (quiet.cause, quiet.confident) == ("outside-torch", True)
    busy = checked(watched(tmp_path / "busy.json", {"forward": 0.8}, device))
    assert busy.signs.shares["silent"] == pytest.approx(
        quiet.signs.shares["silent"] - 0.44, abs=0.01
    )
    assert busy.cause == "outside-torch"
    assert busy.share < 0.6 * quiet.share


@pytest.mark.parametrize("device", [0, 5], ids=["processor", "GPU"])
@pytest.mark.parametrize("share", [0.6, 0.9])
def test_above_half_nobody_can_tell(share: float, device: float, tmp_path: Path) -> None:
    found = checked(watched(tmp_path / "busy.json", dict.fromkeys(SKETCH, share), device))
    assert (found.cause, found.confident) == ("inconclusive", False)
    assert "quiet machine" in found.next_step
    assert "with_stack" not in found.next_step


@pytest.mark.parametrize("name", ["data", "log"])
def test_waiting_that_others_made_long_is_not_blamed(name: str, tmp_path: Path) -> None:
    lengths = {name: 45, "forward": 5, "optimizer": 5}
    cause = {"data": "input-bound", "log": "outside-torch"}[name]
    assert checked(watched(tmp_path / "quiet.json", {}, lengths=lengths)).cause == cause
    busy = checked(watched(tmp_path / "busy.json", {name: 0.95}, lengths=lengths))
    assert busy.cause in ("inconclusive", "outside-torch")
    assert cause not in {
        alternative.name for alternative in busy.alternatives if alternative.fired
    } | {busy.cause}


def test_a_processor_that_computes_is_healthy_however_many_share_it(tmp_path: Path) -> None:
    """Operators that last longer are no loss of the host's own, and nothing is blamed."""
    events, parts = [], []
    for step in range(4):
        begin = MS + step * 100 * MS
        events += [TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 100 * MS),
                   operator("aten::mm", begin, 98 * MS, step)]  # fmt: skip
        parts.append(["forward", BASE_NS + begin, 100 * MS, 30 * MS, 70 * MS])
    path = write_trace(
        tmp_path / "trace.json", events, header=ON_A_PROCESSOR | {"watch_parts": parts}
    )
    assert checked(path).cause == "no-bottleneck"


@pytest.mark.parametrize(("line", "blamed"), [(0, True), (40, False)])
def test_a_rank_whose_operators_others_made_long_is_no_straggler(
    line: int, blamed: bool, tmp_path: Path
) -> None:
    """Rank 1 computes for 80 ms of each 100, in line for so much of it; rank 0 computes for 40, and
    awaits it.
    """
    for rank, length in enumerate((40, 80)):
        events, parts = [], []
        for step in range(4):
            begin = MS + step * 100 * MS
            events += [
                TraceEvent("user_annotation", f"ProfilerStep#{step}", begin, 100 * MS),
                operator("aten::mm", begin, length * MS, step),
                TraceEvent(
                    "user_annotation",
                    "gloo:all_reduce",
                    begin + length * MS,
                    (98 - length) * MS,
                    tid=1001,
                ),
            ]
            parts.append(["forward", BASE_NS + begin, 100 * MS, 100 * MS, rank * line * MS])
        known = {
            "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2},
            "watch_parts": parts,
        }
        write_trace(tmp_path / f"trace_rank{rank}.json", events, header=ON_A_PROCESSOR | known)
    assert (checked(tmp_path).cause == "straggler") == blamed


def test_a_first_step_that_others_made_long_is_no_start_up(tmp_path: Path) -> None:
    """A part that is sampled as a whole: 300 ms of the first step's last part it stood in line."""
    found = checked(watched(tmp_path / "trace.json", {}, late=300))
    assert found.signs.first_step == pytest.approx(4)
    assert "startup" not in {
        alternative.name for alternative in found.alternatives if alternative.fired
    } | {found.cause}
    assert found.cause == "outside-torch"
    (why,) = [
        alternative.why for alternative in found.alternatives if alternative.name == "startup"
    ]
    assert "1.05 times without what other programs took" in why


def test_a_first_step_is_no_start_up_because_others_made_the_later_ones_long(
    tmp_path: Path,
) -> None:
    path = watched(tmp_path / "trace.json", {"data": 0.6}, lengths={"data": 90, "forward": 10})
    content = json.loads(path.read_text())
    first, rest = content["watch_parts"][:2], content["watch_parts"][2:]
    quiet = [[name, begin, length, length, 0] for name, begin, length, *_ in first]
    path.write_text(json.dumps(content | {"watch_parts": [*quiet, *rest]}))
    found = checked(path)
    assert (found.signs.first_step, found.cause) == (pytest.approx(1), "input-bound")
    assert "startup" not in {
        alternative.name for alternative in found.alternatives if alternative.fired
    }


UNTRACED = {
    "steps": 20,
    "step_ns": 50 * MS,
    "parts_ns": {"data": 40 * MS, "forward": 5 * MS, "optimizer": 5 * MS},
}
"""Steps that the script timed before the recording."""


def test_time_that_others_took_of_the_recorded_steps_is_none_of_the_untraced_one(
    tmp_path: Path,
) -> None:
    """The wait for data keeps what was timed, and others what the recorded steps don't explain."""
    lengths = {"data": 60, "forward": 20, "optimizer": 20}
    busy = {"data": 0.3, "forward": 0.5}
    path = watched(tmp_path / "trace.json", busy, lengths=lengths, watch_untraced=UNTRACED)
    found = tidyprof.triage(tidyprof.read(path))
    assert found.cause == "input-bound"
    assert found.share == pytest.approx(0.8, abs=0.05)
    assert found.signs.shares["taken"] == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("queued", [0.3, 0.5])
def test_a_load_that_was_there_before_the_recording_too_is_told_as_without_those_times(
    queued: float, tmp_path: Path
) -> None:
    """Nobody knows how much others took of the untraced steps; these were as long."""
    lengths = {"data": 60, "forward": 20, "optimizer": 20}
    timed = {name: length * MS for name, length in lengths.items()}
    untraced = {"steps": 20, "step_ns": 100 * MS, "parts_ns": timed}
    busy = {"data": queued}
    alone = checked(watched(tmp_path / "alone.json", busy, lengths=lengths))
    path = watched(tmp_path / "timed.json", busy, lengths=lengths, watch_untraced=untraced)
    found = tidyprof.triage(tidyprof.read(path))
    assert alone.signs.shares["taken"] == pytest.approx(0.6 * queued)
    assert found.signs.shares == pytest.approx(alone.signs.shares)


@pytest.mark.parametrize("begins_after", [True, False])
def test_samples_without_a_judged_step_take_nothing(begins_after: bool, tmp_path: Path) -> None:
    """All work is outside of the marked steps, or these have no length."""
    marked = TraceEvent("user_annotation", "ProfilerStep#1", (200 if begins_after else 1) * MS,
                        100 * MS if begins_after else 0)  # fmt: skip
    events = [
        marked,
        TraceEvent("user_annotation", "data", MS, 50 * MS),
        operator("aten::mm", 51 * MS, 50 * MS, 1),
        call("hipLaunchKernel", 51 * MS, 5000, 3),
        kernel("gemm", 51 * MS + 10_000, 40 * MS, 3),
    ]
    parts = [["data", BASE_NS + MS, 50 * MS, 25 * MS, 25 * MS]]
    header = HEADER | {"watch_parts": parts, "watch_untraced": UNTRACED}
    path = write_trace(tmp_path / "trace.json", events, header=header)
    assert tidyprof.triage(tidyprof.read(path)).signs.shares.get("taken", 0) == 0
