"""The numbers that causes are judged by, of all recordings of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from tidyprof.analyses.budget import DEVICE_PARTS, steady_steps
from tidyprof.analyses.collectives import joined_entries
from tidyprof.analyses.common import join, percent
from tidyprof.analyses.ranks import compare_ranks
from tidyprof.diagnosis.device_limits import capped_share
from tidyprof.diagnosis.on_host import HostTimeline, host_shares
from tidyprof.diagnosis.recordings import RecordingSigns, Timeline, kernel_sums

OWN_PARTS = ("compute", "exposed_copy", "blocked_host", "data_wait", "silent", "stalled")
"""What can make one rank late. Neither waiting for others nor being launch-bound is among them: where all ranks launch
slowly, one of them comes last and the others' devices wait, which lengthens no step."""


@dataclass(frozen=True)
class Signs:
    """What is known of a run. Shares are fractions (0 to 1) of the judged time, means over steps, ranks and devices.

    tool, release   -- what recorded it, and the ROCm that the file states ("" if none).
    steps, marked   -- judged time: how many steps of each device, and whether they are marked steps or all of the
                       recording between its first and last event on a device. steady -- how many of them count for
                       shares and step_ns, their mean: not the first one if two others remain.
    shares          -- the parts of `step_budget`; of its idleness, `silent` (the host made no call for SILENT_NS or
                       longer) and `stalled` (an idle interval that a call that waits runs into) are apart from
                       launch_bound; `allocation` is the part of blocked_host inside such calls.
    first_step      -- first marked step over the median of the others; gap -- the longest idle interval (ns, share of
                       all idle time, over the second longest, name of the host's call); both None if not known.
    per_step        -- counts of one step and device: kernels, copies_to_device, waiting_calls, allocations.
    call            -- the call with the most blocked time; loader -- who loads data, and by which operators.
    top_kernel      -- the row of `kernels` with the most time; graph_share -- of device events that graphs launched.
    rank_table      -- the table of `ranks`, None with one rank; world_size -- ranks of the job, None if unknown.
    excess          -- how much more of its time than the others (median) the straggler spends on OWN_PARTS, and on
                       which of them most. pace -- launch_bound of the rank that waits least and so sets the pace,
                       None with one rank: devices of the others wait where they would be idle.
    on_host         -- whether the run had no GPU; its shares are then those of on_host.host_shares.
    capped_share    -- of busy samples at the power cap; roof_share -- what the top kernel reaches of its roof.
    """

    tool: str
    release: str
    steps: int = 0
    steady: int = 0
    marked: bool = False
    step_ns: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    unlinked: float = 0.0
    first_step: float | None = None
    gap: tuple[float, float, float, str] | None = None
    per_step: dict[str, float] = field(default_factory=dict)
    call: str = ""
    loader: str = ""
    compiling: float = 0.0
    compiled: bool = False
    top_kernel: dict[str, Any] | None = None
    graph_share: float = 0.0
    rank_table: pd.DataFrame | None = None
    excess: tuple[float, str] = (0.0, "")
    pace: float | None = None
    ranks: int = 1
    world_size: int | None = None
    host_events: bool = False
    on_host: bool = False
    capped_share: float | None = None
    roof_share: float | None = None


def signs_of(judged: Sequence[RecordingSigns], others: Sequence[RecordingSigns] = ()) -> Signs:
    """The signs of one run. Raises ValueError as `compare_ranks` does.

    judged -- its recordings with timelines, or those of a run without a GPU; several have a rank each.
    others -- system logs, counters.
    """
    everything = [*judged, *others]
    roofs = (one.roof_share for one in everything if one.roof_share is not None)
    limits = {"capped_share": capped_share([one.samples for one in everything]), "roof_share": next(roofs, None)}
    found = Signs(everything[0].kind.tool, everything[0].release, **limits)
    timelines = [timeline for one in judged for timeline in one.timelines]
    if hosts := [one.on_host for one in judged if one.on_host]:
        return _signs_on_host(found, hosts)
    if not timelines:
        return replace(found, top_kernel=_top_kernel([one.kernels for one in others]))
    budget = join([timeline.budget for timeline in timelines])
    hosts = [timeline.host for timeline in timelines]
    devices = pd.concat([host["devices"] for host in hosts])
    return replace(
        found,
        **_step_signs(budget),
        shares=_shares(budget, hosts, devices),
        unlinked=float(steady_steps(budget)["no_launch_record_percent"].mean() / 100),
        first_step=_first_step(budget),
        gap=max((host["gap"] for host in hosts if host["gap"]), key=lambda gap: gap[0], default=None),
        per_step={name: sum(host[name] for host in hosts) / len(budget) for name in _COUNTED},
        call=max(hosts, key=lambda host: host["blocked"])["call"],
        loader=next((host["loader"] for host in hosts if host["loader"]), ""),
        compiling=sum(host["compiling"] for host in hosts) / _total_ns(budget),
        compiled=any(timeline.compiled for timeline in timelines),
        top_kernel=_top_kernel([timeline.kernels for timeline in timelines]),
        graph_share=max(timeline.graph_share for timeline in timelines),
        host_events=any(host["host_events"] for host in hosts),
        **_rank_signs(timelines, [one.world_size for one in judged], devices),
    )


