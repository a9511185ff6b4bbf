"""What of a modelled run rocprofv3 was asked to record."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.runtime_kernels import MEMORY_COPY_NAMES, truncated_name
from proflab.standins.errors import ToolError
from proflab.standins.rocprofv3_options import enabled_domains

NANOSECONDS = {"hour": 3_600e9, "min": 60e9, "sec": 1e9, "msec": 1e6, "usec": 1e3, "nsec": 1.0}


def recorded(run: Run, options: argparse.Namespace) -> Run:
    """The run in the time windows that these options give, with the kernel names that they ask for."""
    windows = _windows(options, run)
    ranks = run.ranks if windows is None else [within(rank, windows) for rank in run.ranks]
    return replace(run, ranks=tuple(_renamed(rank, options) for rank in ranks))


def traces_of(options: argparse.Namespace) -> tuple[str, ...]:
    """What is recorded, in the words of gpumodel's writers.

    HSA calls, HIP compiler calls and allocations are not modelled: those domains stay empty.
    """
    domains = enabled_domains(options)
    return tuple(name for name, domain in _TRACES.items() if domain in domains)


_TRACES = {
    "kernel": "kernel_trace",
    "hip": "hip_runtime_trace",
    "memory_copy": "memory_copy_trace",
    "marker": "marker_trace",
    "rccl": "rccl_trace",
}


def of_traces(rank: RankRun, traces: Sequence[str]) -> RankRun:
    """The rank with those of its tables' rows that belong to these traces."""
    work = rank.device_work
    copies = is_memory_copy(work)
    wanted = (copies & ("memory_copy" in traces)) | (~copies & ("kernel" in traces))
    return replace(
        rank,
        device_work=work[wanted].reset_index(drop=True),
        calls=rank.calls if "hip" in traces else rank.calls.iloc[:0],
        annotations=rank.annotations if "marker" in traces else rank.annotations.iloc[:0],
    )


def is_memory_copy(work: pd.DataFrame) -> pd.Series:
    """Copies between host and device; all other device work shows as a kernel."""
    return (work["kind"] == "copy") & work["copy_direction"].isin(list(MEMORY_COPY_NAMES))


def profiled_ranks(text: str | None) -> set[int] | None:
    """The ranks that `--profile-mpi-ranks 0-3,8` names; None for all. Raises ToolError."""
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ToolError(f"Fatal error: --profile-mpi-ranks {text!r} is no list of ranks such as 0-3,8", 1)
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _windows(options: argparse.Namespace, run: Run) -> list[tuple[float, float]] | None:
    """Time windows in which something is recorded; None for the whole run."""
    if options.selected_regions:
        return []  # the course's workload never calls roctxProfilerResume
    if not options.collection_period:
        return None
    unit = NANOSECONDS[options.collection_period_unit[0]]
    return [window for text in options.collection_period for window in _periods(text, unit, run)]


def _periods(text: str, unit: float, run: Run) -> Sequence[tuple[float, float]]:
    try:
        delay, duration, repeat = text.split(":")
        delay_ns, duration_ns, count = float(delay) * unit, float(duration) * unit, int(repeat)
    except ValueError:
        raise ToolError(f"ValueError: --collection-period {text!r} is not DELAY:DURATION:REPEAT", 1) from None
    period = delay_ns + duration_ns
    if duration_ns <= 0:
        return []
    begins, begin = [], run.start_ns + delay_ns
    while begin < run.end_ns and (count == 0 or len(begins) < count):
        begins.append((begin, begin + duration_ns))
        begin += period
    return begins


def within(rank: RankRun, windows: Sequence[tuple[float, float]]) -> RankRun:
    """What lies in whole within one of the windows, each from begin to end in ns."""

    def kept(table: pd.DataFrame) -> pd.DataFrame:
        inside = pd.Series(False, index=table.index)
        for begin, end in windows:
            inside |= (table["start_ns"] >= begin) & (table["start_ns"] + table["duration_ns"] <= end)
        return table[inside].reset_index(drop=True)

    return replace(
        rank,
        device_work=kept(rank.device_work),
        calls=kept(rank.calls),
        annotations=kept(rank.annotations),
    )


def _renamed(rank: RankRun, options: argparse.Namespace) -> RankRun:
    work = rank.device_work
    if options.kernel_rename and not rank.annotations.empty:
        inside = ~is_memory_copy(work) & (work["phase"] != "")
        work = work.assign(name=work["name"].where(~inside, work["phase"]).astype("object"))
    if options.truncate_kernels:
        work = work.assign(name=work["name"].map(truncated_name).astype("object"))
    return replace(rank, device_work=work)
