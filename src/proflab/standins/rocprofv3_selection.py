"""What of a modelled run rocprofv3 was asked to record."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import MEMORY_COPY_NAMES, truncated_name
from proflab.standins.errors import ToolError
from proflab.standins.rocprofv3_options import enabled_domains


def recorded(run: Run, options: argparse.Namespace) -> Run:
    """The run with the kernel names that these options ask for."""
    if not options.truncate_kernels:
        return run
    works = [rank.device_work for rank in run.ranks]
    works = [work.assign(name=work["name"].map(truncated_name).astype("object")) for work in works]
    ranks = zip(run.ranks, works, strict=True)
    return replace(run, ranks=tuple(replace(rank, device_work=work) for rank, work in ranks))


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


_LAUNCHERS = (
    ("PBS_NODENUM", "PBS_O_TASKNUM"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
"""Variables of rank and size by launcher, in the order in which rocprofv3.py looks. torchrun's are not among them."""


def is_profiled(environment: Mapping[str, str], options: argparse.Namespace) -> bool:
    """Whether `--profile-mpi-ranks` leaves the process with this environment; without a rank and a size it does."""
    wanted = profiled_ranks(options.profile_mpi_ranks)
    named = (options.mpi_world_rank_variable, options.mpi_world_size_variable)
    pairs = (named,) if all(named) else _LAUNCHERS
    ranks = [environment[rank] for rank, size in pairs if rank in environment and size in environment]
    return wanted is None or not ranks or int(ranks[0]) in wanted


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


def within(rank: RankRun, begin: float, end: float) -> RankRun:
    """What lies in whole between two moments in ns."""

    def kept(table: pd.DataFrame) -> pd.DataFrame:
        inside = (table["start_ns"] >= begin) & (table["start_ns"] + table["duration_ns"] <= end)
        return table[inside].reset_index(drop=True)

    kept_tables = {name: kept(getattr(rank, name)) for name in ("device_work", "calls", "annotations")}
    return replace(rank, **kept_tables)