def _signs_on_host(found: Signs, hosts: Sequence[HostTimeline]) -> Signs:
    budget = join([host.budget for host in hosts])
    return replace(
        found,
        **_step_signs(budget),
        shares=host_shares(hosts),
        first_step=_first_step(budget),
        loader=next((host.loader for host in hosts if host.loader), ""),
        compiling=sum(host.compiling_ns for host in hosts) / _total_ns(budget),
        host_events=True,
        on_host=True,
        ranks=max(sum(host.ranks for host in hosts), 1),
    )


def _step_signs(budget: pd.DataFrame) -> dict[str, Any]:
    steady = steady_steps(budget)
    return {
        "steps": int(budget["step"].nunique()) or 1,
        "steady": int(steady["step"].nunique()) or 1,
        "marked": bool(budget["step"].notna().any()),
        "step_ns": float(steady["duration_ns"].mean()),
    }


def _shares(budget: pd.DataFrame, hosts: Sequence[dict[str, Any]], devices: pd.DataFrame) -> dict[str, float]:
    """Signs.shares."""
    steady, total = steady_steps(budget), _total_ns(budget)
    shares = {part: float(steady[f"{part}_ns"].sum() / _total_ns(steady)) for part in DEVICE_PARTS}
    silent, stalled = (float(devices[f"{name}_ns"].sum() / total) for name in ("silent", "stalled"))
    shares["silent"] = min(silent, shares["launch_bound"])
    shares["stalled"] = min(stalled, shares["launch_bound"] - shares["silent"])
    shares["launch_bound"] -= shares["silent"] + shares["stalled"]
    shares["allocation"] = min(sum(host["allocation"] for host in hosts) / total, shares["blocked_host"])
    return shares


def _total_ns(budget: pd.DataFrame) -> float:
    return max(float(budget["duration_ns"].sum()), 1.0)


_COUNTED = ("kernels", "copies_to_device", "waiting_calls", "allocations")


def _top_kernel(tables: Sequence[pd.DataFrame]) -> dict[str, Any] | None:
    table = kernel_sums(tables)
    shares = percent(table["total_ns"], table["total_ns"].sum())
    return table.assign(percent=shares).iloc[0].to_dict() if len(table) else None


def _first_step(budget: pd.DataFrame) -> float | None:
    """First marked step over the median of the later ones, the least over devices; None with one step."""
    ratios = [
        own["duration_ns"].iloc[0] / own["duration_ns"].iloc[1:].median()
        for _, own in budget[budget["step"].notna()].groupby(["rank", "process", "device"], dropna=False)
        if len(own) >= 2
    ]
    return float(min(ratios)) if ratios else None


def _rank_signs(timelines: Sequence[Timeline], sizes: Sequence[int | None], devices: pd.DataFrame) -> dict[str, Any]:
    overlaps = join([timeline.overlaps for timeline in timelines])
    known = overlaps["rank"].nunique()
    found: dict[str, Any] = {"ranks": max(known, 1), "world_size": max((size for size in sizes if size), default=None)}
    if known > 1:
        table = compare_ranks(overlaps, joined_entries(timeline.entries for timeline in timelines))
        own = devices["launch_bound_ns"] - devices["silent_ns"] - devices["stalled_ns"]
        pace = devices["rank"] == table["rank"][(table["wait_ns"] / table["total_ns"].clip(lower=1)).idxmin()]
        found |= {
            "rank_table": table,
            "excess": _excess(devices, table.attrs["straggler"]),
            "pace": float((own[pace] / devices["duration_ns"][pace]).max()),
        }
    return found


def _excess(devices: pd.DataFrame, straggler: int | None) -> tuple[float, str]:
    """How much more of its time than the others' median the straggler spends on OWN_PARTS, and on which most."""
    if straggler is None:
        return 0.0, ""
    own = devices[[f"{part}_ns" for part in OWN_PARTS]].div(devices["duration_ns"], axis=0)
    is_late = devices["rank"] == straggler
    more = own[is_late].max() - own[~is_late].median()
    return float(more.sum()), str(more.idxmax()).removesuffix("_ns")
