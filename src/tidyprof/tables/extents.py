"""Where the parts of a recording lie in time, and what is doubtful about them together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.tables.contract import Profile, categorical_of
from tidyprof.tables.kinds import KIND_CODE, ON_DEVICE


@dataclass(frozen=True)
class Extent:
    """What one file or process adds to what is asked of all of them; times in ns, from the first start to the last end.

    ranks   -- of its events; None stands for one that is not known.
    span    -- of all its events, (0, 0) without any; device -- of those on a device, None without any.
    kernels -- how many it has; instant -- those without a duration.
    """

    ranks: frozenset[int | None]
    span: tuple[int, int]
    device: tuple[int, int] | None
    kernels: int
    instant: int


def extent_of(ranks: Iterable[int | None], kind: np.ndarray, start_ns: np.ndarray, duration_ns: np.ndarray) -> Extent:
    """The extent of events with these kinds (places in KINDS) and times."""
    is_kernel = (kind == KIND_CODE["kernel"]) | (kind == KIND_CODE["collective"])
    on_device, end = ON_DEVICE[kind], start_ns + duration_ns
    return Extent(
        frozenset(ranks),
        _span(start_ns, end) if len(start_ns) else (0, 0),
        _span(start_ns[on_device], end[on_device]) if on_device.any() else None,
        int(is_kernel.sum()),
        int((duration_ns[is_kernel] == 0).sum()),
    )


def _span(start: np.ndarray, end: np.ndarray) -> tuple[int, int]:
    return int(start.min()), int(end.max())


def extent_of_profile(profile: Profile) -> Extent:
    """The extent of a profile that is one part of a run."""
    events = profile.events
    ranks = [None if pd.isna(rank) else int(rank) for rank in events["rank"].unique()] or [profile.meta.get("rank")]
    start, duration = (events[column].to_numpy(np.int64) for column in ("start_ns", "duration_ns"))
    return extent_of(ranks, categorical_of(events["kind"]).codes, start, duration)


def suspicions(extents: Iterable[Extent]) -> list[str]:
    """What makes otherwise sound events doubtful, whatever the format."""
    found, kernels, instant, spans = [], 0, 0, {}
    for extent in extents:
        kernels, instant = kernels + extent.kernels, instant + extent.instant
        if extent.device:
            # Files of one rank may follow each other.
            own = extent.ranks - {None} or len(spans)
            first, last = spans.get(own, extent.device)
            spans[own] = (min(first, extent.device[0]), max(last, extent.device[1]))
    if instant:
        found.append(f"{instant} of {kernels} kernels last 0 ns: their times were not recorded.")
    in_order = sorted(spans.values())
    ends = np.maximum.accumulate([end for _, end in in_order])
    if any(start >= end for (start, _), end in zip(in_order[1:], ends, strict=False)):
        found.append(
            "not all processes overlap in time: they are separate runs, or of nodes whose clocks differ "
            "(times count from the start of each node)."
        )
    return found
