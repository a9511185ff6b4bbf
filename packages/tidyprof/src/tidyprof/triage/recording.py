"""Extract the facts from one profile, and select the profiles to judge."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tidyprof.analyses.common import equal, event_arrays, plain_events, plain_host_events
from tidyprof.analyses.kernels import kernel_totals
from tidyprof.analyses.roofline import largest_roof_share
from tidyprof.analyses.steps import marks_to_try, plain_steps
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import DEVICE_KINDS, EVENT_DTYPES, Profile, is_one_of, rows
from tidyprof.tables.profiles import ignored_lines, rank_in_name
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

MIB = 2**20

SAMPLES = ("power", "power_cap", "gpu_busy")
"""The counters that triage needs from a system log."""


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
    - samples: the columns time_ns, device, name and value for the counters in SAMPLES.
    - kernels: the table of `kernel_totals`, which is empty if the profile is judged.
    - offered: names that could mark steps, each with its number of occurrences.
    - ignored: the files that tidyprof didn't read.
    - files: the file of each rank, if every rank has a separate file.
    """

    kind: Kind
    origin: str
    world_size: int | None
    values: dict[str, Any]
    ranks: tuple[RankFacts, ...]
    samples: pd.DataFrame
    kernels: pd.DataFrame
    offered: tuple[tuple[str, int], ...]
    ignored: tuple[str, ...]
    files: dict[int, str]


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
        and not len(plain_events(profile, DEVICE_KINDS))
        and len(plain_host_events(profile, "operator")) > 0
        and not named_gpu(profile)
        and not foreign_events(profile)
    )


def named_gpu(profile: Profile) -> str:
    """Return the GPU that a file without device events names, or other evidence of a GPU. Return an
    empty string if there is no evidence.
    """
    if len(plain_events(profile, DEVICE_KINDS)):
        return ""
    if gpu := profile.meta.get("gpu"):
        return str(gpu)
    backend = str((profile.meta.get("distributed") or {}).get("backend", ""))
    if "gloo" not in backend and any(name in backend for name in GPU_BACK_ENDS):
        return f"a GPU, by its communication with {backend}"
    return ""


def foreign_events(profile: Profile) -> tuple[str, int] | None:
    """Return the largest category of events from an unsupported accelerator, and its number of
    events. Return None without such events, or if the file has events from a supported GPU.
    """
    if profile.meta.get("backend") != "cpu":
        return None
    counts = {
        name: count
        for name, count in profile.meta["events_by_category"].items()
        if _is_foreign(name)
    }
    largest = max(counts, key=counts.get, default=None)
    return None if largest is None else (largest, counts[largest])


def _is_foreign(category: str) -> bool:
    """Return True if torch.profiler uses this category for an accelerator's events.

    The names come from ActivityType.cpp in https://github.com/pytorch/kineto and include MTIA, HPU
    and PrivateUse1.
    """
    ends = ("_runtime", "_driver", "_kernel", "_ccp_events", "_insight", "_memcpy", "_memset")
    return category.endswith(ends) or category.startswith(
        ("hpu_", "mtia_", "privateuse1_", "npu", "async_npu")
    )


def recording_of(profile: Profile, kind: Kind, judged: bool, mark: str | None = None) -> Recording:
    """Return the facts that a profile contributes to its run. Raises ValueError as `step_budget`
    does.

    The result includes facts about ranks only if the profile is judged.
    """
    parts = list(ranks_apart(profile)) if judged else []
    unmarked = kind.has_timeline and not any(
        len(plain_steps(part, mark=mark)) for _, part, _ in parts
    )
    facts: Callable[..., RankFacts] = device_facts if kind.has_timeline else host_facts
    return Recording(
        kind=kind,
        origin=str(profile.origin),
        world_size=profile.meta.get("world_size"),
        values=_values(profile, kind),
        ranks=tuple(facts(*one, mark) for one in parts),
        samples=_samples(profile),
        kernels=pd.DataFrame() if judged else kernel_totals(profile),
        offered=tuple(marks_to_try(parts[0][1])) if parts and unmarked else (),
        ignored=tuple(ignored_lines(profile.meta)),
        files=files_of_ranks(profile),
    )


