"""Kernels that last beyond the next ones of their stream, in the formats of ROCm's tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import tidyprof
from tidyprof_tests import perfetto_writer
from tidyprof_tests.rocpd_writer import RocpdWriter
from tidyprof_tests.rocprofv3_writer import Call, Kernel, call_csv, kernel_csv, write_results
from tidyprof_tests.rpd_writer import RpdWriter

BASE = 10**9
STEP_NS, KERNEL_NS = 402_000, 400_000

Run = Sequence[tuple[int, int]]
"""Start and duration of each kernel, in ns after the start of the file."""


def in_a_row(**longer: int) -> Run:
    """Ten kernels one after the other; `k3=5` makes the fourth last 5 ns."""
    return [
        (50_000 + STEP_NS * number, longer.get(f"k{number}", KERNEL_NS)) for number in range(10)
    ]


def rocpd(
    path: Path, run: Run, stream: int, threads: Sequence[int] = (1,), launched: bool = True
) -> Path:
    writer = RocpdWriter(path / "x_results.db")
    for number, (start, duration) in enumerate(run):
        correlation = None if launched else 0
        tid = threads[number % len(threads)]
        writer.kernel(f"k{number}", start, duration, correlation, stream=stream, tid=tid)
    return writer.close()


def rpd(
    path: Path, run: Run, stream: int, threads: Sequence[int] = (1,), launched: bool = True
) -> Path:
    writer = RpdWriter(path / "x.rpd")
    for number, (start, duration) in enumerate(run):
        if launched:
            writer.kernel(
                f"k{number}",
                start,
                duration,
                stream=hex(stream),
                tid=threads[number % len(threads)],
            )
        else:
            writer.operation("KernelExecution", f"k{number}", start, duration)
    return writer.close()


def _kernels(run: Run, stream: int, threads: Sequence[int]) -> list[Kernel]:
    return [
        Kernel(
            f"k{number}",
            *times,
            number + 1,
            number + 1,
            stream=stream,
            thread=threads[number % len(threads)],
        )
        for number, times in enumerate(run)
    ]


def _calls(run: Run, threads: Sequence[int]) -> list[Call]:
    return [
        Call(
            "hipLaunchKernel",
            start - 5_000,
            3_000,
            number + 1,
            thread=threads[number % len(threads)],
        )
        for number, (start, _) in enumerate(run)
    ]


def rocprofv3_csv(
    path: Path, run: Run, stream: int, threads: Sequence[int] = (1,), launched: bool = True
) -> Path:
    (path / "1_kernel_trace.csv").write_text(kernel_csv(_kernels(run, stream, threads)))
    if launched:
        (path / "1_hip_api_trace.csv").write_text(call_csv(_calls(run, threads)))
    return path


def rocprofv3_json(
    path: Path, run: Run, stream: int, threads: Sequence[int] = (1,), launched: bool = True
) -> Path:
    calls = _calls(run, threads) if launched else []
    return write_results(path / "1_results.json", _kernels(run, stream, threads), calls, [])


def perfetto(
    path: Path, run: Run, stream: int | None, threads: Sequence[int] = (1,), launched: bool = True
) -> Path:
    parts = [perfetto_writer.start(), perfetto_writer.tracks()]
    named = {} if stream is None else {"stream_ID": stream}
    events = []
    for number, (start, duration) in enumerate(run):
        begin = BASE + start
        launcher = {"tid": threads[number % len(threads)]}
        options = {"agent": "Agent-4"} | named | launcher
        events.append(
            (
                begin,
                perfetto_writer.kernel(
                    begin, begin + duration, f"k{number}", number + 1, **options
                ),
            )
        )
        if launched:
            call = perfetto_writer.call(begin - 5_000, begin - 2_000, "hipLaunchKernel", number + 1)
            events.append((begin - 5_000, call))
    return perfetto_writer.write_trace(
        path / "x.pftrace", *parts, *(part for _, part in sorted(events))
    )


WRITERS = {
    writer.__name__: writer for writer in (rocpd, rpd, rocprofv3_csv, rocprofv3_json, perfetto)
}


def durations(path: Path) -> tuple[list[int], list[str]]:
    profile = tidyprof.read(path)
    return profile.device_events["duration_ns"].tolist(), [
        text for text in profile.meta["warnings"] if "stream" in text
    ]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("stream", [0, 3])
@pytest.mark.parametrize("too_long_ns", [1_600_000_000, 1_700_000])
def test_a_kernel_that_reaches_over_the_next_ones_is_cut_and_told(
    write: Callable[..., Path], stream: int, too_long_ns: int, tmp_path: Path
) -> None:
    found, (warning,) = durations(write(tmp_path, in_a_row(k3=too_long_ns), stream))
    assert found == [KERNEL_NS] * 3 + [STEP_NS] + [KERNEL_NS] * 6
    assert "1 of 10 kernels" in warning


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_overlaps_of_rounding_stay_as_they_are(write: Callable[..., Path], tmp_path: Path) -> None:
    """In public recordings kernels of a stream overlap by 0.6 us at most."""
    run = in_a_row(k3=STEP_NS + 600)
    if write is perfetto:  # its slices on one track cannot overlap by a part
        run = in_a_row()
    assert durations(write(tmp_path, run, 3)) == ([duration for _, duration in run], [])


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("why", ["threads", "no call"])
def test_what_may_be_several_streams_is_not_cut(
    write: Callable[..., Path], why: str, tmp_path: Path
) -> None:
    """Each thread may have a default stream of its own; and OpenMP, which does not call HIP, has
    stream 0, too.
    """
    run = in_a_row(k3=1_700_000)
    options = {"threads": range(10)} if why == "threads" else {"launched": False}
    if write is perfetto and why == "threads":
        options = {"launched": False}  # the file does not say which thread launched a kernel
    assert durations(write(tmp_path, run, 0, **options)) == ([duration for _, duration in run], [])


def test_kernels_of_a_hardware_queue_may_run_beside_each_other(tmp_path: Path) -> None:
    run = in_a_row(k3=1_700_000)
    profile = tidyprof.read(perfetto(tmp_path, run, None))
    assert set(profile.device_events["stream"]) == {0}, "the queue stands for it"
    assert profile.device_events["duration_ns"].tolist() == [duration for _, duration in run]


@pytest.mark.parametrize("write", [rocpd, rpd, rocprofv3_csv], ids=lambda write: write.__name__)
def test_streams_that_are_none_are_told_and_not_cut(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    run = [(50_000 + 2_000 * number, 1_000_000 + number) for number in range(20)]
    found, (warning,) = durations(write(tmp_path, run, 3))
    assert found == [duration for _, duration in run]
    assert "526 times" in warning
    assert "Nothing was cut" in warning
