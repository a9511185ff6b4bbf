"""Samples of counters of a Perfetto trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tidyprof.readers.perfetto.events import NO_VALUE, EventColumns
from tidyprof.readers.perfetto.tracks import Place
from tidyprof.tables.codes import ABSENT, nullable

CLOSING_ZEROS = "zeros that close counters"


def counter_table(collected: EventColumns, places: Sequence[Place]) -> pd.DataFrame:
    """Columns time_ns, process, device, name, value and unit, by track and time.

    Values are in the unit itself: a counter in units of 1024 bytes is multiplied, an incremental one added up.
    A counter has a device if its track's name says so, and not if that is a CPU.
    """
    time, lane = np.frombuffer(collected.counters, np.int64).reshape(-1, 2).T
    value = np.frombuffer(collected.counter_values, np.float64).copy()
    order = np.lexsort((time, lane))
    time, lane, value = time[order], lane[order], value[order]
    for code in np.unique(lane).tolist():
        value[lane == code] = _scaled(value[lane == code], places[code])
    of_track = {
        "process": [place.process for place in places],
        "device": [ABSENT if place.is_cpu else place.device for place in places],
    }
    stated = {
        "name": pd.Categorical([place.name for place in places]),
        "unit": pd.Categorical([place.unit for place in places]),
    }
    columns = {name: nullable(np.array(numbers, np.int64)[lane], "Int64") for name, numbers in of_track.items()}
    columns |= {"time_ns": time, "value": value} | {name: texts[lane] for name, texts in stated.items()}
    kept = np.isfinite(value)
    collected.dropped += Counter({NO_VALUE: int((~kept).sum())})
    closing = _closing_zeros(time, value, lane, places)
    kept[closing] = False
    collected.not_kept[CLOSING_ZEROS] += len(closing)
    return pd.DataFrame(columns)[kept]


def _scaled(value: np.ndarray, track: Place) -> np.ndarray:
    """What the counter stood at, from what the file has."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = value * float(track.multiplier)
        return np.cumsum(value) if track.is_incremental else value


def _closing_zeros(time: np.ndarray, value: np.ndarray, lane: np.ndarray, places: Sequence[Place]) -> np.ndarray:
    """Rows with which rocprof-sys ends its counters of the CPU and the process: no measurement, but all 0 at the
    end of the run (source/lib/rocprof-sys/library/cpu_freq.cpp). Only if all these counters end so.
    """
    is_sampled = np.array([place.name.startswith("CPU ") and place.name.endswith("(S)") for place in places], bool)
    own = np.flatnonzero(is_sampled[lane]) if len(lane) else np.empty(0, np.int64)
    if not len(own):
        return own
    # Rows are in order of track and time: the last one of each track.
    last = own[np.append(lane[own][1:] != lane[own][:-1], True)]
    end = time[last].max()
    earlier = np.setdiff1d(own, last)
    is_closing = (value[last] == 0).all() and (time[last] == end).all() and (time[earlier] < end).all()
    return last if is_closing and len(earlier) else own[:0]
