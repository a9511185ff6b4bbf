"""What one recording adds to the signs of its run, each number from an analysis that anybody can call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tidyprof.analyses.blocked_calls import blocked_calls, waiting_calls
from tidyprof.analyses.budget import step_budget
from tidyprof.analyses.collectives import collective_entries
from tidyprof.analyses.common import (
    host_events,
    names_matching,
    occupied,
    of_rank,
    overlapping,
    result,
    start_and_end,
)
from tidyprof.analyses.device_time import overlap
from tidyprof.analyses.gaps import gaps
from tidyprof.analyses.kernels import kernels
from tidyprof.analyses.launches import launching_calls
from tidyprof.analyses.processes import of_owner
from tidyprof.analyses.steps import PHASE_PATTERNS, phase_time
from tidyprof.diagnosis.device_limits import power_samples, roof_share
from tidyprof.diagnosis.on_host import HostTimeline, compiling, host_timeline, loader, ran_on_host
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

SILENT_NS = 1_000_000
"""So long without an operator or a call, a host does something else than launching: a launch costs it microseconds
(10 in the 4-rank trace that gpumodel's host was measured on), an operator under a profiler up to some hundred."""

GRAPH_LAUNCH = r"(hip|cuda)GraphLaunch\w*"
COPY_TO_DEVICE = r".*(HtoD|HOST_TO_DEVICE|HostToDevice).*"
COMPILED_KERNEL = r"triton_.*"

REPLAYING = ("rocprof-compute",)
"""Tools that run each kernel several times to count, so that its times are no timeline of the program."""


@dataclass(frozen=True)
class Timeline:
    """What the events of one rank add to the signs of its run; small, however long the recording.

    budget, overlaps, entries, kernels -- the tables of `step_budget`, `overlap`, `collective_entries` and `kernels`.
    host -- what its host did while its devices were idle, see `_host_side`.
    """

    budget: pd.DataFrame
    overlaps: pd.DataFrame
    entries: pd.DataFrame
    kernels: pd.DataFrame
    host: dict[str, Any]
    compiled: bool
    graph_share: float


class Kind(NamedTuple):
    """By what `triage` chooses the profiles of a run that it judges.

    host_events -- how many there are. has_rank -- whether an event has one. has_timeline -- whether there are device
    events in the times of the program itself. on_host -- whether the run had no GPU.
    """

    tool: str
    host_events: int
    has_rank: bool
    has_timeline: bool
    on_host: bool


def kind_of(profile: Profile) -> Kind:
    """The kind of a profile."""
    tool, known = str(profile.meta.get("tool", "")), profile.events["rank"].notna().any()
    timed = bool(len(profile.device_events)) and tool not in REPLAYING
    return Kind(tool, len(host_events(profile)), bool(known), timed, ran_on_host(profile))


@dataclass(frozen=True)
class RecordingSigns:
    """What one profile adds to the signs of its run: all that `triage` needs of it.

    timelines -- one for each rank; on_host -- of a run without a GPU, in their place. samples -- see `power_samples`;
    roof_share -- see Signs; kernels -- of a profile that is not judged.
    """

    kind: Kind
    origin: str
    release: str
    world_size: int | None
    timelines: tuple[Timeline, ...]
    on_host: HostTimeline | None
    samples: pd.DataFrame
    roof_share: float | None
    kernels: pd.DataFrame


def triage_signs(profile: Profile, mark: str | None = None) -> pd.DataFrame:
    """One row, whose column `signs` has all that `triage` needs of a profile: it takes such tables for profiles.

    Reduce many files with it, see `tidyprof.many`. `mark` is as in `triage`. Raises ValueError as `step_budget` does.
    """
    kind = kind_of(profile)
    found = recording_signs(profile, kind, kind.has_timeline or kind.on_host, mark)
    return result([{"signs": found}], {"signs": "object"}, profile)


def recording_signs(profile: Profile, kind: Kind, judged: bool, mark: str | None = None) -> RecordingSigns:
    """What a profile adds; its timelines only if they are judged. Raises ValueError as `step_budget` does."""
    return RecordingSigns(
        kind=kind,
        origin=str(profile.origin),
        release=str(profile.meta.get("rocm") or ""),
        world_size=profile.meta.get("world_size"),
        timelines=tuple(_timeline(own, mark) for own in ranks_apart(profile)) if judged and kind.has_timeline else (),
        on_host=host_timeline(profile, mark) if judged and kind.on_host else None,
        samples=power_samples(profile),
        roof_share=roof_share(profile),
        kernels=pd.DataFrame() if judged else kernel_sums([kernels(profile)]),
    )


def ranks_apart(profile: Profile) -> Iterator[Profile]:
    """A profile for each rank: what is looked up for one of many ranks must not be searched in the events of all.

    The profile itself where it has one rank, or events without any.
    """
    rank = profile.events["rank"]
    if rank.isna().any() or rank.nunique() < 2:
        yield profile
        return
    for _, events in profile.events.groupby("rank", sort=True):
        yield replace(profile, events=events)


def _timeline(profile: Profile, mark: str | None) -> Timeline:
    judged, budget = judged_part(profile, mark)
    return Timeline(
        budget=budget,
        overlaps=overlap(judged),
        entries=collective_entries(judged),
        kernels=kernel_sums([kernels(judged)]),
        host=_host_side(judged, budget, mark),
        compiled=bool(names_matching(judged.device_events, COMPILED_KERNEL).any()),
        graph_share=_graph_share(profile),
    )


def judged_part(profile: Profile, mark: str | None) -> tuple[Profile, pd.DataFrame]:
    """The profile where it marks steps or had no GPU, else what lies between its first and last event on a device.

    With its table of `step_budget`.
    """
    budget = step_budget(profile, mark=mark)
    if ran_on_host(profile) or budget["step"].notna().any():
        return profile, budget
    (start, end), (begin, finish) = start_and_end(profile.events), start_and_end(profile.device_events)
    first, last = begin.min(), finish.max()
    inside = (start < last) & (end > first) | ((start == first) & (end == first))
    clipped = {"start_ns": np.maximum(start, first), "duration_ns": np.minimum(end, last) - np.maximum(start, first)}
    judged = replace(profile, events=profile.events.assign(**clipped)[inside])
    return judged, step_budget(judged, mark=mark)


def _host_side(profile: Profile, budget: pd.DataFrame, mark: str | None) -> dict[str, Any]:
    """What the host of one profile did while its devices were idle: ns over all its steps, and counts."""
    idle, blocked = gaps(profile, 0), blocked_calls(profile)
    found: dict[str, Any] = {
        "gap": _longest(idle[_outside_data(idle)]),
        "call": str(blocked["name"].iloc[0]) if len(blocked) else "",
        "blocked": float(blocked["blocked_ns"].sum()),
        "allocation": float(blocked.loc[blocked["category"] == "allocation", "blocked_ns"].sum()),
        "allocations": float(blocked.loc[blocked["category"] == "allocation", "calls"].sum()),
        "waiting_calls": float(blocked.loc[blocked["category"] != "allocation", "calls"].sum()),
        "kernels": int((profile.events["kind"] == "kernel").sum()),
        "copies_to_device": int(names_matching(profile.device_events, COPY_TO_DEVICE).sum()),
        "host_events": bool(len(host_events(profile, ["runtime", "operator"]))),
        "loader": loader(profile, len(budget)),
    }
    return found | {"compiling": compiling(profile).length, "devices": _late(profile, budget, idle)}


def kernel_sums(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Tables of `kernels` as one: calls and time of each name, the largest first."""
    grouped = pd.concat(tables).groupby("name", sort=True)
    table = grouped.agg(
        short_name=("short_name", "first"),
        category=("category", "first"),
        calls=("calls", "sum"),
        total_ns=("total_ns", "sum"),
    )
    return table.reset_index().sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)


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


def _longest(idle: pd.DataFrame) -> tuple[float, float, float, str] | None:
    """Signs.gap of one timeline, from its idle intervals outside of the phase `data`."""
    if not len(idle):
        return None
    longest, total = idle["duration_ns"].iloc[0], idle["duration_ns"].sum()
    second = idle["duration_ns"].iloc[1] if len(idle) > 1 else 1
    call = idle["host_call"].iloc[0]
    return float(longest), float(longest / total), float(longest / max(second, 1)), "" if pd.isna(call) else str(call)
