"""Samples of counters of a Perfetto trace as columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tidyprof.readers.perfetto.events import NO_VALUE, EventColumns
from tidyprof.readers.perfetto.texts import Codes
from tidyprof.readers.perfetto.tracks import Place, Track
from tidyprof.tables.codes import ABSENT

CLOSING_ZEROS = "zeros that close counters"


def counter_columns(collected: EventColumns, places: Sequence[Place]) -> tuple[dict[str, np.ndarray], list[str]]:
    """Columns time, process, device (ABSENT where unknown), value, and name and unit as codes; the texts of
    these codes.

    Values are in the unit itself: a counter in units of 1024 bytes is multiplied, an incremental one added up.
    A counter has a device if its track's name says so, and not if that is a CPU.
    """
    time, track = np.frombuffer(collected.counters, np.int64).reshape(-1, 2).T
    value = np.frombuffer(collected.counter_values, np.float64).copy()
    order = np.lexsort((time, track))
    time, track, value = time[order], track[order], value[order]
    texts = Codes()
    columns = {"time": time, "value": value}
    for name in ("process", "device", "name", "unit"):
        columns[name] = np.full(len(time), -1 if name == "unit" else ABSENT)
    uuids = list(collected.tracks.codes)
    for code in np.unique(track).tolist():
        own = np.flatnonzero(track == code)
        described, place = collected.tracks.get(uuids[code]), places[code]
        value[own] = _scaled(value[own], described)
        columns["process"][own] = place.process
        columns["device"][own] = ABSENT if place.is_cpu else place.device
        columns["name"][own] = texts[place.name]
        if described.unit:
            columns["unit"][own] = texts[described.unit]
    kept = np.isfinite(value)
    if not kept.all():
        collected.dropped[NO_VALUE] += int((~kept).sum())
    closing = _closing_zeros(time, value, track, places)
    kept[closing] = False
    collected.not_kept[CLOSING_ZEROS] += len(closing)
    return {name: values[kept] for name, values in columns.items()}, texts.texts


def _scaled(value: np.ndarray, track: Track) -> np.ndarray:
    """What the counter stood at, from what the file has."""
    with np.errstate(over="ignore", invalid="ignore"):
        value = value * float(track.multiplier)
        return np.cumsum(value) if track.is_incremental else value


def _closing_zeros(time: np.ndarray, value: np.ndarray, track: np.ndarray, places: Sequence[Place]) -> np.ndarray:
    """Rows with which rocprof-sys ends its counters of the CPU and the process: no measurement, but all 0 at the
    end of the run (source/lib/rocprof-sys/library/cpu_freq.cpp). Only if all these counters end so.
    """
    is_sampled = np.array([place.name.startswith("CPU ") and place.name.endswith("(S)") for place in places], bool)
    own = np.flatnonzero(is_sampled[track]) if len(track) else np.empty(0, np.int64)
    if not len(own):
        return own
    # Rows are in order of track and time: the last one of each track.
    last = own[np.append(track[own][1:] != track[own][:-1], True)]
    end = time[last].max()
    earlier = np.setdiff1d(own, last)
    is_closing = (value[last] == 0).all() and (time[last] == end).all() and (time[earlier] < end).all()
    return last if is_closing and len(earlier) else own[:0]
