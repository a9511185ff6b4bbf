"""Extract the facts from one profile, and select the profiles to judge."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tidyprof.analyses.common import equal, event_arrays, plain_events, plain_host_events
from tidyprof.analyses.kernels import kernel_totals
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import DEVICE_KINDS, EVENT_DTYPES, Profile, is_one_of, rows
from tidyprof.tables.profiles import ignored_lines
from tidyprof.tables.records import PlainEvents
from tidyprof.triage.device_parts import device_facts
from tidyprof.triage.facts import AMD, NVIDIA, OTHER, RankFacts
from tidyprof.triage.host_parts import host_facts

REPLAYING = ("rocprof-compute",)
"""Tools that replay each kernel to read more counters, so the recorded times don't show the
program's real timeline.
"""

COLUMNS = (*EVENT_DTYPES, "launch_ns", "collective", "launch_thread")
"""The event columns that triage needs. Omitting the other columns makes triage much faster."""


class Kind(NamedTuple):
    """The properties that decide whether `triage` judges a profile.

    - host_events: the number of host events.
    - has_rank: whether any event has a rank.
    - has_timeline: whether the profile has device events with real times.
    - on_host: whether the run had no GPU.
    """

    tool: str
    host_events: int
    has_rank: bool
    has_timeline: bool
    on_host: bool


@dataclass(frozen=True)
class Recording:
    """The facts that one profile contributes to its run. `triage` doesn't need anything else from
    the profile.

    - ranks: the facts about each rank if the profile is judged.
    - values: the facts about the run.
    - kernels: the table of `kernel_totals`, which is empty if the profile is judged.
    - ignored: the files that tidyprof didn't read.
    """

    kind: Kind
    origin: str
    world_size: int | None
    values: dict[str, Any]
    ranks: tuple[RankFacts, ...]
    kernels: pd.DataFrame
    ignored: tuple[str, ...]


def kind_of(profile: Profile) -> Kind:
    """Return the kind of a profile."""
    tool = str(profile.meta.get("tool", ""))
    return Kind(
        tool=tool,
        host_events=len(plain_host_events(profile)),
        has_rank=bool((event_arrays(profile)["rank"] != ABSENT).any()),
        has_timeline=has_device_events(profile) and tool not in REPLAYING,
        on_host=ran_on_host(profile),
    )


def judged_ones(kinds: Sequence[Kind]) -> set[int]:
    """Return the indices of the profiles to judge.

    Choose the profiles with a timeline from the tool that recorded the most host events. If no
    profile has a timeline, choose the profiles of a run without a GPU.
    """
    timed = [i for i, kind in enumerate(kinds) if kind.has_timeline]
    if not timed:
        return {i for i, kind in enumerate(kinds) if kind.on_host}
    best = max(timed, key=lambda i: kinds[i].host_events)
    # Files from one tool count as ranks of one run only if every file has a rank.
    same = {i for i in timed if kinds[i].tool == kinds[best].tool}
    return same if all(kinds[i].has_rank for i in same) else {best}


def has_device_events(profile: Profile) -> bool:
    """Return True if the profile contains device events."""
    return len(plain_events(profile, DEVICE_KINDS)) > 0


GPU_BACK_ENDS = ("nccl", "rccl")
"""Back ends of torch.distributed that communicate only between GPUs."""


def ran_on_host(profile: Profile) -> bool:
    """Return True if the operators did all the work, because torch.profiler found no GPU.

    Return False if the file names a GPU but has no GPU events, because the operators may have
    launched work on that GPU.
    """
    return (
        profile.meta.get("backend") == "cpu"
        and not has_device_events(profile)
        and len(plain_host_events(profile, "operator")) > 0
        and not accelerator(profile)
    )


def accelerator(profile: Profile) -> str:
    """Return the accelerator that a trace without GPU events names, or other evidence of one.
    Return an empty string if there is no evidence.
    """
    if has_device_events(profile):
        return ""
    if gpu := profile.meta.get("gpu"):
        return f"the name {gpu}"
    if category := _foreign_category(profile):
        return f"events of the category {category}"
    backend = str((profile.meta.get("distributed") or {}).get("backend", ""))
    if "gloo" not in backend and any(name in backend for name in GPU_BACK_ENDS):
        return f"communication with {backend}"
    return ""


FOREIGN = re.compile(
    r"(hpu_|mtia_|privateuse1_|(async_)?npu).*"
    r"|.*_(runtime|driver|kernel|ccp_events|insight|memcpy|memset)"
)
"""Categories of torch.profiler for the events of accelerators that tidyprof doesn't support. The
names come from ActivityType.cpp in https://github.com/pytorch/kineto.
"""


def _foreign_category(profile: Profile) -> str:
    """Return a category of events from an unsupported accelerator, or an empty string."""
    categories = profile.meta.get("events_by_category", ())
    return next((name for name in categories if FOREIGN.fullmatch(name)), "")


def recording_of(profile: Profile, kind: Kind, judged: bool, mark: str | None = None) -> Recording:
    """Return the facts that a profile contributes to its run. Raises ValueError as `step_budget`
    does.

    The result includes facts about ranks only if the profile is judged.
    """
    parts = list(ranks_apart(profile)) if judged else []
    facts: Callable[..., RankFacts] = device_facts if kind.has_timeline else host_facts
    return Recording(
        kind=kind,
        origin=str(profile.origin),
        world_size=profile.meta.get("world_size"),
        values=_values(profile, kind),
        ranks=tuple(facts(*one, mark) for one in parts),
        kernels=pd.DataFrame() if judged else kernel_totals(profile),
        ignored=tuple(ignored_lines(profile.meta)),
    )


def _values(profile: Profile, kind: Kind) -> dict[str, Any]:
    return {
        "tool": kind.tool,
        "vendor": vendor_of(profile),
        "accelerator": accelerator(profile) if kind.tool == "torch.profiler" else "",
    }


_OF_NVIDIA = re.compile(
    r"nvidia|tesla|geforce|quadro|\b[rg]tx\b|\b([av]100|h[12]00|[bg]b?[23]00|l40s?|t4)\b", re.I
)


def vendor_of(profile: Profile) -> str:
    """Return the vendor of the profile's GPU. The default is AMD."""
    backend, gpu = profile.meta.get("backend"), str(profile.meta.get("gpu", ""))
    if backend == "cuda" or _OF_NVIDIA.search(gpu):
        return NVIDIA
    is_other = backend == "xpu" or (backend == "cpu" and _foreign_category(profile))
    return OTHER if is_other else AMD


def ranks_apart(profile: Profile) -> Iterator[tuple[Profile, PlainEvents]]:
    """Yield the profile and the Python functions of each rank.

    With a separate profile per rank, lookups don't search the events of all ranks. A profile with a
    single rank or with events that have no rank isn't split.
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
        own = stacks[equal(stacks["rank"], rank)]
        yield replace(profile, events=of_rank), own
