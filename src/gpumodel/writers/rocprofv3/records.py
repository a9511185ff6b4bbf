"""A rank's records as rocprofv3 groups them: by domain, and in each domain by start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import (
    dispatches_and_copies,
    kernel_symbols,
    work_with_launches,
)
from gpumodel.writers.common.files import has_ranges
from tidyprof.errors import UserError

DOMAINS = ("kernel", "hip", "memory_copy", "marker", "rccl")
"""Domains that can be recorded: `--kernel-trace`, `--hip-trace` and so on. `--runtime-trace`
records all of them.
"""

RCCL_FUNCTIONS = {
    "allreduce": "ncclAllReduce",
    "broadcast": "ncclBroadcast",
    "_allgather_base": "ncclAllGather",
    "_reduce_scatter_base": "ncclReduceScatter",
    "reduce": "ncclReduce",
}
"""Collective -> RCCL's function
(https://rocm.docs.amd.com/projects/rccl/en/latest/api-reference).
"""


def check_domains(traces: Sequence[str]) -> None:
    """Raises UserError for a domain that is not among DOMAINS."""
    unknown = sorted(set(traces) - set(DOMAINS))
    if unknown:
        raise UserError(f"no domain {unknown[0]!r}; there are {', '.join(DOMAINS)}")


@dataclass
class Records:
    """The records of one process."""

    run: Run
    rank: RankRun

    @cached_property
    def _split(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        dispatches, copies = dispatches_and_copies(work_with_launches(self.rank))
        for table in (dispatches, copies):
            table["end_ns"] = table["start_ns"] + table["duration_ns"]
        return dispatches, copies

    @property
    def copies(self) -> pd.DataFrame:
        """Copies between host and device, with the tool's names: DEVICE_WORK's columns, those of
        the launch, and end_ns.
        """
        return self._split[1]

    @cached_property
    def _numbered(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        symbols, numbers = kernel_symbols(self._split[0])
        return symbols, self._split[0].assign(kernel_id=numbers)

    @property
    def symbols(self) -> pd.DataFrame:
        """The kernels: kernel_id, name, registers, lds_bytes, scratch_bytes."""
        return self._numbered[0]

    @property
    def dispatches(self) -> pd.DataFrame:
        """Kernels, collectives, and the runtime's copies and fills: the columns of `copies`, and
        kernel_id.
        """
        return self._numbered[1]

    @cached_property
    def calls(self) -> pd.DataFrame:
        """HIP calls: name, thread_id, correlation_id, start_ns, end_ns."""
        calls = self.rank.calls
        return calls.assign(end_ns=calls["start_ns"] + calls["duration_ns"])

    @cached_property
    def markers(self) -> pd.DataFrame:
        """ROCTX ranges, with the columns of `calls`: the phases of a step, if the trainer marks
        them (--roctx).

        Their correlation ids come after those of the calls.
        """
        ranges = self.rank.annotations
        ranges = (
            ranges[~ranges["name"].str.startswith("ProfilerStep#")]
            if has_ranges(self.run)
            else ranges.head(0)
        )
        return self._with_correlations(ranges, self._last_correlation)

    @cached_property
    def rccl_calls(self) -> pd.DataFrame:
        """Calls of RCCL, with the columns of `calls`.

        The model knows only the launch within each call, so a call lasts as long as its launch.
        That is a lower bound.
        """
        collectives = self.dispatches[self.dispatches["collective"] != ""][
            ["correlation_id", "collective"]
        ]
        inner = self.rank.calls.merge(collectives, on="correlation_id")
        names = inner["collective"].map(RCCL_FUNCTIONS).fillna("ncclGroupEnd")
        return self._with_correlations(
            inner.assign(name=names), self._last_correlation + len(self.markers)
        )

    @property
    def _last_correlation(self) -> int:
        known = [self.rank.calls["correlation_id"], self.rank.device_work["correlation_id"]]
        return max((int(ids.max()) for ids in known if len(ids)), default=0)

    def _with_correlations(self, ranges: pd.DataFrame, last: int) -> pd.DataFrame:
        table = ranges[["name", "thread_id", "start_ns"]].copy()
        table["end_ns"] = ranges["start_ns"] + ranges["duration_ns"]
        table["correlation_id"] = range(last + 1, last + 1 + len(table))
        return table
