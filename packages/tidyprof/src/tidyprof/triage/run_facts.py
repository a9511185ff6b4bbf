"""Combine the facts from all profiles of a run, and compute the parts of its traced step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.collectives import joined_entries
from tidyprof.analyses.common import join
from tidyprof.analyses.ranks import compare_ranks
from tidyprof.triage.cpu_time import CPU_STEAL
from tidyprof.triage.device_parts import DEVICE_BUSY_PARTS
from tidyprof.triage.facts import AMD, Facts, Gap, combined, share_of
from tidyprof.triage.profiler_overhead import HOST_COMPUTE, Overhead, overhead_of
from tidyprof.triage.recording import Recording

OWN_PARTS = (
    *HOST_COMPUTE,
    "small",
    "exposed_copy",
    "blocked_host",
    "allocation",
    "data_wait",
    "compiling",
    "between",
    "silent",
    "stalled",
)
"""The parts that can make one rank late. Launching and waits for other ranks don't count. If all
ranks launch slowly, one rank arrives last and the other devices wait, but the step doesn't get
longer.
"""

ONE_GAP, ALONE = 0.5, 3.0
"""Minimum values for an idle interval that occurs only once. ONE_GAP limits its share of all idle
time, and ALONE limits its ratio to the next-longest interval.
"""

LATE = 0.20
"""The minimum extra work of a late rank, as a share of its time. If a rank is late, the table of
parts describes the ranks that wait.
"""


@dataclass(frozen=True)
class Run:
    """One run, with the data that the rules use.

    - parts: the parts of the traced step in ns, as means over the judged steps of all devices. The
      mapping is empty without a timeline. The keys are the parts of device_parts or host_parts,
      plus three parts for waiting during communication. In waiting_straggler, ranks wait for a rank
      that does more work than the others. In waiting_launch, ranks wait for ranks that launch late.
      In waiting_ranks, ranks wait for a different rank each time.
    - on_host: whether the run had no GPU.
    - marked: whether the run's steps are marked.
    - rank_table: the table of `ranks`, or None for a single rank.
    """

    facts: Facts
    parts: dict[str, float] = field(default_factory=dict)
    overhead: Overhead = field(default_factory=Overhead)
    on_host: bool = False
    marked: bool = False
    rank_table: pd.DataFrame | None = None

    @property
    def is_torch(self) -> bool:
        """True if the program uses PyTorch."""
        return bool(self.facts["operators"]) or self.facts["tool"].startswith("torch")

    @property
    def heard(self) -> bool:
        """True if the files contain any calls or operators of the host."""
        return self.facts["calls"] or self.facts["operators"]


def run_of(judged: Sequence[Recording], others: Sequence[Recording], step_ns: float | None) -> Run:
    """Return the run that these profiles describe. Raises ValueError as `compare_ranks` does.

    - judged: the profiles with timelines, or the profiles of a run without a GPU.
    - others: system logs and counters.
    - step_ns: the unprofiled step time, if the user passed it.
    """
    recordings = [*judged, *others]
    ranks = [one for recording in judged for one in recording.ranks]
    values = _values(recordings)
    if not ranks:
        tables = [one.kernels for one in others if len(one.kernels)]
        return Run(Facts(values | _top_kernel(tables)))
    budget = pd.concat([one.budget for one in ranks], ignore_index=True)
    values |= combined(ranks) | _step_values(budget)
    values |= _top_kernel([one.kernels for one in ranks if len(one.kernels)])
    overlaps = join([one.overlaps for one in ranks])
    values["ranks"] = max(int(overlaps["rank"].nunique()), 1)
    table = None
    if values["ranks"] > 1:
        table = compare_ranks(overlaps, joined_entries(one.entries for one in ranks))
        values |= _rank_values(table, budget)
    steady = budget[budget["steady"]]
    if values.get("straggler_excess", 0.0) >= LATE:
        steady = steady[steady["rank"] != values["straggler"]]
    parts = {part: float(steady[f"{part}_ns"].mean()) for part in ranks[0].parts}
    marked = bool(budget["step"].notna().any())
    gap = max((one.gap for one in ranks if one.gap), key=lambda one: one.ns, default=None)
    heard = bool(values["calls"] or values["operators"])
    if gap is not None and heard and not marked and comes_once(gap):
        _move(parts, gap.parts, "start_up")
    if table is not None:
        _split_communication(parts, table, values, budget)
    sizes = [one.world_size for one in judged if one.world_size]
    values["world_size"] = max(sizes, default=None)
    on_host = judged[0].kind.on_host
    costs = [one.cost for one in ranks]
    ends = float(steady["duration_ns"].min()), float(steady["duration_ns"].max())
    overhead = overhead_of(parts, costs, marked, step_ns, ends)
    values["events_per_step"] = overhead.events
    return Run(Facts(values), parts, overhead, on_host, marked, table)


def _values(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Return facts that don't require a timeline, from the first profile that contains them."""
    values: dict[str, Any] = {}
    for one in reversed(recordings):
        values |= {name: value for name, value in one.values.items() if value}
    vendors = [one.values["vendor"] for one in recordings]
    values["tool"] = recordings[0].values["tool"]
    values["vendor"] = next((vendor for vendor in vendors if vendor != AMD), AMD)
    return values


