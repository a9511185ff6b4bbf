"""Sample at a steady pace, and write each moment at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proflab.sampling.readings import Reading, Source, lines

SHORTEST_S = 0.02
"""The last sample is left out if it would follow the one before sooner: processor time has a coarse clock."""


@dataclass
class Tally:
    """samples -- moments written; skipped -- moments left out because reading took longer than the interval."""

    samples: int = 0
    skipped: int = 0


def sample_until(
    stopped: Callable[[float], bool], sources: Sequence[Source], write: Callable[[str], object], every_s: float
) -> Tally:
    """Sample every `every_s` seconds until `stopped(seconds)` returns true, and once more then.

    stopped -- waits so long at most, and says whether to stop. write -- gets the lines of one moment.
    Moments lie on a fixed grid: one that comes too late is left out, so that a slow source is asked less often.
    """
    tally = Tally()
    begin = last = time.monotonic()
    place = 1
    while not stopped(max(0.0, begin + place * every_s - time.monotonic())):
        last = time.monotonic()
        tally.samples += _sample(sources, write)
        due = int((time.monotonic() - begin) / every_s) + 1
        tally.skipped += max(0, due - place - 1)
        place = max(place + 1, due)
    if time.monotonic() - last >= SHORTEST_S:
        tally.samples += _sample(sources, write)
    return tally


def _sample(sources: Sequence[Source], write: Callable[[str], object]) -> int:
    """Write one moment, 1 if there was anything. Its time is that of the middle of the reading."""
    begin = time.time_ns()
    readings: list[Reading] = [reading for source in sources for reading in source.read()]
    text = lines((begin + time.time_ns()) // 2, readings)
    if text:
        write(text)
    return int(bool(text))
