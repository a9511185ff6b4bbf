"""What one recording adds to the signs of its run. Each number is from an analysis that anybody can
call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from tidyprof.analyses.common import equal, event_arrays, plain_events, plain_host_events
from tidyprof.analyses.kernels import kernel_totals
from tidyprof.analyses.steps import marks_to_try, plain_steps
from tidyprof.diagnosis.on_device import Timeline, power_samples, roof_share, timeline
from tidyprof.diagnosis.on_host import HostTimeline, host_timeline, ran_on_host, unknown_runtime
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import DEVICE_KINDS, EVENT_DTYPES, Profile, is_one_of, rows
from tidyprof.tables.profiles import ignored_lines, rank_in_name
from tidyprof.tables.records import PlainEvents

REPLAYING = ("rocprof-compute",)
"""Tools that run each kernel several times to count, so that their times are no timeline of the
program.
"""

COLUMNS = (*EVENT_DTYPES, "launch_ns", "collective", "launch_thread")
"""Columns of events that causes are judged by; leaving the others out saves most of the time."""


class Kind(NamedTuple):
    """The facts by which `triage` chooses the profiles of a run that it judges.

    host_events -- how many there are. has_rank -- whether any event has a rank. has_timeline --
    whether there are device events whose times are those of the program itself. on_host -- whether
    the run had no GPU.
    """

    tool: str
    host_events: int
    has_rank: bool
    has_timeline: bool
    on_host: bool


def kind_of(profile: Profile) -> Kind:
    """The kind of a profile."""
    tool = str(profile.meta.get("tool", ""))
    return Kind(
        tool=tool,
        host_events=len(plain_host_events(profile)),
        has_rank=bool((event_arrays(profile)["rank"] != ABSENT).any()),
        has_timeline=has_device_events(profile) and tool not in REPLAYING,
        on_host=ran_on_host(profile),
    )


def has_device_events(profile: Profile) -> bool:
    """Whether anything ran on a device."""
    return len(plain_events(profile, DEVICE_KINDS)) > 0


@dataclass(frozen=True)
class RecordingSigns:
    """What one profile adds to the signs of its run: all that `triage` needs of it.

    timelines  -- one for each rank; on_host -- the same for a run without a GPU.
    samples    -- see `power_samples`. counted -- whether there is a hardware counter.
    roof_share -- see Signs. kernels -- the table of `kernel_totals`, empty if the profile is
                  judged.
    foreign    -- see `unknown_runtime`. offered -- see `marks_to_try`.
    ignored    -- see `ignored_lines`. vendor -- see `vendor_of`. files -- see `files_of_ranks`.
    """

    kind: Kind
    origin: str
    release: str
    vendor: str
    world_size: int | None
    timelines: tuple[Timeline, ...]
    on_host: tuple[HostTimeline, ...]
    samples: pd.DataFrame
    counted: bool
    roof_share: float | None
    kernels: pd.DataFrame
    foreign: tuple[str, int] | None
    offered: tuple[tuple[str, int], ...]
    ignored: tuple[str, ...]
    files: dict[int, str]


def recording_signs(
    profile: Profile, kind: Kind, judged: bool, mark: str | None = None
) -> RecordingSigns:
    """What a profile adds, with its timelines only if it is judged. Raises ValueError as
    `step_budget` does.
    """
    parts = list(ranks_apart(profile)) if judged else []
    unmarked = kind.has_timeline and not any(len(plain_steps(part, mark=mark)) for part, _ in parts)
    return RecordingSigns(
        kind=kind,
        origin=str(profile.origin),
        release=str(profile.meta.get("rocm") or ""),
        vendor=vendor_of(profile),
        world_size=profile.meta.get("world_size"),
        timelines=tuple(timeline(*one, mark) for one in parts) if kind.has_timeline else (),
        on_host=tuple(host_timeline(*one, mark) for one in parts) if kind.on_host else (),
        samples=power_samples(profile),
        counted="kernel" in profile.counters.columns
        and bool(profile.counters["kernel"].notna().any()),
        roof_share=roof_share(profile),
        kernels=pd.DataFrame() if judged else kernel_totals(profile),
        foreign=None if has_device_events(profile) else unknown_runtime(profile),
        offered=tuple(marks_to_try(parts[0][0])) if parts and unmarked else (),
        ignored=tuple(ignored_lines(profile.meta)),
        files=files_of_ranks(profile),
    )


def files_of_ranks(profile: Profile) -> dict[int, str]:
    """Rank -> its file, where each rank has a file of its own."""
    files = list(profile.meta.get("files", ()))
    ranks = np.unique(event_arrays(profile)["rank"]).tolist()
    if not files:
        return {}
    if len(files) == len(ranks) == 1 and ranks[0] != ABSENT:
        return {ranks[0]: str(files[0])}
    root = Path(os.path.commonpath([Path(file).absolute().parent for file in files]))
    named = {rank_in_name(Path(file).absolute(), root): str(file) for file in files}
    # Two files of one rank, or two without any, leave open whose they are.
    if len(named) < len(files):
        return {}
    return {rank: file for rank, file in named.items() if rank is not None}


AMD, NVIDIA, OTHER = "AMD", "NVIDIA", "another"
_OF_NVIDIA = re.compile(
    r"nvidia|tesla|geforce|quadro|\b[rg]tx\b|\b([av]100|h[12]00|[bg]b?[23]00|l40s?|t4)\b", re.I
)
"""Names of NVIDIA's GPUs."""


def vendor_of(profile: Profile) -> str:
    """Whose GPU a recording is of, AMD's where nothing tells."""
    backend, gpu = profile.meta.get("backend"), str(profile.meta.get("gpu", ""))
    if backend == "cuda" or _OF_NVIDIA.search(gpu):
        return NVIDIA
    return OTHER if backend == "xpu" or unknown_runtime(profile) else AMD


def ranks_apart(profile: Profile) -> Iterator[tuple[Profile, PlainEvents]]:
    """A profile for each rank, and its Python functions apart, since nobody marked them as ranges.

    With many ranks, what is looked up for one must not be searched in the events of all. It is the
    whole profile where that has one rank, or events without a rank.
    """
    events, columns = profile.events, event_arrays(profile)
    is_function = np.zeros(len(events), bool)
    if "source_category" in events.columns:
        is_function = is_one_of(columns["source_category"], ["python_function"])
    stacks = PlainEvents(columns, np.flatnonzero(is_function))
    ranks = np.unique(columns["rank"][~is_function])
    alone = len(ranks) < 2 or ABSENT in ranks
    if alone and not len(stacks):
        yield profile, stacks
        return
    events = rows(events[[column for column in events.columns if column in COLUMNS]], ~is_function)
    if alone:
        yield replace(profile, events=events), stacks
        return
    for rank, of_rank in events.groupby("rank", sort=True):
        yield replace(profile, events=of_rank), stacks[equal(stacks["rank"], rank)]
