"""The numbers that causes are judged by, of all recordings of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tidyprof.analyses.collectives import joined_entries
from tidyprof.analyses.common import join, percent
from tidyprof.analyses.ranks import compare_ranks
from tidyprof.diagnosis import on_device, on_host
from tidyprof.diagnosis.host_facts import HostFacts, LargestOperator, Most
from tidyprof.diagnosis.on_device import (
    Gap,
    Replays,
    SlowLaunches,
    Timeline,
    capped_share,
    kernel_sums,
)
from tidyprof.diagnosis.on_host import HostTimeline
from tidyprof.diagnosis.processor import CPU_STEAL
from tidyprof.diagnosis.profiler_overhead import Observer, observed
from tidyprof.diagnosis.recordings import AMD, RecordingSigns

OWN_PARTS = (
    "compute",
    "exposed_copy",
    "blocked_host",
    "allocation",
    "data_wait",
    "compiling",
    "between",
    "silent",
    "stalled",
)
"""What can make one rank late. Neither waiting for others nor being launch bound is among them:
where all ranks launch slowly, one of them comes last and the others' devices wait, which lengthens
no step.
"""


class Excess(NamedTuple):
    """By how much the straggler's share of its time (0 to 1) in OWN_PARTS exceeds the median of the
    other ranks, and the part that exceeds it most; without a part where there is no straggler.
    """

    share: float = 0.0
    part: str = ""


@dataclass(frozen=True)
class Signs:
    """What is known of a run. Shares are fractions (0 to 1) of the judged time, means over steps,
    ranks and devices.

    tool, release -- what recorded it, and the ROCm that the file states ("" if none).
    vendor        -- whose GPU it is: AMD, NVIDIA or another.
    mark          -- with what steps begin ("" where nothing marks them).
    steps, marked -- judged time: how many steps of each device, and whether they are marked steps
                     or all of the recording between its first and last event on a device. steady --
                     how many of them count for shares and step_ns, their mean length; shortest_ns,
                     longest_ns -- the ends of their lengths. apart -- steps that are longer because
                     of a range that the others lack, in words (host_facts.flag_steady_steps).
    shares        -- on_device.PARTS, or on_host.PARTS for a run without a GPU.
    by_launch     -- whether the steps are the devices' own, by their launches, or the host's.
    unlinked      -- share of the device's work whose launch is not recorded.
    earlier_ns    -- time in which devices did what the file lacks (device_time.Idleness.earlier);
                     it is not judged.
    first_step    -- the first marked step over the median of the others; None if not known.
    first_alone   -- the same without what other programs took of each step.
    start_up      -- share of all steps in slow first launches; slow, search -- these, see Timeline.
    gap           -- the longest idle interval, see Timeline.gap.
    per_step      -- Timeline.counts. call -- the call in which the host waited longest while
                     devices had nothing to do; under, module -- see Timeline.
    host          -- HostFacts of the rank with the most silence. calls, operators -- of all
                     recordings.
    compiling     -- share of the time in ranges of torch's compiler.
    small         -- on_host: share of the time in loops over small operators, see
                     HostTimeline.budget; small_operator -- HostTimeline.small; largest_operator --
                     HostTimeline.largest, of the rank where its share is largest.
    stolen, off   -- shares of the time in which the threads of the steps stood in line for a
                     processor, and in which they had none; None where that was not recorded.
    top_kernel    -- the row of `kernels` with the most time; graph_share -- of device events that
                     graphs launched; replays -- of the rank that lacks most; captured, alike -- as
                     Timeline's; again -- the largest of `recomputed`.
    rank_table    -- the table of `ranks`, None with one rank; waiting -- share of their time that
                     devices wait in collectives for the last rank, 0 where that can't be told;
                     world_size -- ranks of the job, None if unknown.
    broken        -- ranks whose files can't be read, in words; set by `without_ranks`.
    rank_files    -- rank -> its file, where each rank has a file of its own.
    excess        -- see Excess. pace -- launch_bound of the rank that waits least and so sets the
                     pace, None with one rank: devices of the others wait where they would be idle.
    on_host       -- whether the run had no GPU. foreign, offered -- see RecordingSigns.
    observer      -- the step with and without the profiler. untypical -- whether the recorded steps
                     lack what others have; set by `without_profiler`.
    capped_share  -- of busy samples at the power cap; has_power, counted -- whether a log of power
                     and whether hardware counters are there; roof_share -- what the top kernel
                     reaches of its roof.
    """

    tool: str
    release: str
    vendor: str = AMD
    steps: int = 0
    steady: int = 0
    marked: bool = False
    mark: str = ""
    step_ns: float = 0.0
    shortest_ns: float = 0.0
    longest_ns: float = 0.0
    apart: tuple[str, ...] = ()
    shares: dict[str, float] = field(default_factory=dict)
    by_launch: bool = False
    unlinked: float = 0.0
    earlier_ns: float = 0.0
    first_step: float | None = None
    first_alone: float | None = None
    start_up: float = 0.0
    slow: SlowLaunches = SlowLaunches()
    search: Most = Most()
    gap: Gap | None = None
    per_step: dict[str, float] = field(default_factory=dict)
    call: str = ""
    under: Most = Most()
    module: Most = Most()
    host: HostFacts = field(default_factory=lambda: HostFacts(0, 0, "", None, 0, False, False, ""))
    calls: int = 0
    operators: int = 0
    compiling: float = 0.0
    small: float = 0.0
    small_operator: Most = Most()
    largest_operator: LargestOperator = LargestOperator()
    stolen: float | None = None
    off: float | None = None
    top_kernel: dict[str, Any] | None = None
    graph_share: float = 0.0
    replays: Replays = Replays()
    captured: float = 0.0
    again: float = 0.0
    alike: Most = Most()
    rank_table: pd.DataFrame | None = None
    broken: tuple[str, ...] = ()
    rank_files: dict[int, str] = field(default_factory=dict)
    waiting: float = 0.0
    excess: Excess = Excess()
    pace: float | None = None
    ranks: int = 1
    world_size: int | None = None
    on_host: bool = False
    foreign: tuple[str, int] | None = None
    offered: tuple[tuple[str, int], ...] = ()
    observer: Observer = Observer()
    untypical: bool = False
    capped_share: float | None = None
    has_power: bool = False
    counted: bool = False
    roof_share: float | None = None


def signs_of(
    judged: Sequence[RecordingSigns],
    others: Sequence[RecordingSigns] = (),
    step_ns: float | None = None,
) -> Signs:
    """The signs of one run, of the traced steps. Raises ValueError as `compare_ranks` does.

    judged -- its recordings with timelines, or those of a run without a GPU; several have a rank
              each.
    others -- system logs, counters. step_ns -- the step without a profiler, where the user knows
              it.
    """
    recordings = [*judged, *others]
    roofs = [one.roof_share for one in recordings if one.roof_share is not None]
    signs = Signs(
        recordings[0].kind.tool,
        recordings[0].release,
        next((one.vendor for one in recordings if one.vendor != AMD), AMD),
        foreign=next((one.foreign for one in recordings if one.foreign), None),
        offered=next((one.offered for one in judged if one.offered), ()),
        capped_share=capped_share([one.samples for one in recordings]),
        has_power=any("power" in one.samples["name"].tolist() for one in recordings),
        rank_files=dict(sorted(entry for one in judged for entry in one.files.items())),
        counted=any(one.counted for one in recordings),
        roof_share=roofs[0] if roofs else None,
    )
    sizes = [one.world_size for one in judged]
    # The observer is worked out of the signs of the recorded steps, so it comes last.
    if hosts := [host for one in judged for host in one.on_host]:
        signs = _signs_on_host(signs, hosts, sizes)
        return replace(signs, observer=observed(signs, [one.cost for one in hosts], step_ns))
    timelines = [timeline for one in judged for timeline in one.timelines]
    if not timelines:
        return replace(signs, top_kernel=_top_kernel([one.kernels for one in others]))
    signs = _signs_on_device(signs, timelines, sizes)
    return replace(signs, observer=observed(signs, [one.cost for one in timelines], step_ns))


def _signs_on_device(
    signs: Signs, timelines: Sequence[Timeline], sizes: Sequence[int | None]
) -> Signs:
    budget = pd.concat([one.budget for one in timelines], ignore_index=True)
    steady, total = budget[budget["steady"]], _total_ns(budget)
    lasting = {part: float(steady[f"{part}_ns"].sum()) for part in on_device.PARTS}
    work = sum(lasting[part] for part in on_device.DEVICE_BUSY_PARTS)
    # Steady steps stand for the run; a start-up lies in those that are not steady, so its share is
    # of all.
    return replace(
        signs,
        **_step_signs(budget),
        mark=next((one.mark for one in timelines if one.mark), ""),
        **_host_signs([one.host for one in timelines], total),
        **_processor_signs(steady),
        shares={part: spent / _total_ns(steady) for part, spent in lasting.items()},
        by_launch=bool(budget["by_launch"].any()),
        unlinked=float(steady["unlinked_ns"].sum() / max(work, 1.0)),
        earlier_ns=float(budget["earlier_ns"].sum()),
        start_up=float(budget["start_up_ns"].sum() / total),
        slow=_together([one.slow for one in timelines]),
        search=_largest(one.search for one in timelines),
        gap=max((one.gap for one in timelines if one.gap), key=lambda gap: gap.ns, default=None),
        per_step={
            name: sum(one.counts[name] for one in timelines) / len(timelines)
            for name in timelines[0].counts
        },
        call=_largest(one.waiting_call for one in timelines).name,
        under=_largest(one.under for one in timelines),
        module=_largest(one.module for one in timelines),
        top_kernel=_top_kernel([one.kernels for one in timelines]),
        graph_share=max(one.graph_share for one in timelines),
        replays=max(
            (one.replays for one in timelines),
            key=lambda replays: (replays.empty, replays.launches),
        ),
        captured=max(one.captured for one in timelines),
        again=max(one.again for one in timelines),
        alike=_largest(one.alike for one in timelines),
        **_rank_signs(timelines, sizes, budget),
    )


def _largest(of_ranks: Iterable[Most]) -> Most:
    return max(of_ranks, key=lambda most: most.amount)


def _together(slow: Sequence[SlowLaunches]) -> SlowLaunches:
    """The slow launches of all ranks, and the median launch of the slowest rank."""
    return SlowLaunches(
        count=sum(one.count for one in slow),
        ns=sum(one.ns for one in slow),
        launches=sum(one.launches for one in slow),
        usual_ns=max(one.usual_ns for one in slow),
    )


def _signs_on_host(
    signs: Signs, hosts: Sequence[HostTimeline], sizes: Sequence[int | None]
) -> Signs:
    budget = pd.concat([one.budget for one in hosts], ignore_index=True)
    steady = budget[budget["steady"]]
    total = _total_ns(steady)
    return replace(
        signs,
        **_step_signs(budget),
        mark=next((one.mark for one in hosts if one.mark), ""),
        **_host_signs([one.host for one in hosts], _total_ns(budget)),
        **_processor_signs(steady),
        shares={part: float(steady[f"{part}_ns"].sum()) / total for part in on_host.PARTS},
        small=float(steady["small_ns"].sum()) / total,
        small_operator=_largest(one.small for one in hosts),
        largest_operator=max((one.largest for one in hosts), key=lambda largest: largest.share),
        again=max(one.again for one in hosts),
        on_host=True,
        **_rank_signs(hosts, sizes, budget),
    )


def _step_signs(budget: pd.DataFrame) -> dict[str, Any]:
    steady = budget[budget["steady"]]
    alone = budget.assign(alone_ns=budget["duration_ns"] - budget[f"{CPU_STEAL}_ns"])
    apart = budget.loc[budget["apart"] != "", ["step", "apart"]].drop_duplicates()
    return {
        "steps": int(budget["step"].nunique()) or 1,
        "steady": int(steady["step"].nunique()) or 1,
        "marked": bool(budget["step"].notna().any()),
        "step_ns": float(steady["duration_ns"].mean()),
        "shortest_ns": float(steady["duration_ns"].min()),
        "longest_ns": float(steady["duration_ns"].max()),
        "apart": tuple(f"step {row.step}: {row.apart}" for row in apart.itertuples()),
        "first_step": _first_step(budget[budget["apart"] == ""], "duration_ns"),
        "first_alone": _first_step(alone[alone["apart"] == ""], "alone_ns"),
    }


def _host_signs(hosts: Sequence[HostFacts], total: float) -> dict[str, Any]:
    """The facts of the rank that knows most, the first of equal ones; what can be added up is of
    all ranks.
    """
    most = max(
        hosts,
        key=lambda host: (
            host.silent_in + host.loading_in != "",
            host.loader != "",
            host.operators,
        ),
    )
    return {
        "host": replace(
            most,
            trains=any(one.trains for one in hosts),
            compiled=any(one.compiled for one in hosts),
        ),
        "calls": sum(one.calls for one in hosts),
        "operators": sum(one.operators for one in hosts),
        "compiling": sum(one.compiling_ns for one in hosts) / total,
    }


def _processor_signs(steady: pd.DataFrame) -> dict[str, Any]:
    total = _total_ns(steady)
    return {
        name: float(steady[column].sum() / total) if steady[column].notna().all() else None
        for name, column in (("stolen", "waited_ns"), ("off", "lost_ns"))
    }


def _total_ns(budget: pd.DataFrame) -> float:
    return max(float(budget["duration_ns"].sum()), 1.0)


def _top_kernel(tables: Sequence[pd.DataFrame]) -> dict[str, Any] | None:
    table = kernel_sums(list(tables))
    shares = percent(table["total_ns"], table["total_ns"].sum())
    return table.assign(percent=shares).iloc[0].to_dict() if len(table) else None


def _first_step(budget: pd.DataFrame, length: str) -> float | None:
    """The first marked step over the median of the later ones, the least over devices; None with
    one step. length -- the column of their lengths.
    """
    marked = budget[budget["step"].notna()]
    ratios = []
    for _, steps in marked.groupby(["rank", "process", "device"], dropna=False):
        first, *later = steps[length]
        if later:
            ratios.append(first / max(np.median(later), 1))
    return float(min(ratios)) if ratios else None


def _rank_signs(
    timelines: Sequence[Timeline] | Sequence[HostTimeline],
    sizes: Sequence[int | None],
    budget: pd.DataFrame,
) -> dict[str, Any]:
    overlaps = join([one.overlaps for one in timelines])
    known = overlaps["rank"].nunique()
    signs: dict[str, Any] = {
        "ranks": max(known, 1),
        "world_size": max((size for size in sizes if size), default=None),
    }
    if known > 1:
        table = compare_ranks(overlaps, joined_entries(one.entries for one in timelines))
        devices = (
            budget.groupby(["rank", "device"], dropna=False).sum(numeric_only=True).reset_index()
        )
        signs |= {
            "rank_table": table,
            "waiting": float(table["wait_ns"].sum() / max(table["total_ns"].sum(), 1)),
            "excess": _excess(devices, table.attrs["straggler"]),
        }
        # Without a GPU there is no such part.
        if "launch_bound_ns" in devices:
            waiting_least = (table["wait_ns"] / table["total_ns"].clip(lower=1)).idxmin()
            leading = devices[devices["rank"] == table["rank"][waiting_least]]
            signs["pace"] = float((leading["launch_bound_ns"] / leading["duration_ns"]).max())
    return signs


def _excess(devices: pd.DataFrame, straggler: int | None) -> Excess:
    """The excess of this rank. On a processor the time that other programs took while operators ran
    is left out.
    """
    if straggler is None:
        return Excess()
    parts = [f"{part}_ns" for part in OWN_PARTS if f"{part}_ns" in devices]
    # Only a run without a GPU has the column. CPU_STEAL is taken off the other parts already, so
    # the rest of the waiting lies in operators.
    if "small_ns" in devices:
        in_operators = devices["waited_ns"].astype(float).fillna(0.0) - devices[f"{CPU_STEAL}_ns"]
        devices = devices.assign(
            compute_ns=(devices["compute_ns"] - in_operators.clip(lower=0)).clip(lower=0)
        )
    shares = devices[parts].div(devices["duration_ns"], axis=0)
    is_late = devices["rank"] == straggler
    more = shares[is_late].max() - shares[~is_late].median()
    return Excess(float(more.sum()), str(more.idxmax()).removesuffix("_ns"))
