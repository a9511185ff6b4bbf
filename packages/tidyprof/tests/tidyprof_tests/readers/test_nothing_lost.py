"""Whatever a sound file holds is in a table, or is counted: among what was not kept, or what was
left out. A kernel that reaches over the next ones of its stream is cut.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from tidyprof_tests.readers.kit import Event, Writer, writers

SPACE_NS = 10_000
"""From the start of an event to the next one's, longer than any lasts: none is within another, or
over it.
"""
NAMES = (
    *("gemm<float>", "relu", "ncclDevKernel_Generic", "__amd_rocclr_fillBufferAligned"),
    *("_Z4gemmPf", "hipFoo"),
)
WRITERS = writers()


@st.composite
def runs(draw: st.DrawFn, kinds: tuple[str, ...]) -> list[Event]:
    event = st.tuples(st.sampled_from(kinds), st.sampled_from(NAMES), st.integers(1, 4_000))
    return [
        Event(kind, name, SPACE_NS * (number + 1), duration, number)
        for number, (kind, name, duration) in enumerate(draw(st.lists(event, min_size=1)))
    ]


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_event_is_in_a_table_or_counted(
    name: str, data: st.DataObject, tmp_path_factory
) -> None:
    writer = WRITERS[name]
    made = data.draw(runs(writer.kinds))
    folder = tmp_path_factory.getbasetemp() / "nothing lost"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    profile = tidyprof.read(writer.write(folder, made))
    start = {one: writer.start_ns + writer.unit_ns * one.start for one in made}
    events = Counter(profile.events["start_ns"].tolist())
    samples = Counter(profile.counters["time_ns"].tolist())
    missing = [
        one for one in made if not (samples if one.kind in writer.sampled else events)[start[one]]
    ]
    counted = sum(profile.meta["not_kept"].values()) + sum(profile.meta["repairs"].values())
    assert len(missing) <= counted, missing
    lasting = profile.events[profile.events["duration_ns"] > 0]
    found = dict(zip(lasting["start_ns"].tolist(), lasting["duration_ns"].tolist(), strict=True))
    assert not [one for one in made if found.get(start[one], one.duration) != one.duration]
    if writer.counted:
        assert len(profile.counters) == writer.counted(made)
    assert not pd.isna(profile.events["name"]).any()


# Kernels that last beyond the next ones of their stream

STEP_NS, KERNEL_NS, TOO_LONG_NS = 402_000, 400_000, 1_700_000
each_writer = pytest.mark.parametrize(
    "name", [name for name, writer in WRITERS.items() if writer.streams]
)


def in_a_row(
    fourth_ns: int,
    stream: int | None,
    threads: Sequence[int] = (1,),
    launched: bool = True,
    step_ns: int = STEP_NS,
) -> list[Event]:
    """Ten kernels one after the other, of which the fourth lasts as long as stated."""
    return [
        Event(
            "kernel",
            f"k{number}",
            50_000 + step_ns * number,
            fourth_ns if number == 3 else KERNEL_NS,
            number,
            stream,
            threads[number % len(threads)],
            launched,
        )
        for number in range(10)
    ]


def durations(writer: Writer, folder: Path, run: list[Event]) -> tuple[list[int], list[str]]:
    profile = tidyprof.read(writer.write(folder, run))
    warnings = [text for text in profile.meta["warnings"] if "stream" in text]
    return profile.device_events["duration_ns"].tolist(), warnings


@each_writer
@pytest.mark.parametrize("stream", [0, 3])
@pytest.mark.parametrize("too_long_ns", [1_600_000_000, TOO_LONG_NS])
def test_a_kernel_that_reaches_over_the_next_ones_is_cut_and_told(
    name: str, stream: int, too_long_ns: int, tmp_path: Path
) -> None:
    found, (warning,) = durations(WRITERS[name], tmp_path, in_a_row(too_long_ns, stream))
    assert found == [KERNEL_NS] * 3 + [STEP_NS] + [KERNEL_NS] * 6
    assert "1 of 10 kernels" in warning


NOT_CUT = {
    "overlaps of rounding": in_a_row(STEP_NS + 600, 3),
    "a default stream of each thread": in_a_row(TOO_LONG_NS, 0, range(10)),
    "stream 0 of OpenMP, which has no calls": in_a_row(TOO_LONG_NS, 0, launched=False),
}
IN_PERFETTO = "stream 0 of OpenMP, which has no calls"
"""Slices on one track of Perfetto can't overlap by a part, and have no launching thread."""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (name, why)
        for name, writer in WRITERS.items()
        for why in NOT_CUT
        if writer.streams and (name != "perfetto" or why == IN_PERFETTO)
    ],
)
def test_what_may_overlap_is_not_cut(name: str, why: str, tmp_path: Path) -> None:
    run = NOT_CUT[why]
    assert durations(WRITERS[name], tmp_path, run) == ([one.duration for one in run], [])


def test_kernels_of_a_hardware_queue_may_run_beside_each_other(tmp_path: Path) -> None:
    run = in_a_row(TOO_LONG_NS, None)
    profile = tidyprof.read(WRITERS["perfetto"].write(tmp_path, run))
    assert set(profile.device_events["stream"]) == {0}, "the queue stands for it"
    assert profile.device_events["duration_ns"].tolist() == [one.duration for one in run]


@pytest.mark.parametrize("name", ["rocpd", "rpd", "rocprofv3_csv"])
def test_streams_that_are_none_are_told_and_not_cut(name: str, tmp_path: Path) -> None:
    run = in_a_row(KERNEL_NS, 3, step_ns=2_000)
    found, (warning,) = durations(WRITERS[name], tmp_path, run)
    assert found == [KERNEL_NS] * 10
    assert "times" in warning
    assert "Nothing was cut" in warning
