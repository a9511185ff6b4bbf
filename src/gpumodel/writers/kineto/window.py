"""The part of a rank that one torch.profiler trace records, with the identifiers that link its
events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from gpumodel.kernels.transfers import COPY_NAMES
from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import work_with_launches

USER_ANNOTATIONS = (
    "ProfilerStep#",
    "Optimizer.",
    "DistributedDataParallel.",
    "enumerate(DataLoader)",
    "nccl:",
)
"""Beginnings of names from within torch that are recorded as annotations all the same."""

BASE_STEP_NS = 7_889_238 * 10**9
"""Times in a trace count from a multiple of this, which is a quarter of a year (libkineto's
ChromeTraceBaseTime).
"""


@dataclass(frozen=True)
class Window:
    """The time that is recorded, in ns of CLOCK_BOOTTIME."""

    start_ns: int
    end_ns: int


@dataclass
class Recording:
    """One rank in one window (None: the whole run) as Kineto sees it."""

    run: Run
    rank: RankRun
    window: Window | None
    record_shapes: bool

    @cached_property
    def base_ns(self) -> int:
        """The time that times in the file count from, in ns since 1970."""
        now = self.run.wall_clock_offset_ns + self.run.start_ns
        return now // BASE_STEP_NS * BASE_STEP_NS

    def microseconds(self, times_ns: pd.Series) -> list[str]:
        """Times of CLOCK_BOOTTIME as the file has them: µs with three decimals after base_ns."""
        return microseconds(times_ns + (self.run.wall_clock_offset_ns - self.base_ns))

    def _within(self, table: pd.DataFrame) -> pd.DataFrame:
        """Rows of a table of the host that start in the window."""
        if self.window is None:
            return table
        return table[table["start_ns"].between(self.window.start_ns, self.window.end_ns)]

    @cached_property
    def host(self) -> pd.DataFrame:
        """Operators and annotations in order of start: the columns of OPERATORS, is_annotation and
        external_id.
        """
        annotations = self._within(self.rank.annotations).assign(is_annotation=True)
        operators = self._within(self.rank.operators)
        operators = operators.assign(
            is_annotation=operators["name"].str.startswith(USER_ANNOTATIONS)
        )
        table = pd.concat([annotations, operators], ignore_index=True)
        table["end_ns"] = table["start_ns"] + table["duration_ns"]
        table = table.sort_values(
            ["start_ns", "end_ns"], ascending=[True, False], kind="stable", ignore_index=True
        )
        table["external_id"] = np.arange(1, len(table) + 1)
        return table

    @cached_property
    def owner_of_operator(self) -> dict[int, int]:
        """operator_id -> that of the innermost operator around it, itself included, that is not an
        annotation.

        Kineto links calls and device work with operators, never with annotations. An annotation
        outside of all operators is absent.
        """
        operators = self.rank.operators
        parent = dict(zip(operators["operator_id"], operators["parent_id"], strict=True))
        annotates = operators["name"].str.startswith(USER_ANNOTATIONS)
        annotations = set(operators["operator_id"][annotates])
        owners = {}
        for operator in parent:
            owner = operator
            while owner in annotations:
                owner = parent.get(owner, pd.NA)
            if not pd.isna(owner):
                owners[operator] = owner
        return owners

    @cached_property
    def external_of_operator(self) -> pd.Series:
        """External id of an operator's owner, by operator_id."""
        known = self.host[self.host["operator_id"].notna()]
        external = dict(
            zip(known["operator_id"].tolist(), known["external_id"].tolist(), strict=True)
        )
        found = {
            one: external[owner]
            for one, owner in self.owner_of_operator.items()
            if owner in external
        }
        return pd.Series(found, dtype="Int64")

    @cached_property
    def calls(self) -> pd.DataFrame:
        """Calls in the window, with external_id (<NA> outside of operators)."""
        calls = self._within(self.rank.calls)
        return calls.assign(
            external_id=calls["operator_id"].map(self.external_of_operator).astype("Int64")
        )

    @cached_property
    def work(self) -> pd.DataFrame:
        """Device work that is launched in the window or runs in it: DEVICE_WORK's columns, those of
        its launch, external_id, category, and whether the launching call is in the trace
        (is_launched).
        """
        work = work_with_launches(self.rank)
        launched = work["call_start_ns"].notna()
        if self.window is not None:
            launched &= (
                work["call_start_ns"]
                .between(self.window.start_ns, self.window.end_ns)
                .fillna(False)
            )
            late = (work["start_ns"] >= self.window.start_ns) & (
                work["call_start_ns"] < self.window.start_ns
            )
            work, launched = (
                work[launched | late.fillna(False)],
                launched[launched | late.fillna(False)],
            )
        work = work.assign(is_launched=launched.astype(bool))
        external = work["operator_id"].map(self.external_of_operator).astype("Int64")
        work["external_id"] = external.where(work["is_launched"])
        work["category"] = (
            work["kind"].map({"copy": "gpu_memcpy", "fill": "gpu_memset"}).fillna("kernel")
        )
        work["name"] = work["copy_direction"].map(COPY_NAMES).fillna(work["name"])
        work.loc[work["kind"] == "fill", "name"] = "Memset (Device)"
        return work.reset_index(drop=True)

    @cached_property
    def span(self) -> tuple[int, int]:
        """Start of the recording and end of its last event, ns of CLOCK_BOOTTIME."""
        tables = [table for table in (self.host, self.calls, self.work) if len(table)]
        ends = [int((table["start_ns"] + table["duration_ns"]).max()) for table in tables]
        if self.window is not None:
            return self.window.start_ns, max([self.window.end_ns, *ends])
        starts = [int(table["start_ns"].min()) for table in tables]
        return min([self.run.end_ns, *starts]), max([self.run.start_ns, *ends])


def microseconds(times_ns: pd.Series) -> list[str]:
    """Times in ns, none of them negative, as µs with three decimals."""
    return [f"{time // 1000}.{time % 1000:03d}" for time in times_ns.tolist()]
