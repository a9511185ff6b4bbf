"""The numbers that causes are judged by, each from an analysis that anybody can call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.blocked_calls import blocked_calls, waiting_calls
from tidyprof.analyses.budget import DEVICE_PARTS, steady_steps, step_budget
from tidyprof.analyses.common import (
    host_events,
    join,
    names_matching,
    occupied,
    of_rank,
    overlapping,
    start_and_end,
)
from tidyprof.analyses.gaps import gaps
from tidyprof.analyses.kernels import kernels
from tidyprof.analyses.launches import launching_calls
from tidyprof.analyses.processes import of_owner
from tidyprof.analyses.ranks import ranks
from tidyprof.analyses.steps import PHASE_PATTERNS, phase_time
from tidyprof.diagnosis.device_limits import capped_share, roof_share
from tidyprof.diagnosis.on_host import compiling, host_shares, ran_on_host
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

SILENT_NS = 1_000_000
"""So long without an operator or a call, a host does something else than launching: a launch costs it microseconds
(10 in the 4-rank trace that gpumodel's host was measured on), an operator under a profiler up to some hundred."""

GRAPH_LAUNCH = r"(hip|cuda)GraphLaunch\w*"
COPY_TO_DEVICE = r".*(HtoD|HOST_TO_DEVICE|HostToDevice).*"
COMPILED_KERNEL = r"triton_.*"
LOADER = r"enumerate\(DataLoader\)#.*"
"""Range that torch.profiler writes for each batch; its end says whether workers load it."""

OWN_PARTS = ("compute", "exposed_copy", "blocked_host", "data_wait", "silent", "stalled")
"""What can make one rank late. Neither waiting for others nor being launch-bound is among them: where all ranks launch
slowly, one of them comes last and the others' devices wait, which lengthens no step."""


@dataclass(frozen=True)
class Signs:
    """What is known of a run. Shares are fractions (0 to 1) of the judged time, means over steps, ranks and devices.

    tool, release   -- what recorded it, and the ROCm that the file states ("" if none).
    steps, marked   -- judged time: how many steps of each device, and whether they are marked steps or all of the
                       recording between its first and last event on a device. step_ns -- the mean of them.
    shares          -- the parts of `step_budget`; of its idleness, `silent` (the host made no call for SILENT_NS or
                       longer) and `stalled` (an idle interval that a call that waits runs into) are apart from
                       launch_bound; `allocation` is the part of blocked_host inside such calls.
    first_step      -- first marked step over the median of the others; gap -- the longest idle interval (ns, share of
                       all idle time, over the second longest, name of the host's call); both None if not known.
    per_step        -- counts of one step and device: kernels, copies_to_device, waiting_calls, allocations.
    call            -- the call with the most blocked time; loader -- the range in which data was waited for.
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


def signs_of(timelines: Sequence[Profile], others: Sequence[Profile] = (), mark: str | None = None) -> Signs:
    """The signs of one run. Raises ValueError as `step_budget`, `gaps` and `ranks` do.

    timelines -- its profiles with device events, or those of a run without a GPU; several have a rank each.
    others    -- system logs, counters.
    """
    everything = [*timelines, *others]
    meta = everything[0].meta
    limits = {"capped_share": capped_share(everything), "roof_share": roof_share(everything)}
    found = Signs(str(meta.get("tool", "")), str(meta.get("rocm") or ""), **limits)
    if not timelines:
        return replace(found, top_kernel=_top_kernel(others))
    if all(map(ran_on_host, timelines)):
        return _signs_on_host(found, timelines, mark)
    judged = [judged_part(profile, mark) for profile in timelines]
    budgets = [step_budget(profile, mark=mark) for profile in judged]
    budget = join(budgets)
    steady = steady_steps(budget)
    parts = [_host_side(*pair, mark) for pair in zip(judged, budgets, strict=True)]
    total, judged_ns = (max(float(table["duration_ns"].sum()), 1.0) for table in (budget, steady))
    shares = {part: float(steady[f"{part}_ns"].sum() / judged_ns) for part in DEVICE_PARTS}
    devices = pd.concat([part["devices"] for part in parts])
    sums = {name: sum(part[name] for part in parts) / total for name in ("allocation", "compiling")}
    sums |= {name: float(devices[f"{name}_ns"].sum() / total) for name in ("silent", "stalled")}
    shares |= {"silent": min(sums["silent"], shares["launch_bound"])}
    shares["stalled"] = min(sums["stalled"], shares["launch_bound"] - shares["silent"])
    shares["launch_bound"] -= shares["silent"] + shares["stalled"]
    shares["allocation"] = min(sums["allocation"], shares["blocked_host"])
    return replace(
        found,
        steps=int(budget["step"].nunique()) or 1,
        marked=bool(budget["step"].notna().any()),
        step_ns=float(steady["duration_ns"].mean()),
        shares=shares,
        unlinked=float(steady["no_launch_record_percent"].mean() / 100),
        first_step=_first_step(budget),
        gap=_longest_gap(parts),
        per_step={name: sum(part[name] for part in parts) / len(budget) for name in _COUNTED},
        call=max(parts, key=lambda part: part["blocked"])["call"],
        loader=next((part["loader"] for part in parts if part["loader"]), ""),
        compiling=sums["compiling"],
        compiled=any(names_matching(profile.device_events, COMPILED_KERNEL).any() for profile in judged),
        top_kernel=_top_kernel(judged),
        graph_share=max(map(_graph_share, timelines)),
        host_events=any(part["host_events"] for part in parts),
        **_rank_signs(timelines, judged, devices),
    )


def _signs_on_host(found: Signs, timelines: Sequence[Profile], mark: str | None) -> Signs:
    budget, shares = host_shares(timelines, mark)
    return replace(
        found,
        steps=int(budget["step"].nunique()) or 1,
        marked=bool(budget["step"].notna().any()),
        step_ns=float(steady_steps(budget)["duration_ns"].mean()),
        shares=shares,
        first_step=_first_step(budget),
        loader=next(filter(None, map(_loader, timelines)), ""),
        compiling=sum(compiling(profile).length for profile in timelines) / max(float(budget["duration_ns"].sum()), 1),
        host_events=True,
        on_host=True,
        ranks=max(sum(profile.events["rank"].dropna().nunique() for profile in timelines), 1),
    )


_COUNTED = ("kernels", "copies_to_device", "waiting_calls", "allocations")


def judged_part(profile: Profile, mark: str | None) -> Profile:
    """The profile where it marks steps or had no GPU, else what lies between its first and last event on a device."""
    if ran_on_host(profile) or step_budget(profile, mark=mark)["step"].notna().any():
        return profile
    (start, end), (begin, finish) = start_and_end(profile.events), start_and_end(profile.device_events)
    first, last = begin.min(), finish.max()
    inside = (start < last) & (end > first) | ((start == first) & (end == first))
    clipped = {"start_ns": np.maximum(start, first), "duration_ns": np.minimum(end, last) - np.maximum(start, first)}
    return replace(profile, events=profile.events.assign(**clipped)[inside])


def _host_side(profile: Profile, budget: pd.DataFrame, mark: str | None) -> dict[str, Any]:
    """What the host of one profile did while its devices were idle: ns over all its steps, and counts."""
    idle, blocked = gaps(profile, 0), blocked_calls(profile)
    found: dict[str, Any] = {
        "gaps": idle[_outside_data(idle)],
        "call": str(blocked["name"].iloc[0]) if len(blocked) else "",
        "blocked": float(blocked["blocked_ns"].sum()),
        "allocation": float(blocked.loc[blocked["category"] == "allocation", "blocked_ns"].sum()),
        "allocations": float(blocked.loc[blocked["category"] == "allocation", "calls"].sum()),
        "waiting_calls": float(blocked.loc[blocked["category"] != "allocation", "calls"].sum()),
        "kernels": int((profile.events["kind"] == "kernel").sum()),
        "copies_to_device": int(names_matching(profile.device_events, COPY_TO_DEVICE).sum()),
        "host_events": bool(len(host_events(profile, ["runtime", "operator"]))),
        "loader": _loader(profile),
    }
    return found | {"compiling": compiling(profile).length, "devices": _late(profile, budget, idle)}


def _top_kernel(profiles: Sequence[Profile]) -> dict[str, Any] | None:
    table = kernels(replace(profiles[0], events=pd.concat([profile.events for profile in profiles])))
    return table.iloc[0].to_dict() if len(table) else None


def _graph_share(profile: Profile) -> float:
    """Share of device events that a graph launched, of the whole recording: its launch may lie before all of them."""
    _, calls = launching_calls(profile.events)
    return float(names_matching(profile.events.iloc[calls], GRAPH_LAUNCH).sum() / len(profile.device_events))


def _late(profile: Profile, budget: pd.DataFrame, idle: pd.DataFrame) -> pd.DataFrame:
    """The budget summed up for each device, with `silent_ns` and `stalled_ns` (see Signs) beside its parts."""
    waiting, rows = waiting_calls(profile), []
    for place, steps in budget.groupby(["rank", "process", "device"], dropna=False):
        owner = dict(zip(("rank", "process", "device"), place, strict=True))
        own = _of_device(of_rank(idle, owner["rank"]), owner["device"])
        late = occupied(own[own["cause"] == "launched late"]) - phase_time(profile, owner, "data")
        quiet = late - occupied(of_owner(host_events(profile, ["runtime", "operator"]), owner))
        quiet = _only(quiet, quiet.ends - quiet.starts >= SILENT_NS)
        calls, rest = of_owner(waiting, owner), late - quiet
        _, hit = overlapping(*start_and_end(calls), rest.starts, rest.ends)
        behind = _only(rest, np.isin(np.arange(len(rest)), hit)) - occupied(calls)
        sums = steps[[column for column in steps if column.endswith("_ns") and column != "start_ns"]].sum().to_dict()
        times = {"silent_ns": quiet, "stalled_ns": behind}
        inside = {name: found.covered_within(*start_and_end(steps)).sum() for name, found in times.items()}
        rows.append({**owner, **sums, **inside})
    return pd.DataFrame(rows)


def _only(times: Intervals, chosen: np.ndarray) -> Intervals:
    return Intervals(times.starts[chosen], times.ends[chosen])


def _of_device(table: pd.DataFrame, device: Any) -> pd.DataFrame:
    return table[table["device"].isna() if pd.isna(device) else (table["device"] == device).fillna(False).astype(bool)]


def _outside_data(idle: pd.DataFrame) -> pd.Series:
    return ~idle["host_range"].fillna("").str.fullmatch(PHASE_PATTERNS["data"]).astype(bool)


def _loader(profile: Profile) -> str:
    ranges = host_events(profile, ["annotation"])
    names = ranges.loc[names_matching(ranges, LOADER), "name"]
    return str(names.iloc[0]) if len(names) else ""


def _first_step(budget: pd.DataFrame) -> float | None:
    """First marked step over the median of the later ones, the least over devices; None with one step."""
    ratios = [
        own["duration_ns"].iloc[0] / own["duration_ns"].iloc[1:].median()
        for _, own in budget[budget["step"].notna()].groupby(["rank", "process", "device"], dropna=False)
        if len(own) >= 2
    ]
    return float(min(ratios)) if ratios else None


def _longest_gap(parts: Sequence[dict[str, Any]]) -> tuple[float, float, float, str] | None:
    """The longest idle interval outside of the phase `data`, of the device with the longest."""
    tables = [part["gaps"] for part in parts if len(part["gaps"])]
    if not tables:
        return None
    table = max(tables, key=lambda one: one["duration_ns"].iloc[0])
    longest, total = table["duration_ns"].iloc[0], table["duration_ns"].sum()
    second = table["duration_ns"].iloc[1] if len(table) > 1 else 1
    call = table["host_call"].iloc[0]
    return float(longest), float(longest / total), float(longest / max(second, 1)), "" if pd.isna(call) else str(call)


def _rank_signs(timelines: Sequence[Profile], judged: Sequence[Profile], devices: pd.DataFrame) -> dict[str, Any]:
    known = sum(profile.events["rank"].dropna().nunique() for profile in timelines)
    sizes = [profile.meta["world_size"] for profile in timelines if profile.meta.get("world_size")]
    found: dict[str, Any] = {"ranks": max(known, 1), "world_size": int(max(sizes)) if sizes else None}
    if known > 1:
        table = ranks(judged)
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
