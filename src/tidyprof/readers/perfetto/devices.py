"""Which GPU, stream and thread the slices of a Perfetto trace belong to, and what launched them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.readers.perfetto.kinds import LAUNCHING, STREAM_CATEGORY, from_device, to_device
from tidyprof.readers.perfetto.tracks import Place
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.kinds import KIND_CODE, ON_DEVICE

_AGENT = re.compile(r"(?:([A-Za-z]+)[-_ ]?)?([0-9]{1,9})")


_DEVICE = np.dtype([("number", np.int64), ("counts_agents", bool), ("is_cpu", bool)])
"""A device as a label or a track names it: `number` is ABSENT if it has none, and counts all agents or GPUs only."""


def locate(columns: dict[str, np.ndarray], places: Sequence[Place], names: list[str], labels: list[str]) -> dict:
    """Add process, thread, device, source_device and destination_device to columns, and complete stream and queue.

    Returns entries of `Profile.meta`.

    An event on a device has the device that its arguments name, else that of its track. A copy is the GPU's that
    its name makes its destination or source. rocprof-sys counts GPUs where it names a kernel's and agents where
    it names a copy's: if each way names one GPU only, they are taken as the same, else copies have no device.
    """
    track = columns["track"]
    on_device = ON_DEVICE[columns["kind"]]
    tracks = {key: _of(places, key) for key in ("process", "thread", "queue", "stream")}
    columns["process"] = tracks["process"][track]
    annotated = columns["launch_thread"]
    thread = np.where(annotated != ABSENT, annotated, tracks["thread"][track])
    columns["thread"] = np.where(on_device, ABSENT, thread)
    columns["launch_thread"] = np.where(on_device, annotated, ABSENT)
    columns["queue"] = _first(tracks["queue"][track], columns["queue"])
    columns["stream"] = _first(columns["stream"], tracks["stream"][track], columns["queue"])
    for name in ("queue", "stream"):
        columns[name][~on_device] = ABSENT
    if "memory_device" in columns:
        columns["memory_device"][on_device] = ABSENT
    drawn = np.array([(place.device, place.counts_agents, place.is_cpu) for place in places], _DEVICE)
    return _assign_devices(columns, names, _labelled(labels, places), drawn[track])


def _of(places: Sequence[Place], key: str) -> np.ndarray:
    return np.array([getattr(place, key) for place in places], np.int64)


def _first(*choices: np.ndarray) -> np.ndarray:
    """For each row the first of the choices that is known."""
    result = choices[0].copy()
    for choice in choices[1:]:
        result = np.where(result == ABSENT, choice, result)
    return result


def _labelled(labels: list[str], places: Sequence[Place]) -> np.ndarray:
    """The device that each label names; a last one, without a number, for rows without a label, of code -1."""
    processors = {place.device for place in places if place.is_cpu and place.counts_agents}
    found = []
    for label in labels:
        match = _AGENT.fullmatch(label)
        kind = (match[1] or "").upper() if match else ""
        number = int(match[2]) if match else ABSENT
        counts_agents = kind not in ("CPU", "GPU")
        found.append((number, counts_agents, kind == "CPU" or (counts_agents and number in processors)))
    return np.array([*found, (ABSENT, False, False)], _DEVICE)


def _assign_devices(
    columns: dict[str, np.ndarray], names: list[str], labelled: np.ndarray, drawn: np.ndarray
) -> dict[str, Any]:
    """Add the devices; `drawn` is the device of each row's track, which counts where no label names one."""
    kind, name = columns["kind"], columns["name"]
    agent, source, destination = (np.maximum(columns.pop(key), -1) for key in ("agent", "source", "destination"))
    has_ends = (source >= 0) | (destination >= 0)
    if has_ends.any():
        columns["source_device"] = labelled["number"][source]
        columns["destination_device"] = labelled["number"][destination]
    is_copy = kind == KIND_CODE["copy"]
    end_of_copy = np.where(from_device(names)[name], source, np.where(to_device(names)[name], destination, -1))
    stated = labelled[np.where(is_copy, end_of_copy, agent)]
    # Of a copy between named agents the track does not tell which of them is the GPU.
    drawn["number"][is_copy & has_ends] = ABSENT
    device = np.where(stated["number"] != ABSENT, stated, drawn)
    device["number"][device["is_cpu"] | ~ON_DEVICE[kind]] = ABSENT
    columns["device"] = number = device["number"].copy()
    by_agent = (number != ABSENT) & device["counts_agents"]
    by_index = (number != ABSENT) & ~device["counts_agents"]
    if by_agent.any() and by_index.any():
        return {"device_numbering": "index"} | _joined(number, by_agent, by_index)
    return {"device_numbering": "agent" if by_agent.any() else "index"} if (by_agent | by_index).any() else {}


def _joined(device: np.ndarray, by_agent: np.ndarray, by_index: np.ndarray) -> dict:
    """Turn agents' numbers into GPUs' where there is one of each, else drop them."""
    agents, gpus = np.unique(device[by_agent]), np.unique(device[by_index])
    if len(agents) == len(gpus) == 1:
        device[by_agent] = gpus[0]
        return {"agent_taken_as_device": {int(agents[0]): int(gpus[0])}}
    device[by_agent] = ABSENT
    return {}


def link(columns: dict[str, np.ndarray], categories: list[str]) -> tuple[dict[str, np.ndarray], int, int]:
    """Add `launch`, and `launch_thread` where it is missing; drop calls that are drawn twice.

    Returns the columns, how many calls were dropped and how many device events have no launch in the file.
    The launch of an event on a device is the first call of its process with its correlation id, of those that
    begin at once the longest.
    """
    correlation = columns["correlation"]
    correlation[correlation == 0] = ABSENT
    launching = np.array([set(category.split(",")) & set(LAUNCHING) != set() for category in categories] + [False])
    is_call = (columns["kind"] == KIND_CODE["runtime"]) & launching[columns["category"]] & (correlation != ABSENT)
    keys = ["process", "correlation"]
    frame = pd.DataFrame({name: columns[name] for name in (*keys, "start", "duration", "thread")})
    calls = frame[is_call].sort_values(["start", "duration"], ascending=[True, False], kind="stable")
    calls = calls.drop_duplicates(keys).drop(columns="duration")
    repeated = _is_on_stream(columns, categories) & (columns["kind"] == KIND_CODE["runtime"])
    if repeated.any():
        repeated &= frame[keys].merge(calls, how="left", on=keys)["start"].notna().to_numpy()
        columns = {name: values[~repeated] for name, values in columns.items()}
    on_device = ON_DEVICE[columns["kind"]]
    found = pd.DataFrame({name: columns[name][on_device] for name in keys}).merge(
        calls.astype({"start": "Int64", "thread": "Int64"}), how="left", on=keys
    )
    columns["launch"] = np.full(len(on_device), ABSENT)
    columns["launch"][on_device] = found["start"].fillna(ABSENT).to_numpy(np.int64)
    thread = found["thread"].fillna(ABSENT).to_numpy(np.int64)
    columns["launch_thread"][on_device] = _first(columns["launch_thread"][on_device], thread)
    return columns, int(repeated.sum()), int(found["start"].isna().sum())


def _is_on_stream(columns: dict[str, np.ndarray], categories: list[str]) -> np.ndarray:
    return np.array([STREAM_CATEGORY in category.split(",") for category in categories] + [False])[columns["category"]]