def _step_values(budget: pd.DataFrame) -> dict[str, Any]:
    steady = budget[budget["steady"]]
    whole, work = float(budget["duration_ns"].sum()), 0.0
    values: dict[str, Any] = {}
    if "earlier_ns" in budget:
        busy = steady[[f"{part}_ns" for part in DEVICE_BUSY_PARTS]].sum(axis=1)
        work = float(busy.sum())
        of_devices = [steady["rank"], steady["device"]]
        busy = busy.groupby(of_devices, dropna=False).sum()
        busy /= steady["duration_ns"].groupby(of_devices, dropna=False).sum().clip(lower=1)
        values = {
            "least_busy_device": float(busy.min()),
            "most_busy_device": float(busy.max()),
            "unlinked_share": share_of(float(steady["unlinked_ns"].sum()), work),
            "startup_share": share_of(float(budget["start_up_ns"].sum()), whole),
        }
    total = float(steady["duration_ns"].sum())
    if steady["waited_ns"].notna().all():
        values["cpu_steal_share"] = share_of(float(steady["waited_ns"].sum()), total)
    return values | {
        "steps": int(budget["step"].nunique()) or 1,
        "judged_steps": int(steady["step"].nunique()) or 1,
        "traced_step_ns": float(steady["duration_ns"].mean()),
        "shortest_step_ns": float(steady["duration_ns"].min()),
        "longest_step_ns": float(steady["duration_ns"].max()),
        "first_step_ratio": _first_step(budget),
    }


def _first_step(budget: pd.DataFrame) -> float | None:
    """Return the ratio of the first marked step to the median later step, or None for a single
    step.

    The result is the smallest ratio among all devices. Other programs may have lengthened some
    steps, so the ratio is also computed without the time lost to them.
    """
    marked = budget[budget["step"].notna()]
    ratios = []
    for length in (marked["duration_ns"], marked["duration_ns"] - marked[f"{CPU_STEAL}_ns"]):
        for _, steps in length.groupby([marked["rank"], marked["device"]], dropna=False):
            first, *later = steps
            if later:
                ratios.append(first / max(np.median(later), 1))
    return float(min(ratios)) if ratios else None


def comes_once(gap: Gap) -> bool:
    """Return True if the longest idle interval occurs only once."""
    return gap.share >= ONE_GAP and gap.over_second >= ALONE


def _move(parts: dict[str, float], amounts: dict[str, float], target: str) -> None:
    """Move at most these amounts (ns) from the parts to the target."""
    for part, amount in amounts.items():
        if part != target and part in parts:
            moved = min(amount, parts[part])
            parts[part] -= moved
            parts[target] += moved


