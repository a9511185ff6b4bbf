"""triage on what traces of real GPUs have: small ones whose truth is known by how they were made.
Times in µs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidyprof
from tidyprof.cli.main import main
from tidyprof_tests.chrome_writer import TraceEvent, call, kernel, operator, write_trace

MS = 1_000
"""A millisecond in the unit of this file."""

NEXT = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
TO_DEVICE, TO_HOST = "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)"
CUDA = {
    "schemaVersion": 1,
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "numSms": 132, "warpSize": 32}],
}


class Step:
    """Collects the events of one marked step. Each begins so many µs after the step does."""

    def __init__(self, events: list[TraceEvent], number: int, length: float) -> None:
        self.events, self.number, self.begin = (
            events,
            number,
            round(1_000_000 + number * length * 1_000),
        )
        self.part(f"ProfilerStep#{number}", 0, length)

    def _at(self, at: float, length: float) -> tuple[int, int]:
        return self.begin + round(at * 1_000), round(length * 1_000)

    def part(self, name: str, at: float, length: float, thread: int = 1000) -> None:
        self.events.append(TraceEvent("user_annotation", name, *self._at(at, length), tid=thread))

    def operator(self, name: str, at: float, length: float) -> None:
        self.events.append(operator(name, *self._at(at, length), len(self.events)))

    def call(self, name: str, at: float, length: float) -> None:
        self.events.append(call(name, *self._at(at, length), len(self.events)))

    def launch(self, at: float, length: float, name: str = "gemm", late: float = 6) -> None:
        """A launch of 5 µs whose kernel begins so many µs after it."""
        known = len(self.events)
        self.events += [
            call("cudaLaunchKernel", *self._at(at, 5), known),
            kernel(name, *self._at(at + late, length), known, device=0),
        ]

    def copy(self, name: str, at: float, length: float) -> None:
        """A call that lasts as long as its copy, but for the 2 µs to begin and to end it."""
        known = len(self.events)
        whole = {"device": 0, "stream": 0, "correlation": known, "bytes": 4096}
        self.events += [
            call("cudaMemcpyAsync", *self._at(at, length), known),
            TraceEvent("gpu_memcpy", name, *self._at(at + 2, length - 4), 2, 0, whole),
        ]


def trace(
    path: Path, length: float, fill: Callable[[Step], None], steps: int = 4, **members: Any
) -> Path:
    """A file of so many steps of this length, each filled by `fill`; members are of the file as a
    whole.
    """
    events: list[TraceEvent] = []
    for number in range(steps):
        fill(Step(events, number, length))
    return write_trace(path, events, header=CUDA | members)


def triaged(
    folder: Path, length: float, fill: Callable[[Step], None], **members: Any
) -> tidyprof.Diagnosis:
    return tidyprof.triage(tidyprof.read(trace(folder / "trace.json", length, fill, **members)))


def says(found: tidyprof.Diagnosis, *words: str) -> bool:
    """Whether one sentence of the evidence has all of these words."""
    return any(all(word in sentence for word in words) for sentence in found.evidence)


def test_a_library_that_tries_kernels_is_start_up_and_its_operator_is_named(tmp_path: Path) -> None:
    def search(step: Step, kinds: int) -> None:
        step.operator("aten::convolution_backward", 0, 200 * MS)
        for place in range(20):
            step.launch(5 * MS + place * 9 * MS, 100, f"conv_{place % kinds}")

    found = triaged(tmp_path, 210 * MS, lambda step: search(step, 10))
    assert found.cause == "startup"
    assert says(found, "aten::convolution_backward")
    assert triaged(tmp_path, 210 * MS, lambda step: search(step, 1)).cause != "startup"


def ranks(
    folder: Path, computing: tuple[float, float], range_at: tuple[float, float]
) -> tidyprof.Diagnosis:
    """Two ranks with steps of 40 ms, which compute for so long; their ranges of gloo end together,
    at 38 ms.
    """
    profiles = []
    for rank in range(2):

        def fill(step: Step, rank: int = rank) -> None:
            step.operator("aten::mm", 0, 500)
            step.launch(100, computing[rank])
            step.operator("c10d::allreduce_", 1 * MS, 100)
            step.part("gloo:all_reduce", range_at[rank], 38 * MS - range_at[rank], thread=1001)

        path = folder / f"trace_rank{rank}.json"
        trace(
            path, 40 * MS, fill, distributedInfo={"backend": "gloo", "rank": rank, "world_size": 2}
        )
        profiles.append(tidyprof.read(path))
    return tidyprof.triage(profiles)


def test_a_rank_that_others_await_in_gloo_is_a_straggler(tmp_path: Path) -> None:
    found = ranks(tmp_path, (3 * MS, 30 * MS), (4 * MS, 31 * MS))
    assert found.cause == "straggler"
    assert says(found, "Rank 1 ")


def test_time_of_all_ranks_in_gloo_is_communication_and_no_silence(tmp_path: Path) -> None:
    found = ranks(tmp_path, (22 * MS, 22 * MS), (23 * MS, 23 * MS))
    assert found.cause == "exposed-communication"
    assert "outside-torch" not in {
        alternative.name for alternative in found.alternatives if alternative.fired
    }


def test_dispatch_to_experts_is_communication_and_an_unknown_one_is_told(tmp_path: Path) -> None:
    def fill(name: str) -> Callable[[Step], None]:
        def filled(step: Step) -> None:
            step.launch(0, 8 * MS)
            step.launch(10, 11.9 * MS, name, late=8 * MS)

        return filled

    known = triaged(
        tmp_path, 20 * MS, fill("void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>")
    )
    assert known.cause == "exposed-communication"
    unknown = triaged(tmp_path, 20 * MS, fill("void mine::all2all_kernel<float>"))
    assert not unknown.confident
    assert says(unknown, "all2all_kernel", "names like communication")


ROCPROF_1 = (
    "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,DispatchNs,BeginNs,EndNs,CompleteNs,"
    "DurationNs"
)


def test_idleness_without_any_call_of_the_host_has_no_cause(tmp_path: Path) -> None:
    """Kernels that know when they were asked for, as the first rocprof writes them: 9 of each 20
    ms.
    """
    begins = [10**9 + place * 20 * 10**6 for place in range(30)]
    rows = [
        f'{place},"gemm_{place % 3}",0,0,{place},7,7,'
        f"{begin - 9000},{begin},{begin + 9 * 10**6},{begin + 10**7},0"
        for place, begin in enumerate(begins)
    ]
    (tmp_path / "results.csv").write_text("\n".join([ROCPROF_1, *rows]) + "\n")
    found = tidyprof.triage(tidyprof.read(tmp_path / "results.csv"))
    assert (found.cause, found.confident, found.alternatives) == ("inconclusive", False, ())


@pytest.mark.parametrize(("name", "cause"), [("gemm_9", "startup"), ("gemm_1", "inconclusive")])
def test_one_gap_without_any_call_is_a_start_up_before_a_new_kernel(
    name: str, cause: str, tmp_path: Path
) -> None:
    """Of 600 ms the device is idle for 400 at once; nothing says what the host did then."""
    rows, begin = [], 10**9
    for place in range(10):
        own = name if place == 5 else f"gemm_{place % 3}"
        begin += 4 * 10**8 if place == 5 else 0
        rows.append(
            f'{place},"{own}",0,0,{place},7,7,'
            f"{begin - 9000},{begin},{begin + 19 * 10**6},{begin + 10**7},0"
        )
        begin += 20 * 10**6
    (tmp_path / "results.csv").write_text("\n".join([ROCPROF_1, *rows]) + "\n")
    found = tidyprof.triage(tidyprof.read(tmp_path / "results.csv"))
    assert found.cause == cause


@pytest.mark.parametrize(
    "of_torch", [None, (6.5 * MS, 13 * MS), (7.5 * MS, 11 * MS)], ids=["none", "around", "inside"]
)
def test_silence_in_a_part_of_the_user_names_it(
    of_torch: tuple[float, float] | None, tmp_path: Path
) -> None:
    def fill(step: Step) -> None:
        step.operator("aten::mm", 100, 400)
        step.launch(200, 6.5 * MS)
        step.part("bags", 7 * MS, 12 * MS)
        if of_torch:
            step.part(NEXT, 10, 50)
            step.part("Optimizer.step#Adam.step", *of_torch)

    found = triaged(tmp_path, 20 * MS, fill)
    assert found.cause == "outside-torch"
    assert says(found, "bags")
    assert not says(found, "Optimizer.step")


def test_copies_through_pageable_memory_both_ways_are_copies(tmp_path: Path) -> None:
    def fill(step: Step, directions: tuple[str, ...]) -> None:
        for place, name in enumerate(4 * directions):
            step.copy(name, place * 2 * MS, 2 * MS)
        step.launch(4 * len(directions) * 2 * MS, 4 * MS)

    assert (
        triaged(tmp_path, 20.1 * MS, lambda step: fill(step, (TO_DEVICE, TO_HOST))).cause
        == "exposed-copies"
    )
    assert triaged(tmp_path, 12.1 * MS, lambda step: fill(step, (TO_HOST,))).cause == "sync-bound"


def replaying(path: Path, counts: list[int]) -> Path:
    """Steps of 10 ms: a graph whose replay has so many kernels in the file, and a kernel that waits
    for its end. Below a hundred the file lacks some of 390.
    """
    events: list[TraceEvent] = []
    for number, kernels in enumerate(counts):
        step = Step(events, number, 10 * MS)
        known, each = len(events), 8.97 * MS / (kernels if kernels > 100 else 390)
        events.append(call("hipGraphLaunch", *step._at(100, 50), known))
        events += [
            kernel(f"layer_{i % 7}", *step._at(200 + each * i, each - 1), known, device=0)
            for i in range(kernels)
        ]
        step.launch(300, 100, "sample", late=9 * MS)
    return write_trace(path, events)


@pytest.mark.parametrize(
    ("counts", "unclear"),
    [
        ([0] * 6, True),
        ([0, 0, 0, 390, 390, 390], True),
        ([390, 14, 14, 14, 14], True),
        ([390] * 6, False),
        ([390] * 12 + [0], False),
        ([390, 300, 390, 360, 200], False),
    ],
    ids=["none", "half", "unequal", "all", "last", "others"],
)
def test_replays_without_their_kernels_are_told(
    counts: list[int], unclear: bool, tmp_path: Path
) -> None:
    found = tidyprof.triage(tidyprof.read(replaying(tmp_path / "trace.json", counts)))
    assert (found.cause == "inconclusive") == unclear
    assert not (unclear and found.confident)
    assert ("known-issues" in found.next_step) == unclear


def test_many_small_waits_block_the_host(tmp_path: Path) -> None:
    def fill(step: Step) -> None:
        for place in range(200):
            step.operator("aten::add", place * 100, 20)
            step.launch(place * 100 + 1, 46)
            step.call("cudaStreamSynchronize", place * 100 + 51, 3)

    assert triaged(tmp_path, 20 * MS, fill).cause == "sync-bound"


def test_a_checkpoint_is_no_launching(tmp_path: Path) -> None:
    def fill(step: Step) -> None:
        step.launch(0, 500)
        for place in range(50):
            step.copy(TO_HOST, 600 + place * 130, 30)

    assert triaged(tmp_path, 7.2 * MS, fill).cause != "launch-bound"


def nested(step: Step) -> None:
    """A step of 30 ms: 3,000 operators, each with another one 1.8 µs later; 600 kernels of 15 ms in
    all.
    """
    for place in range(3000):
        step.operator("aten::add", place * 10, 9)
        step.operator("aten::add_", place * 10 + 1.8, 6)
        if place % 5 == 0:
            step.launch(place * 10 + 2, 25, f"kernel_{place % 7}")


def late(step: Step, working: float = 60) -> None:
    """A step of 20 ms: 1,000 operators without others in them, 200 launches of kernels that work
    for so long each.
    """
    for place in range(1000):
        step.operator("aten::add", place * 20, 18)
        if place % 5 == 0:
            step.launch(place * 20 + 1, working, f"kernel_{place % 7}")


UNTRACED = {"steps": 10, "step_ns": 18e6, "parts_ns": {"data": 1e6}}


@pytest.fixture(scope="module")
def of_nested(tmp_path_factory: pytest.TempPathFactory) -> tidyprof.Profile:
    return tidyprof.read(
        trace(tmp_path_factory.mktemp("nested") / "trace.json", 30 * MS, nested, steps=3)
    )


def test_the_step_without_the_profiler_is_estimated(of_nested: tidyprof.Profile) -> None:
    low, middle, high = tidyprof.triage(of_nested).signs.observer.estimated_ns
    assert 15e6 <= low <= middle <= high < 30e6
    assert high <= 1.6 * low
    for step_ms in (low / 1e6, 18, 27, 60):
        found = tidyprof.triage(of_nested, step_ms=step_ms)
        assert found.signs.observer.unprofiled_step_ns == pytest.approx(1e6 * step_ms)
        assert found.signs.shares["compute"] == pytest.approx(15 / step_ms, rel=0.01)
        assert sum(found.signs.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("off", [0.985, 1, 1.015])
def test_a_step_as_long_as_the_recorded_ones_counts_for_nothing(
    of_nested: tidyprof.Profile, off: float
) -> None:
    alone = tidyprof.triage(of_nested)
    found = tidyprof.triage(of_nested, step_ms=off * alone.signs.observer.traced_ns / 1e6)
    assert (found.cause, found.confident, found.share) == (
        alone.cause,
        alone.confident,
        alone.share,
    )


def test_a_step_within_the_estimate_is_a_typical_one(of_nested: tidyprof.Profile) -> None:
    """However much the profiler may have cost: here more than the idle time that it can have
    lengthened.
    """
    for estimated_ns in tidyprof.triage(of_nested).signs.observer.estimated_ns:
        assert not tidyprof.triage(of_nested, step_ms=estimated_ns / 1e6).signs.untypical


def test_what_the_script_timed_before_is_the_step_without_the_profiler(tmp_path: Path) -> None:
    found = triaged(tmp_path, 20 * MS, late, watch_untraced=UNTRACED)
    assert found.signs.observer.unprofiled_step_ns == 18e6
    assert "10 steps" in found.signs.observer.source
    assert says(found, "18 ms", "10 steps")
    assert sum(found.signs.shares.values()) == pytest.approx(1)


BROKEN = ("18e6", -18e6, float("nan"), [18e6], 1e300, 10**400)


@pytest.mark.parametrize("member", ["whole", *UNTRACED, "data"])
def test_broken_times_in_a_trace_are_ignored(member: str, tmp_path: Path) -> None:
    for value in BROKEN:
        stated = {"whole": value, "data": UNTRACED | {"parts_ns": {"data": value}}}
        found = triaged(
            tmp_path, 1 * MS, short, watch_untraced=stated.get(member, UNTRACED | {member: value})
        )
        assert found.signs.observer.unprofiled_step_ns is None, value


def short(step: Step) -> None:
    step.operator("aten::mm", 0, 100)
    step.launch(10, 500)


def times(*steps: Any) -> str:
    """What STEP_TIMER=times writes, with so many seconds in one part of each step."""
    return "".join(
        json.dumps({"rank": 0, "step": i, "forward": one}) + "\n" for i, one in enumerate(steps)
    )


def test_a_file_of_times_beside_the_trace_is_taken_and_a_given_step_wins(tmp_path: Path) -> None:
    (tmp_path / "times_rank0.jsonl").write_text(times(*[0.5] * 5, *[0.015] * 10), encoding="utf-8")
    found = triaged(tmp_path, 20 * MS, late).signs.observer
    assert found.unprofiled_step_ns == pytest.approx(15e6)
    assert "times_rank" in found.source
    stated = tidyprof.read(trace(tmp_path / "trace.json", 20 * MS, late, watch_untraced=UNTRACED))
    assert tidyprof.triage(stated).signs.observer.unprofiled_step_ns == 18e6
    given = tidyprof.triage(stated, step_ms=14).signs.observer
    assert (given.unprofiled_step_ns, given.source) == (14e6, "--step-time-ms")


def test_the_last_line_of_a_job_that_was_killed_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "times_rank0.jsonl").write_text(times(*[0.015] * 10)[:-4], encoding="utf-8")
    assert triaged(tmp_path, 20 * MS, late).signs.observer.unprofiled_step_ns == pytest.approx(15e6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "3\n3\n3\n",
        "nonsense",
        "[" * 100_000,
        times(0.5),
        *(times(*9 * [one]) for one in BROKEN),
        times(*9 * [-0.015]),
        times(*9 * [0]),
        times(*9 * [1e-300]),
    ],
    ids=lambda text: text[30:60] or None,
)
def test_a_broken_file_of_times_is_ignored(text: str, tmp_path: Path) -> None:
    (tmp_path / "times_rank0.jsonl").write_text(text, encoding="utf-8")
    assert triaged(tmp_path, 1 * MS, short).signs.observer.unprofiled_step_ns is None


def test_times_of_a_step_say_nothing_of_a_trace_without_marked_steps(tmp_path: Path) -> None:
    """60 ms recorded in one piece are no step of 18."""
    events: list[TraceEvent] = []
    for number in range(3):
        late(Step(events, number, 20 * MS))
    unmarked = [event for event in events if event.category != "user_annotation"]
    (tmp_path / "times_rank0.jsonl").write_text(times(*9 * [0.018]), encoding="utf-8")
    path = write_trace(
        tmp_path / "trace.json", unmarked, header=CUDA | {"watch_untraced": UNTRACED}
    )
    found = tidyprof.triage(tidyprof.read(path))
    assert found.signs.observer.unprofiled_step_ns is None
    with pytest.raises(ValueError, match="marked"):
        tidyprof.triage(tidyprof.read(path), step_ms=18)


def test_a_modelled_trace_is_taken_as_it_is(tmp_path: Path) -> None:
    found = triaged(tmp_path, 20 * MS, late, modelled={"device": "MI300X", "error": "10 %"})
    assert found.origins[0].startswith("modelled")
    assert found.signs.observer.estimated_ns is None
    assert found.signs.step_ns == pytest.approx(20e6)
    assert (found.cause, found.share) == ("launch-bound", pytest.approx(0.4, abs=0.01))


def loading(step: Step, wait: float) -> None:
    """A step of 30 ms that waits so long for the processes that load, then computes."""
    step.part(NEXT, 0, wait)
    step.operator("aten::mm", wait, 200)
    length = (30 * MS - wait - 20) / 5
    for place in range(5):
        step.launch(wait + 8 * place, length, f"kernel_{place}", late=8 + place * (length - 8))


def before(step_ms: float, data_ms: float) -> dict[str, object]:
    return {
        "steps": 10,
        "step_ns": step_ms * 1e6,
        "parts_ns": {"data": data_ms * 1e6, "forward": 1e6},
    }


def test_data_that_come_later_than_in_the_recorded_steps_are_late(tmp_path: Path) -> None:
    found = triaged(
        tmp_path, 30 * MS, lambda step: loading(step, 3 * MS), watch_untraced=before(60, 40)
    )
    assert found.cause == "input-bound"
    assert found.share == pytest.approx(33 / 60, abs=0.01)


def test_data_that_were_only_late_in_the_recorded_steps_are_not(tmp_path: Path) -> None:
    assert triaged(tmp_path, 30 * MS, lambda step: loading(step, 12 * MS)).cause == "input-bound"
    found = triaged(
        tmp_path, 30 * MS, lambda step: loading(step, 12 * MS), watch_untraced=before(18.1, 0.1)
    )
    assert found.cause == "no-bottleneck"


def test_what_typical_steps_have_elsewhere_than_in_data_is_no_loading(tmp_path: Path) -> None:
    """The script timed its data: the other half of its step is in none that was recorded."""
    found = triaged(
        tmp_path, 30 * MS, lambda step: loading(step, 3 * MS), watch_untraced=before(60, 0.1)
    )
    assert (found.cause, found.confident) == ("inconclusive", False)
    assert found.signs.shares["unseen"] == pytest.approx(30 / 60, abs=0.01)
    profile = tidyprof.read(
        trace(tmp_path / "trace.json", 30 * MS, lambda step: loading(step, 3 * MS))
    )
    assert tidyprof.triage(profile, step_ms=60).cause == "input-bound"


@pytest.mark.parametrize("working", [60, 65])
def test_a_verdict_in_doubt_is_resolved_by_the_step(working: float, tmp_path: Path) -> None:
    profile = tidyprof.read(
        trace(tmp_path / "trace.json", 20 * MS, lambda step: late(step, working))
    )
    found = tidyprof.triage(profile)
    low, _, high = (one / 1e6 for one in found.signs.observer.estimated_ns)
    assert not found.confident
    assert says(found, "no-bottleneck", "launch-bound", "--step-time-ms")
    quick, slow = tidyprof.triage(profile, step_ms=low), tidyprof.triage(profile, step_ms=high)
    assert (quick.cause, quick.confident, slow.cause) == ("no-bottleneck", True, "launch-bound")


def test_a_loader_in_a_part_of_another_name_is_as_late_as_recorded(tmp_path: Path) -> None:
    """What the script calls `data` is then short, with the profiler as without it."""

    def fill(step: Step) -> None:
        step.part("batch", 0, 12.1 * MS)
        loading(step, 12 * MS)

    for step_ns in (30e6, 60e6):
        parts = {"data": 3e4, "batch": step_ns - 18e6, "forward": 1e6}
        found = triaged(
            tmp_path,
            30 * MS,
            fill,
            watch_untraced={"steps": 10, "step_ns": step_ns, "parts_ns": parts},
        )
        assert (found.cause, found.share) == (
            "input-bound",
            pytest.approx(1 - 18e6 / step_ns, abs=0.01),
        )


def refused(capsys: pytest.CaptureFixture[str], path: Path, step_ms: object) -> str:
    """The one line of the command, which ends with exit code 2."""
    try:
        code = main(["triage", str(path), f"--step-time-ms={step_ms}"])
    except SystemExit as end:  # argparse ends by itself
        code = end.code
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1)
    return error


@pytest.mark.parametrize("step_ms", [0, -1, float("nan"), float("inf"), 1e-300, 1e308])
def test_a_step_that_no_step_can_take_is_refused(
    step_ms: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(tmp_path / "trace.json", 1 * MS, short)
    with pytest.raises(ValueError, match="no step takes"):
        tidyprof.triage(tidyprof.read(path), step_ms=step_ms)
    refused(capsys, path, step_ms)
