"""Which GPU, stream and thread the slices of a Perfetto trace belong to, and what launched them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.readers.perfetto.kinds import LAUNCHING, STREAM_CATEGORY, from_device, to_device
from tidyprof.readers.perfetto.tracks import Place
from tidyprof.readers.torch.events import ABSENT
from tidyprof.tables.kind_codes import KIND_CODE, ON_DEVICE

_AGENT = re.compile(r"(?:([A-Za-z]+)[-_ ]?)?([0-9]{1,9})")


@dataclass(frozen=True)
class _Agents:
    """For every label of an agent its number (ABSENT if it has none), and what the label says of it."""

    number: np.ndarray
    counts_agents: np.ndarray
    is_cpu: np.ndarray


def locate(columns: dict[str, np.ndarray], places: Sequence[Place], names: list[str], labels: list[str]) -> dict:
    """Add process, thread, device, source_device and destination_device to columns, and complete stream and queue.

    Returns entries of `Profile.meta`.

    An event on a device has the device that its arguments name, else that of its track. A copy is the GPU's that
    its name makes its destination or source. rocprof-sys counts GPUs where it names a kernel's and agents where
    it names a copy's: if each way names one GPU only, they are taken as the same, else copies have no device.
    """
    track = columns["track"]
    on_device = ON_DEVICE[columns["kind"]]
    tracks = {key: _of(places, key) for key in ("process", "thread", "device", "queue", "stream")}
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
    return _assign_devices(columns, places, names, _agents(labels, places), on_device)


def _of(places: Sequence[Place], key: str) -> np.ndarray:
    return np.array([getattr(place, key) for place in places], np.int64)


def _first(*choices: np.ndarray) -> np.ndarray:
    """For each row the first of the choices that is known."""
    result = choices[0].copy()
    for choice in choices[1:]:
        result = np.where(result == ABSENT, choice, result)
    return result


def _agents(labels: list[str], places: Sequence[Place]) -> _Agents:
    processors = {place.device for place in places if place.is_cpu and place.counts_agents}
    number, counts, is_cpu = [], [], []
    for label in labels:
        found = _AGENT.fullmatch(label)
        kind = (found[1] or "").upper() if found else ""
        number.append(int(found[2]) if found else ABSENT)
        counts.append(kind not in ("CPU", "GPU"))
        is_cpu.append(kind == "CPU" or (counts[-1] and number[-1] in processors))
    # A last entry for rows without a label, which have the code -1.
    return _Agents(
        np.array([*number, ABSENT], np.int64), np.array([*counts, False], bool), np.array([*is_cpu, False], bool)
    )


def _assign_devices(
    columns: dict[str, np.ndarray], places: Sequence[Place], names: list[str], agents: _Agents, on_device: np.ndarray
) -> dict:
    track, name, kind = columns["track"], columns["name"], columns["kind"]
    is_copy = kind == KIND_CODE["copy"]
    for what in ("source", "destination", "agent"):
        columns[what][columns[what] == ABSENT] = -1
    source, destination, agent = columns.pop("source"), columns.pop("destination"), columns.pop("agent")
    if (source >= 0).any() or (destination >= 0).any():
        columns["source_device"], columns["destination_device"] = agents.number[source], agents.number[destination]
    end_of_copy = np.where(from_device(names)[name], source, np.where(to_device(names)[name], destination, -1))
    code = np.where(is_copy, end_of_copy, agent)
    is_known = agents.number[code] != ABSENT
    from_track = on_device & ~is_known & ~_is_unclear(is_copy, source, destination)
    device = np.where(is_known, agents.number[code], np.where(from_track, _of(places, "device")[track], ABSENT))
    counts = np.where(is_known, agents.counts_agents[code], np.array([p.counts_agents for p in places], bool)[track])
    is_cpu = np.where(is_known, agents.is_cpu[code], np.array([p.is_cpu for p in places], bool)[track])
    device[is_cpu | ~on_device] = ABSENT
    known = device != ABSENT
    columns["device"] = device
    if (known & counts).any() and (known & ~counts).any():
        return {"device_numbering": "index"} | _joined(device, known & counts, known & ~counts)
    return {"device_numbering": "agent" if counts[known].any() else "index"} if known.any() else {}


def _is_unclear(is_copy: np.ndarray, source: np.ndarray, destination: np.ndarray) -> np.ndarray:
    """Copies whose agents are named but not which of them is the GPU."""
    return is_copy & ((source >= 0) | (destination >= 0))


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
