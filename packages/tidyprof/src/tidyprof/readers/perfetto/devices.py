"""Kind, GPU, stream and thread of each slice in a Perfetto trace, and the tool that wrote the
trace.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tidyprof.readers.perfetto.tracks import Place
from tidyprof.tables.codes import ABSENT, KIND_CODE, ON_DEVICE, refined
from tidyprof.tables.records import Records

_KINDS = {
    "kernel": "kernel_dispatch rocm_kernel_dispatch device_hip device_hsa",
    "copy": "memory_copy rocm_memory_copy",
    "sample": "timer_sampling overflow_sampling sampling",
    "runtime": (
        "hip_api hsa_api rccl_api rocdecode_api rocjpeg_api hipfile_api kfd_api ompt openmp"
        " rocm_hip_api rocm_hsa_api rocm_rccl_api rocm_rocdecode_api rocm_rocjpeg_api rocm_hip"
        " rocm_hsa rccl mpi pthread numa vaapi ucx shmem scratch_memory memory_allocation"
        " page_migration rocm rocm_scratch_memory rocm_memory_allocate rocm_page_migration"
    ),
}
"""The categories of each kind in files from rocprofv3 (rocprofiler-sdk,
source/include/rocprofiler-sdk/cxx/perfetto.hpp), rocprof-sys (rocprofiler-systems,
source/lib/core/categories.hpp) and omnitrace. All other categories are annotations, such as ROCTX,
Python and user ranges.
"""

STREAM_CATEGORY = "rocm_hip_stream"
"""rocprof-sys's common category for kernels, copies and calls that are grouped by HIP stream."""

_KIND_OF_NAME = {name: kind for kind, names in _KINDS.items() for name in names.split()} | {
    STREAM_CATEGORY: "kernel"
}

_NAMES_DECIDE = {STREAM_CATEGORY, "device_hip", "device_hsa"}
"""Categories in which only the event's name distinguishes a kernel from a copy."""

_LAUNCHING = {"hip_api", "hsa_api", "rocm_hip_api", "rocm_hsa_api", "rocm_hip", "rocm_hsa"}
"""Categories of calls that can start work on a device."""

_COPY_NAME = re.compile(r"^(MEMORY_COPY_|Memcpy|Copy(Host|Device)To)", re.IGNORECASE)
_FILL_NAME = re.compile(r"^(Memset|Fill(Buffer)?$)")
_CALL_NAME = re.compile(r"^(hip|hsa_)[A-Za-z_]\w*$")
_TO_DEVICE = re.compile(r"HOST_TO_DEVICE|DEVICE_TO_DEVICE|HostToDevice|DeviceToDevice")
_FROM_DEVICE = re.compile(r"DEVICE_TO_HOST|DeviceToHost")
_SAMPLING_RANGE = re.compile(r"^samples \[(rocprof-?sys|omnitrace)\]")


def kinds_of(slices: Records, texts: list[str]) -> np.ndarray:
    """Return each slice's kind as an index into KINDS (int8), based on the slice's category and
    name.

    A slice with a kernel number is always a kernel. The range that rocprof-sys puts around all
    samples of a thread isn't a sample.
    """
    kind = np.array([*map(_kind_of_category, texts)], np.int8)[slices["source_category"]]
    is_open = has_category(slices, texts, _NAMES_DECIDE) & (slices.get("kernel_id") == ABSENT)
    for target, pattern, where in (
        ("copy", _COPY_NAME, is_open),
        ("fill", _FILL_NAME, is_open),
        ("runtime", _CALL_NAME, is_open),
        ("annotation", _SAMPLING_RANGE, kind == KIND_CODE["sample"]),
    ):
        if where.any():
            kind[where & _matching(texts, pattern)[slices["name"]]] = KIND_CODE[target]
    return refined(kind, slices["name"], texts)


def has_category(slices: Records, texts: list[str], wanted: set[str]) -> np.ndarray:
    """Return a mask of the slices whose category contains one of these names."""
    has_one = [not wanted.isdisjoint(category.split(",")) for category in texts]
    return np.array(has_one, bool)[slices["source_category"]]


def is_launching(slices: Records, texts: list[str]) -> np.ndarray:
    """Return a mask of the calls that can start work on a device."""
    return (slices["kind"] == KIND_CODE["runtime"]) & has_category(slices, texts, _LAUNCHING)


def _kind_of_category(category: str) -> int:
    """Return a category's kind as an index into KINDS. If a category contains several names, the
    first known name determines the kind.
    """
    kinds = (_KIND_OF_NAME.get(name) for name in category.split(","))
    return KIND_CODE[next(filter(None, kinds), "annotation")]