def _top_kernel(tables: Sequence[pd.DataFrame]) -> dict[str, Any]:
    if not tables:
        return {}
    together = pd.concat(tables).groupby("name", sort=True)
    sums = together.agg(
        short_name=("short_name", "first"),
        category=("category", "first"),
        calls=("calls", "sum"),
        total_ns=("total_ns", "sum"),
    )
    top = sums.loc[sums["total_ns"].idxmax()]
    return {
        "top_kernel": str(top["short_name"]),
        "top_kernel_share": share_of(float(top["total_ns"]), float(sums["total_ns"].sum())),
        "top_kernel_calls": int(top["calls"]),
        "top_kernel_category": str(top["category"]),
    }


def _rank_values(table: pd.DataFrame, budget: pd.DataFrame) -> dict[str, Any]:
    if table.attrs["straggler"] is None:
        return {}
    late = table["rank"] == table.attrs["straggler"]
    worst = table[late].iloc[0]
    share, part, more = _excess(budget, table.attrs["straggler"])
    return {
        "straggler": table.attrs["straggler"],
        "straggler_last": int(worst["arrived_last"]),
        "compared_collectives": int(worst["compared"]),
        "straggler_excess": share,
        "straggler_excess_ns": more / max(budget["step"].nunique(), 1),
        "straggler_part": part,
    }


def _excess(budget: pd.DataFrame, straggler: int) -> tuple[float, str, float]:
    """Compare the straggler's time in OWN_PARTS with the median of the other ranks.

    Return the extra time as a share (0 to 1), the part with the largest difference, and the extra
    time in ns over all steps. The share refers to the time in which the straggler had a CPU core.
    The parts exclude time lost to other programs, so only the rank's own work counts.
    """
    parts = [f"{part}_ns" for part in OWN_PARTS if f"{part}_ns" in budget]
    columns = [*parts, "duration_ns", f"{CPU_STEAL}_ns"]
    ranks = budget.groupby(["rank", "device"], dropna=False)[columns].sum().reset_index()
    is_late = ranks["rank"] == straggler
    late = ranks[is_late].max(numeric_only=True)
    more = late[parts] - ranks.loc[~is_late, parts].median()
    share = share_of(float(more.sum()), float(late["duration_ns"] - late[f"{CPU_STEAL}_ns"]))
    return share, str(more.idxmax()).removesuffix("_ns"), max(float(more.sum()), 0.0)


def _split_communication(
    parts: dict[str, float], table: pd.DataFrame, values: dict[str, Any], budget: pd.DataFrame
) -> None:
    """Split exposed communication into transfers and three kinds of waiting for ranks."""
    if not table["compared"].any():
        return
    step, caused = sum(parts.values()), 0.0
    if values.get("straggler_excess", 0.0) >= LATE:
        is_late = table["rank"] == values["straggler"]
        all_caused = float(table["caused_wait_ns"].sum())
        caused = share_of(float(table.loc[is_late, "caused_wait_ns"].sum()), all_caused)
        table = table[~is_late]
    wait, transfer = (float(table[f"{name}_ns"].sum()) for name in ("wait", "transfer"))
    waiting = parts["exposed_communication"] * share_of(wait, wait + transfer)
    parts["exposed_communication"] -= waiting
    late = 0.0
    if "launch_bound" in parts:
        # The rank that waits least sets the pace. While this rank launches kernels, the other
        # devices wait.
        least = (table["wait_ns"] / table["total_ns"].clip(lower=1)).idxmin()
        leading = budget[budget["rank"] == table["rank"][least]]
        pace = share_of(leading["launch_bound_ns"].sum(), leading["duration_ns"].sum()) * step
        late = min((1 - caused) * waiting, max(pace - parts["launch_bound"], 0.0))
    parts |= {
        "waiting_straggler": caused * waiting,
        "waiting_launch": late,
        "waiting_ranks": (1 - caused) * waiting - late,
    }