def _values(profile: Profile, kind: Kind) -> dict[str, Any]:
    foreign = None if has_device_events(profile) else foreign_events(profile)
    counters = profile.counters
    is_counted = "kernel" in counters.columns and bool(counters["kernel"].notna().any())
    return {
        "tool": kind.tool,
        "rocm": str(profile.meta.get("rocm") or ""),
        "vendor": vendor_of(profile),
        "gpu": str(profile.meta.get("gpu") or ""),
        "foreign_events": f"{foreign[1]:,} events of the category {foreign[0]}" if foreign else "",
        "named_gpu": "" if kind.tool != "torch.profiler" else named_gpu(profile),
        "out_of_memory": _out_of_memory(profile.meta.get("oom") or ()),
        "top_kernel_roof_share": _roof_share(profile) if is_counted else None,
    }


def _out_of_memory(failed: Sequence[dict[str, Any]]) -> str:
    """Return a description of the last failed allocation, or an empty string without a failure."""
    if not failed:
        return ""
    sizes = [failed[-1][name] for name in ("requested_bytes", "free_bytes")]
    asked, free = (
        "an unknown size" if size is None else f"{size / MIB:,.0f} MiB" for size in sizes
    )
    return f"{asked} was requested while {free} was free"


def _samples(profile: Profile) -> pd.DataFrame:
    if not len(profile.counters):
        return profile.counters
    chosen = is_one_of(profile.counters["name"], list(SAMPLES))
    table = {
        column: profile.counters[column].array[chosen]
        for column in ("time_ns", "device", "name", "value")
    }
    return pd.DataFrame(table | {"name": table["name"].astype(str)})


def _roof_share(profile: Profile) -> float | None:
    """Return the share of its nearest limit that the largest kernel reaches, or None if unknown.

    The limit is arithmetic throughput, memory bandwidth or cache bandwidth. `roofline_points` and
    `roofline_ceilings` provide the operations, bytes and limits.
    """
    try:
        return largest_roof_share(profile)
    except ValueError:
        return None


def files_of_ranks(profile: Profile) -> dict[int, str]:
    """Return the file of each rank. The result is empty unless every rank has a separate file."""
    files = list(profile.meta.get("files", ()))
    ranks = np.unique(event_arrays(profile)["rank"]).tolist()
    if not files:
        return {}
    if len(files) == len(ranks) == 1 and ranks[0] != ABSENT:
        return {ranks[0]: str(files[0])}
    root = Path(os.path.commonpath([Path(file).absolute().parent for file in files]))
    named = {rank_in_name(Path(file).absolute(), root): str(file) for file in files}
    # If two files have the same rank or no rank, it is unclear which file belongs to which rank.
    if len(named) < len(files):
        return {}
    return {rank: file for rank, file in named.items() if rank is not None}


_OF_NVIDIA = re.compile(
    r"nvidia|tesla|geforce|quadro|\b[rg]tx\b|\b([av]100|h[12]00|[bg]b?[23]00|l40s?|t4)\b", re.I
)


def vendor_of(profile: Profile) -> str:
    """Return the vendor of the profile's GPU. The default is AMD."""
    backend, gpu = profile.meta.get("backend"), str(profile.meta.get("gpu", ""))
    if backend == "cuda" or _OF_NVIDIA.search(gpu):
        return NVIDIA
    return OTHER if backend == "xpu" or foreign_events(profile) else AMD


def ranks_apart(profile: Profile) -> Iterator[tuple[str, Profile, PlainEvents]]:
    """Yield the name, profile and Python functions of each rank.

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
    name = f"rank {ranks[0]}" if len(ranks) == 1 and ranks[0] != ABSENT else ""
    if alone and not len(stacks):
        yield name, profile, stacks
        return
    events = rows(events[[column for column in events.columns if column in COLUMNS]], ~is_function)
    if alone:
        yield name, replace(profile, events=events), stacks
        return
    for rank, of_rank in events.groupby("rank", sort=True):
        own = stacks[equal(stacks["rank"], rank)]
        yield f"rank {rank}", replace(profile, events=of_rank), own
