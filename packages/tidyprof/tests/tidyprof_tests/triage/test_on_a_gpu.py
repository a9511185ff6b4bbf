"""triage on what traces of real GPUs have: small ones whose truth is known by how they were made.
Times in ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidyprof_tests.chrome_writer import call, kernel
from tidyprof_tests.triage.traces import (
    NEXT,
    TO_DEVICE,
    TO_HOST,
    Fill,
    Step,
    blamed,
    diagnosed,
    facts,
    ranks,
    triaged,
)


@pytest.mark.parametrize("kinds", [10, 1])
def test_a_library_that_tries_kernels_is_one_time_work(kinds: int, tmp_path: Path) -> None:
    def search(step: Step) -> None:
        step.operator("aten::convolution_backward", 0, 200)
        for place in range(20):
            step.launch(5 + place * 9, 0.1, f"conv_{place % kinds}")

    found = triaged(tmp_path, 210, search)
    assert (found.cause == "startup") == (kinds == 10)
    assert facts(found).get("library_search") == (
        "aten::convolution_backward" if kinds == 10 else None
    )


@pytest.mark.parametrize(
    ("computing", "cause"), [((3, 30), "straggler"), ((22, 22), "exposed-communication")]
)
def test_ranks_that_meet_in_gloo(
    computing: tuple[float, float], cause: str, tmp_path: Path
) -> None:
    """They compute for so long, and their ranges of gloo end together, at 38 of 40 ms."""

    def fill(length: float) -> Fill:
        def filled(step: Step) -> None:
            step.operator("aten::mm", 0, 0.5)
            step.launch(0.1, length)
            step.operator("c10d::allreduce_", 1, 0.1)
            step.part("gloo:all_reduce", length + 1, 37 - length, thread=1001)

        return filled

    found = ranks(tmp_path, 40, [fill(length) for length in computing])
    assert found.cause == cause
    assert "outside-torch" not in blamed(found)
    assert facts(found).get("straggler") == (1 if cause == "straggler" else None)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("void mori::moe::EpDispatchIntraNodeKernel<__hip_bfloat16>", True),
        ("void mine::all2all_kernel<float>", False),
    ],
)
def test_what_may_be_communication_is_not_judged_as_compute(
    name: str, known: bool, tmp_path: Path
) -> None:
    def fill(step: Step) -> None:
        step.launch(0, 8)
        step.launch(0.01, 11.9, name, late=8)

    found = triaged(tmp_path, 20, fill)
    assert (found.cause == "exposed-communication") == known
    assert found.confident == known
    assert ("unknown_collective_share" in facts(found)) != known


ROCPROF_1 = (
    "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,DispatchNs,BeginNs,EndNs,CompleteNs,"
    "DurationNs"
)


@pytest.mark.parametrize("gaps", [[11] * 30, [0] * 10 + [400] + [0] * 10], ids=["each", "once"])
def test_idle_time_without_host_calls_has_no_cause(gaps: list[float], tmp_path: Path) -> None:
    """Kernels of 9 ms that know when they were requested, as the first rocprof writes them."""
    rows, begin = [ROCPROF_1], 10**9
    for place, gap in enumerate(gaps):
        begin += round(gap * 1e6)
        end = begin + 9 * 10**6
        rows.append(f'{place},"gemm",0,0,{place},7,7,{begin - 9000},{begin},{end},{end},0')
        begin = end
    (tmp_path / "results.csv").write_text("\n".join(rows) + "\n")
    found = diagnosed(tmp_path / "results.csv")
    assert found.cause == "inconclusive"
    assert not found.alternatives


@pytest.mark.parametrize("of_torch", [None, (6.5, 13), (7.5, 11)], ids=["none", "around", "inside"])
def test_silence_in_a_part_of_the_user_names_it(
    of_torch: tuple[float, float] | None, tmp_path: Path
) -> None:
    def fill(step: Step) -> None:
        step.operator("aten::mm", 0.1, 0.4)
        step.launch(0.2, 6.5)
        step.part("bags", 7, 12)
        if of_torch:
            step.part(NEXT, 0.01, 0.05)
            step.part("Optimizer.step#Adam.step", *of_torch)

    found = triaged(tmp_path, 20, fill)
    assert (found.cause, facts(found)["outside_part"]) == ("outside-torch", "bags")


@pytest.mark.parametrize(
    ("ways", "cause"), [((TO_DEVICE, TO_HOST), "exposed-copies"), ((TO_HOST,), "sync-bound")]
)
def test_copies_through_pageable_memory_both_ways_are_copies(
    ways: tuple[str, ...], cause: str, tmp_path: Path
) -> None:
    def fill(step: Step) -> None:
        for place, name in enumerate(4 * ways):
            step.copy(name, place * 2, 2)
        step.launch(8 * len(ways), 4)

    assert triaged(tmp_path, 8 * len(ways) + 4.1, fill).cause == cause


def replaying(counts: Iterator[int]) -> Fill:
    """A graph whose replay has so many kernels in the file, and a kernel that waits for its end.
    Below a hundred the file lacks some of 390.
    """

    def fill(step: Step) -> None:
        known, count = len(step.events), next(counts)
        each = 8.97 / (count if count > 100 else 390)
        step.events.append(call("hipGraphLaunch", *step.at(0.1, 0.05), known))
        step.events += [
            kernel(f"layer_{i % 7}", *step.at(0.2 + each * i, each - 0.001), known, device=0)
            for i in range(count)
        ]
        step.launch(0.3, 0.1, "sample", late=9)

    return fill


@pytest.mark.parametrize(
    ("counts", "is_open"),
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
def test_replays_without_their_kernels_leave_the_cause_open(
    counts: list[int], is_open: bool, tmp_path: Path
) -> None:
    found = triaged(tmp_path, [10.0] * len(counts), replaying(iter(counts)))
    assert (found.cause == "inconclusive") == is_open
    assert ("graphs" in found.next_step) == is_open


def many_waits(step: Step) -> None:
    for place in range(200):
        step.operator("aten::add", place * 0.1, 0.02)
        step.launch(place * 0.1 + 0.001, 0.046)
        step.call("cudaStreamSynchronize", place * 0.1 + 0.051, 0.003)


def checkpoint(step: Step) -> None:
    step.launch(0, 0.5)
    for place in range(100):
        step.copy(TO_HOST, 0.6 + place * 0.13, 0.03)


@pytest.mark.parametrize("fill", [many_waits, checkpoint])
def test_many_small_waits_are_no_launching(fill: Fill, tmp_path: Path) -> None:
    assert triaged(tmp_path, 20, fill).cause == "sync-bound"
