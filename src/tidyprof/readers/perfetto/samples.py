"""Call-stack samples that are packets of their own, as one row per frame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tidyprof.io.errors import ProfileReadError
from tidyprof.readers.perfetto.events import EventColumns
from tidyprof.readers.perfetto.tracks import Place
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.kinds import KIND_CODE

MAXIMUM_FRAMES = 20_000_000
"""Rows that the samples of one file may become: a few bytes of a file can stand for a thousand frames."""


def with_stack_samples(
    path: Path, columns: dict[str, np.ndarray], collected: EventColumns, places: Sequence[Place]
) -> dict[str, np.ndarray]:
    """The columns with the frames of all samples at their end: kind sample, duration 0, no category.

    Raises ProfileReadError if they are too many.
    """
    samples = np.frombuffer(collected.samples, np.int64).reshape(-1, 5)
    if not len(samples):
        return columns
    time, process, thread, track, stack = samples.T
    names = collected.tables.names
    stacks = [np.array([names[function] for function in frames], np.int64) for frames in collected.tables.stacks]
    sizes = np.array([len(frames) for frames in stacks])[stack]
    if sizes.sum() > MAXIMUM_FRAMES:
        raise ProfileReadError(
            path,
            f"call-stack samples with {sizes.sum()} frames, more than {MAXIMUM_FRAMES}",
            "a recording of too long a time, or a file made to exhaust memory",
            "record for a shorter time or sample less often",
        )
    depth = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = len(columns["start"])
    numbered = columns["sample"].max(initial=-1) + 1 + np.argsort(np.argsort(time, kind="stable"))
    stated = {key: np.array([getattr(place, key) for place in places])[track] for key in ("process", "thread")}
    own = {
        "start": np.repeat(time, sizes),
        "duration": np.zeros(len(depth), np.int64),
        "track": np.repeat(track, sizes),
        "name": np.concatenate([stacks[code] for code in stack]),
        "category": np.full(len(depth), -1),
        "kind": np.full(len(depth), KIND_CODE["sample"], np.int8),
        "process": np.repeat(np.where(process == ABSENT, stated["process"], process), sizes),
        "thread": np.repeat(np.where(thread == ABSENT, stated["thread"], thread), sizes),
        "depth": depth,
        "parent": np.where(depth > 0, first + np.arange(len(depth)) - 1, ABSENT),
        "sample": np.repeat(numbered, sizes),
    }
    absent = np.full(len(depth), ABSENT)
    return {name: np.concatenate((values, own.get(name, absent))) for name, values in columns.items()}
