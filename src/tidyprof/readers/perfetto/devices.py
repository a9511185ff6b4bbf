"""Which GPU, stream and thread the slices of a Perfetto trace belong to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tidyprof.readers.perfetto.kinds import ends_on_device
from tidyprof.readers.perfetto.tracks import Place
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.kinds import KIND_CODE, ON_DEVICE
from tidyprof.tables.records import Records

_AGENT = re.compile(r"(?:([A-Za-z]+)[-_ ]?)?([0-9]{1,9})")


_DEVICE = np.dtype([("number", np.int64), ("counts_agents", bool), ("is_cpu", bool)])
"""A device as a label or a track names it: `number` is ABSENT if it has none, and counts all agents or GPUs only."""


def locate(slices: Records, places: Sequence[Place], texts: list[str]) -> dict[str, Any]:
    """Add process, thread, device, source_device and destination_device, and complete stream and queue.

    Returns entries of `Profile.meta`.

    An event on a device has the device that its arguments name, else that of its track. A copy is the GPU's that
    its name makes its destination or source. rocprof-sys counts GPUs where it names a kernel's and agents where
    it names a copy's: if each way names one GPU only, they are taken as the same, else copies have no device.
    """
    lane, on_device = slices["lane"], ON_DEVICE[slices["kind"]]
    of_track = {
        key: np.array([getattr(place, key) for place in places], np.int64)[lane]
        for key in ("process", "thread", "queue", "stream")
    }
    launcher = slices.get("launch_thread")
    queue = _first(of_track["queue"], slices.get("queue"))
    stream = _first(slices.get("stream"), of_track["stream"], queue)
    slices["process"] = of_track["process"]
    slices["thread"] = np.where(on_device, ABSENT, _first(launcher, of_track["thread"]))
    for name, values in (("launch_thread", launcher), ("queue", queue), ("stream", stream)):
        slices[name] = np.where(on_device, values, ABSENT)
    slices["memory_device"] = np.where(on_device, ABSENT, slices.get("memory_device"))
    drawn = np.array([(place.device, place.counts_agents, place.is_cpu) for place in places], _DEVICE)
    return _assign_devices(slices, texts, _labelled(texts, places), drawn[lane])


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


def _assign_devices(slices: Records, texts: list[str], labelled: np.ndarray, drawn: np.ndarray) -> dict[str, Any]:
    """Add the devices; `drawn` is the device of each row's track, which counts where no label names one."""
    kind = slices["kind"]
    agent, source, destination = (np.maximum(slices[key], -1) for key in ("agent", "source", "destination"))
    has_ends = (source >= 0) | (destination >= 0)
    slices["source_device"] = labelled["number"][source]
    slices["destination_device"] = labelled["number"][destination]
    is_copy = kind == KIND_CODE["copy"]
    comes_from, goes_to = ends_on_device(slices, texts)
    end_of_copy = np.where(comes_from, source, np.where(goes_to, destination, -1))
    stated = labelled[np.where(is_copy, end_of_copy, agent)]
    # Of a copy between named agents the track does not tell which of them is the GPU.
    drawn["number"][is_copy & has_ends] = ABSENT
    device = np.where(stated["number"] != ABSENT, stated, drawn)
    device["number"][device["is_cpu"] | ~ON_DEVICE[kind]] = ABSENT
    slices["device"] = number = device["number"].copy()
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