def ends_on_device(slices: Records, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return two masks for copies. The first mask selects the copies whose name identifies the GPU
    as the source, and the second mask selects the copies whose name identifies the GPU as the
    destination.
    """
    return tuple(
        _matching(texts, pattern)[slices["name"]] for pattern in (_FROM_DEVICE, _TO_DEVICE)
    )


def tool_of(slices: Records, texts: list[str]) -> str:
    """Return the profiler that wrote these slices, or `Perfetto` if the profiler can't be
    determined.
    """
    categories, names = (
        {texts[code] for code in np.unique(slices[column]).tolist()}
        for column in ("source_category", "name")
    )
    if categories & {"timer_sampling"} or any(text.startswith("rocm_") for text in categories):
        return "rocprof-sys"
    if any(map(_SAMPLING_RANGE.match, names)):
        return "rocprof-sys"
    own = {"kernel_dispatch", "memory_copy", "hip_api", "hsa_api", "marker_api", "rccl_api"}
    return "rocprofv3" if categories & own else "Perfetto"


def _matching(texts: list[str], pattern: re.Pattern[str]) -> np.ndarray:
    return np.array([bool(pattern.search(text)) for text in texts], bool)


_AGENT = re.compile(r"(?:([A-Za-z]+)[-_ ]?)?([0-9]{1,9})")


_DEVICE = np.dtype([("number", np.int64), ("counts_agents", bool), ("is_cpu", bool)])
"""A device that a label or track identifies. `number` counts either all agents or only GPUs, and it
is ABSENT if unknown.
"""


def locate(slices: Records, places: Sequence[Place], texts: list[str]) -> dict[str, Any]:
    """Add process, thread, device, source_device and destination_device to the slices, and fill
    gaps in stream and queue. Return entries for `Profile.meta`.

    The additional column `hip_stream` contains only streams from the file. The column `stream`
    contains the queue if the stream is unknown.

    An event's device comes from its arguments. If the arguments contain no device, the device of
    the event's track is used. A copy belongs to the GPU that its name identifies as the source or
    destination.

    rocprof-sys numbers only GPUs for kernels, but it numbers all agents for copies. If each
    numbering has only one GPU, both numbers are assumed to refer to the same GPU. Otherwise, copies
    have no device.
    """
    lane, on_device = slices["lane"], ON_DEVICE[slices["kind"]]
    of_track = {
        key: np.array([getattr(place, key) for place in places], np.int64)[lane]
        for key in ("process", "thread", "queue", "stream")
    }
    launcher = slices.get("launch_thread")
    queue = _first(of_track["queue"], slices.get("queue"))
    stream = _first(slices.get("stream"), of_track["stream"])
    slices["hip_stream"] = stream.copy()
    stream = _first(stream, queue)
    slices["process"] = of_track["process"]
    slices["thread"] = np.where(on_device, ABSENT, _first(launcher, of_track["thread"]))
    for name, values in (("launch_thread", launcher), ("queue", queue), ("stream", stream)):
        slices[name] = np.where(on_device, values, ABSENT)
    slices["memory_device"] = np.where(on_device, ABSENT, slices.get("memory_device"))
    drawn = np.array(
        [(place.device, place.counts_agents, place.is_cpu) for place in places], _DEVICE
    )
    return _assign_devices(slices, texts, _labeled(texts, places), drawn[lane])


def _first(*choices: np.ndarray) -> np.ndarray:
    result = choices[0].copy()
    for choice in choices[1:]:
        result = np.where(result == ABSENT, choice, result)
    return result


def _labeled(labels: list[str], places: Sequence[Place]) -> np.ndarray:
    """Return the device that each label identifies. The additional last device has no number and is
    used for rows without a label (code -1).
    """
    processors = {place.device for place in places if place.is_cpu and place.counts_agents}
    devices = []
    for label in labels:
        match = _AGENT.fullmatch(label)
        kind = (match[1] or "").upper() if match else ""
        number = int(match[2]) if match else ABSENT
        counts_agents = kind not in ("CPU", "GPU")
        is_cpu = kind == "CPU" or (counts_agents and number in processors)
        devices.append((number, counts_agents, is_cpu))
    return np.array([*devices, (ABSENT, False, False)], _DEVICE)


def _assign_devices(
    slices: Records, texts: list[str], labeled: np.ndarray, drawn: np.ndarray
) -> dict[str, Any]:
    """Add the devices to the slices. If no label identifies a row's device, use the device of its
    track, `drawn`.
    """
    kind = slices["kind"]
    agent, source, destination = (
        np.maximum(slices[key], -1) for key in ("agent", "source", "destination")
    )
    has_ends = (source >= 0) | (destination >= 0)
    slices["source_device"] = labeled["number"][source]
    slices["destination_device"] = labeled["number"][destination]
    comes_from, goes_to = ends_on_device(slices, texts)
    end_of_copy = np.where(comes_from, source, np.where(goes_to, destination, -1))
    has_ends &= kind == KIND_CODE["copy"]
    stated = labeled[np.where(has_ends, end_of_copy, agent)]
    # For a copy between named agents, the track doesn't identify the GPU.
    drawn["number"][has_ends] = ABSENT
    device = np.where(stated["number"] != ABSENT, stated, drawn)
    device["number"][device["is_cpu"] | ~ON_DEVICE[kind]] = ABSENT
    slices["device"] = number = device["number"].copy()
    by_agent = (number != ABSENT) & device["counts_agents"]
    by_index = (number != ABSENT) & ~device["counts_agents"]
    if by_agent.any() and by_index.any():
        return {"device_numbering": "index"} | _joined(number, by_agent, by_index)
    return (
        {"device_numbering": "agent" if by_agent.any() else "index"}
        if (by_agent | by_index).any()
        else {}
    )


def _joined(device: np.ndarray, by_agent: np.ndarray, by_index: np.ndarray) -> dict:
    """If there is exactly one agent number and one GPU number, replace the agent number with the
    GPU number. Otherwise, remove the agent numbers.
    """
    agents, gpus = np.unique(device[by_agent]), np.unique(device[by_index])
    if len(agents) == len(gpus) == 1:
        device[by_agent] = gpus[0]
        return {"agent_taken_as_device": {int(agents[0]): int(gpus[0])}}
    device[by_agent] = ABSENT
    return {}
