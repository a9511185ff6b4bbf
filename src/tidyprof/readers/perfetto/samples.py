"""Call-stack samples that are packets of their own, as one row per frame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tidyprof.errors import ProfileReadError
from tidyprof.readers.perfetto.events import EventColumns
from tidyprof.readers.perfetto.tracks import Place
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.kinds import KIND_CODE
from tidyprof.tables.records import Records, no_records

MAXIMUM_FRAMES = 20_000_000
"""Rows that the samples of one file may become: a few bytes of a file can stand for a thousand frames."""


def stack_samples(path: Path, collected: EventColumns, places: Sequence[Place]) -> Records:
    """The frames of all samples: kind sample, duration 0, no category; rows and samples count from 0.

    Raises ProfileReadError if they are too many.
    """
    samples = np.frombuffer(collected.samples, np.int64).reshape(-1, 5)
    if not len(samples):
        return no_records()
    time, process, thread, lane, stack = samples.T
    stacks = [collected.texts.of(frames) for frames in collected.stacks]
    sizes = np.array([len(frames) for frames in stacks])[stack]
    count = int(sizes.sum())
    if count > MAXIMUM_FRAMES:
        raise ProfileReadError(
            path,
            f"call-stack samples with {count} frames, more than {MAXIMUM_FRAMES}",
            "a recording of too long a time, or a file made to exhaust memory",
            "record for a shorter time or sample less often",
        )
    depth = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    drawn = {key: np.array([getattr(place, key) for place in places])[lane] for key in ("process", "thread")}
    return Records(
        {
            "start_ns": np.repeat(time, sizes),
            "duration_ns": np.zeros(count, np.int64),
            "lane": np.repeat(lane, sizes),
            "name": np.concatenate([stacks[code] for code in stack]),
            "kind": np.full(count, KIND_CODE["sample"], np.int8),
            "process": np.repeat(np.where(process == ABSENT, drawn["process"], process), sizes),
            "thread": np.repeat(np.where(thread == ABSENT, drawn["thread"], thread), sizes),
            "depth": depth,
            "parent": np.where(depth > 0, np.arange(count) - 1, ABSENT),
            "sample": np.repeat(np.argsort(np.argsort(time, kind="stable")), sizes),
        }
    )
