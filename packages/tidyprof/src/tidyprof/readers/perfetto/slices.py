"""Tracks, slices and counters of a Perfetto trace as columns. The names of categories, slices and
tracks identify the kind, the GPU, the stream and the thread of each slice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.readers.perfetto.decoder import LABELS, NO_VALUE, Decoder, text
from tidyprof.tables.codes import ABSENT, KIND_CODE, NO_TEXT, ON_DEVICE, mapped, nullable, refined
from tidyprof.tables.launches import callers
from tidyprof.tables.records import Records

_KINDS = {
    "kernel": "kernel_dispatch rocm_kernel_dispatch device_hip device_hsa rocm_hip_stream",
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

_KIND_OF_NAME = {name: kind for kind, names in _KINDS.items() for name in names.split()}

STREAM_CATEGORY = "rocm_hip_stream"
"""rocprof-sys's common category for kernels, copies and calls that are grouped by HIP stream."""

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
_AGENT = re.compile(r"(?:([A-Za-z]+)[-_ ]?)?([0-9]{1,9})")
_SHAPE = re.compile(r"\(?([0-9]+(?:, ?[0-9]+)*)\)?")
_UNITS = {1: "ns", 2: "count", 3: "bytes"}
"""Units from CounterDescriptor.Unit
(protos/perfetto/trace/track_event/counter_descriptor.proto).
"""

_TRACKS = tuple(
    re.compile(pattern.replace("#", r"[0-9]{1,9})"))
    for pattern in (
        # rocprofv3 (rocprofiler-sdk, source/lib/output/generatePerfetto.cpp)
        r"COMPUTE (?P<label>\w+) \[(?P<agent>#\] QUEUE \[(?P<queue>#\]",
        r"COPY (?:BYTES )?to (?P<label>\w+) \[(?P<agent>#\]",
        r"STREAM \[\W*(?P<stream>#\W*\]",
        r"THREAD [0-9]+ \((?P<thread>#\)",
        # rocprof-sys (rocprofiler-systems, source/lib/rocprof-sys/library)
        r"GPU Kernel Dispatch \[(?P<index>#\] Queue (?P<queue>#",
        r"GPU Memory Copy to (?P<label>Agent) \[(?P<agent>#\]",
        r"HIP Activity Stream (?P<stream>#",
        r"Thread [0-9]+ .*\(S\) (?P<thread>#$",
        r"GPU \[(?P<index>#\] ",
        r"GPU .*\[(?P<index>#\] \(S\)$",
        # omnitrace, its predecessor
        r"HIP Activity Device (?P<index>#(?:, Queue (?P<queue>#)?",
    )
)
"""Patterns for the track names of AMD's profilers. `agent` numbers all agents of a node, including
CPUs, unless the label is a type of device (`GPU`). `index` numbers only GPUs.
"""

_MAXIMUM_ANCESTORS = 64
_DEVICE = np.dtype([("number", np.int64), ("counts_agents", bool), ("is_cpu", bool)])
"""A device that a label or track identifies. `number` counts either all agents or only GPUs, and it
is ABSENT if unknown.
"""

CLOSING_ZEROS = "zeros that close counters"
INCREASES = "samples of counters that state increases"


def track_table(decoder: Decoder) -> pd.DataFrame:
    """Return one row per track, in the order of their numbers. Unknown numbers are ABSENT.

    - name, process, thread, queue, stream: place of the track's events
    - number, counts_agents, is_cpu: device of the track's events, see `_DEVICE`
    - unit, multiplier, is_incremental: unit of a counter, the factor that converts its values to
      this unit, and True if each value is the increase since the last value
    """
    numbers = ("process", "thread", "queue", "stream", "number")
    default = dict.fromkeys(numbers, ABSENT) | {
        "name": "",
        "counts_agents": False,
        "is_cpu": False,
        "unit": None,
        "multiplier": 1,
        "is_incremental": False,
    }
    tracks = [default | _track(decoder.descriptors, uuid) for uuid in decoder.tracks]
    return pd.DataFrame(tracks, columns=list(default))


def _track(descriptors: dict[int, Any], uuid: int) -> dict[str, Any]:
    own = track = descriptors.get(uuid)
    if own is None:
        return {}
    place: dict[str, Any] = {"name": ""}
    # The number of rounds is limited, because a damaged track can be its own ancestor.
    for _ in range(_MAXIMUM_ANCESTORS):
        if track.HasField("thread"):
            place |= {"process": track.thread.pid, "thread": track.thread.tid}
        if track.HasField("process"):
            place["process"] = track.process.pid
        name = text(track.name or track.static_name or track.thread.thread_name)
        place["name"] = place["name"] or name
        track = descriptors.get(track.parent_uuid)
        if "process" in place or track is None:
            break
    place["name"] = place["name"] or text(own.process.process_name)
    place["unit"] = text(own.counter.unit_name) or _UNITS.get(own.counter.unit)
    place["multiplier"] = own.counter.unit_multiplier or 1
    place["is_incremental"] = own.counter.is_incremental
    found = next(filter(None, (pattern.match(place["name"]) for pattern in _TRACKS)), None)
    stated = {key: value for key, value in found.groupdict().items() if value} if found else {}
    # rocprofv3 puts the type of device before its number, and rocprof-sys puts it at the end.
    label = stated.pop("label", "").upper()
    place["is_cpu"] = label == "CPU" or (bool(stated) and place["name"].endswith("(CPU)"))
    place["counts_agents"] = "agent" in stated and label not in ("CPU", "GPU")
    renamed = {"agent": "number", "index": "number"}
    return place | {renamed.get(key, key): int(value) for key, value in stated.items()}


def slices_of(decoder: Decoder, tracks: pd.DataFrame) -> Records:
    """Return all slices and instant events as `Records` with their kinds. A slice without an end
    time gets the end time 0.

    In addition to event columns, the result contains these columns:

    - lane: track number
    - kernel_id: kernel number from the file
    - agent, source, destination: code of the label of the device

    Events are processed in file order, and each end event closes the latest slice that its sequence
    started on the track. AMD's profilers write the start and end of a record together, so file
    order keeps overlapping kernels separate.
    """
    start, end, lane, name, category = np.frombuffer(decoder.slices, np.int64).reshape(-1, 5).T
    names = [decoder.texts[name] if name else NO_TEXT for name in tracks["name"]]
    columns = {
        "start_ns": start.copy(),
        "duration_ns": np.where(end == ABSENT, 0, end) - start,
        "name": name.astype(np.int32),
        "source_category": category.astype(np.int32),
        "lane": lane.copy(),
        "track": np.array(names, np.int32)[lane],
    }
    for column in {*LABELS, *decoder.annotated}:
        row, value = np.frombuffer(decoder.annotated[column], np.int64).reshape(-1, 2).T
        columns[column] = np.full(len(start), ABSENT)
        columns[column][row] = value
    for shape in ("grid", "block"):
        columns[shape] = _shapes(columns[shape], decoder)
    slices = Records(columns)
    slices["kind"] = _kinds(slices, [*map(text, decoder.texts)])
    correlation = slices.get("correlation_id")
    slices["correlation_id"] = np.where(correlation == 0, ABSENT, correlation)
    return slices


def _shapes(labels: np.ndarray, decoder: Decoder) -> np.ndarray:
    """Parse the shapes in these labels. A label `(256,1,1)` from rocprof-sys becomes `[256, 1, 1]`.
    rocprofv3 writes only the product, which becomes `[256]`.
    """
    known, codes = list(decoder.texts), {}
    for label in np.unique(labels[labels != ABSENT]).tolist():
        if found := _SHAPE.fullmatch(text(known[label])):
            sides = ", ".join(found[1].replace(" ", "").split(","))
            codes[label] = decoder.texts[f"[{sides}]"]
    return np.maximum(mapped(labels, codes), NO_TEXT).astype(np.int32)


def _kinds(slices: Records, texts: list[str]) -> np.ndarray:
    """Return each slice's kind as an index into KINDS, based on its category and name. If a
    category contains several names, the first known name determines the kind.

    A slice with a kernel number is always a kernel. The range that rocprof-sys puts around all
    samples of a thread isn't a sample.
    """
    found = (next(filter(None, map(_KIND_OF_NAME.get, one.split(","))), None) for one in texts)
    codes = [KIND_CODE[kind or "annotation"] for kind in found]
    kind = np.array(codes, np.int8)[slices["source_category"]]
    is_open = has_category(slices, texts, _NAMES_DECIDE) & (slices.get("kernel_id") == ABSENT)
    for target, pattern, where in (
        ("copy", _COPY_NAME, is_open),
        ("fill", _FILL_NAME, is_open),
        ("runtime", _CALL_NAME, is_open),
        ("annotation", _SAMPLING_RANGE, kind == KIND_CODE["sample"]),
    ):
        if where.any():
            kind[where & _has_name(slices, texts, pattern)] = KIND_CODE[target]
    return refined(kind, slices["name"], texts)


def has_category(slices: Records, texts: Iterable[str], wanted: set[str]) -> np.ndarray:
    """Return a mask of the slices whose category contains one of these names."""
    has_one = [not wanted.isdisjoint(category.split(",")) for category in texts]
    return np.array(has_one, bool)[slices["source_category"]]


def is_launching(slices: Records, texts: Iterable[str]) -> np.ndarray:
    """Return a mask of the calls that can start work on a device."""
    return (slices["kind"] == KIND_CODE["runtime"]) & has_category(slices, texts, _LAUNCHING)


def _has_name(slices: Records, texts: list[str], pattern: re.Pattern[str]) -> np.ndarray:
    return np.array([bool(pattern.search(one)) for one in texts], bool)[slices["name"]]


def tool_of(slices: Records, texts: list[str]) -> str:
    """Return the profiler that wrote these slices, or `Perfetto` if the profiler can't be
    determined.
    """
    categories = {texts[code] for code in np.unique(slices["source_category"]).tolist()}
    is_sampled = _has_name(slices, texts, _SAMPLING_RANGE).any() or "timer_sampling" in categories
    if is_sampled or any(one.startswith("rocm_") for one in categories):
        return "rocprof-sys"
    own = {"kernel_dispatch", "memory_copy", "hip_api", "hsa_api", "marker_api", "rccl_api"}
    return "rocprofv3" if categories & own else "Perfetto"


def locate(slices: Records, tracks: pd.DataFrame, texts: list[str]) -> dict[str, Any]:
    """Add process, thread, device, source_device and destination_device to the slices, and fill
    gaps in stream and queue. Return entries for `Profile.meta`.

    The additional column `hip_stream` contains only streams from the file. The column `stream`
    contains the queue if the stream is unknown.

    An event's device comes from its arguments. If the arguments contain no device, the device of
    the event's track is used. A copy belongs to the GPU that its name identifies as the source or
    destination.
    """
    lane, on_device = slices["lane"], ON_DEVICE[slices["kind"]]
    process, thread, track_queue, track_stream = (
        tracks[name].to_numpy(np.int64)[lane] for name in ("process", "thread", "queue", "stream")
    )
    launcher = slices.get("launch_thread")
    queue = _filled(track_queue, slices.get("queue"))
    slices["hip_stream"] = _filled(slices.get("stream"), track_stream)
    slices["process"] = process
    slices["thread"] = np.where(on_device, ABSENT, _filled(launcher, thread))
    slices["launch_thread"] = np.where(on_device, launcher, ABSENT)
    slices["queue"] = np.where(on_device, queue, ABSENT)
    slices["stream"] = np.where(on_device, _filled(slices["hip_stream"], queue), ABSENT)
    slices["memory_device"] = np.where(on_device, ABSENT, slices.get("memory_device"))
    device = _devices(slices, tracks, texts)
    device["number"][device["is_cpu"] | ~on_device] = ABSENT
    slices["device"] = number = device["number"].copy()
    by_agent = (number != ABSENT) & device["counts_agents"]
    by_index = (number != ABSENT) & ~device["counts_agents"]
    if by_agent.any() and by_index.any():
        # rocprof-sys numbers only GPUs for kernels, but it numbers all agents for copies. If each
        # numbering has only one GPU, both refer to the same GPU. Otherwise, copies have no device.
        agents, gpus = np.unique(number[by_agent]), np.unique(number[by_index])
        number[by_agent] = gpus[0] if len(agents) == len(gpus) == 1 else ABSENT
    elif not by_agent.any() and not by_index.any():
        return {}
    return {"device_numbering": "index" if by_index.any() else "agent"}


def _filled(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.where(values == ABSENT, others, values)


def _devices(slices: Records, tracks: pd.DataFrame, texts: list[str]) -> np.ndarray:
    """Return the device of each slice, and add the devices at both ends of copies."""
    processors = set(tracks["number"][tracks["is_cpu"] & tracks["counts_agents"]])
    labeled = []
    for label in texts:
        match = _AGENT.fullmatch(label)
        kind = (match[1] or "").upper() if match else ""
        number = int(match[2]) if match else ABSENT
        counts_agents = kind not in ("CPU", "GPU")
        is_cpu = kind == "CPU" or (counts_agents and number in processors)
        labeled.append((number, counts_agents, is_cpu))
    # The additional last device is for rows without a label (code -1).
    of_label = np.array([*labeled, (ABSENT, False, False)], _DEVICE)
    agent, source, destination = (
        np.maximum(slices[key], -1) for key in ("agent", "source", "destination")
    )
    slices["source_device"] = of_label["number"][source]
    slices["destination_device"] = of_label["number"][destination]
    has_ends = (source >= 0) | (destination >= 0)
    has_ends &= slices["kind"] == KIND_CODE["copy"]
    end = np.where(_has_name(slices, texts, _TO_DEVICE), destination, -1)
    end = np.where(_has_name(slices, texts, _FROM_DEVICE), source, end)
    stated = of_label[np.where(has_ends, end, agent)]
    drawn = tracks[list(_DEVICE.names)].to_records(index=False).astype(_DEVICE)[slices["lane"]]
    # For a copy between named agents, the track doesn't identify the GPU.
    drawn["number"][has_ends] = ABSENT
    return np.where(stated["number"] != ABSENT, stated, drawn)


def add_nesting(slices: Records) -> None:
    """Add the columns depth, parent and sample. Only host events are nested, and the frames of
    samples are nested separately.

    An event's parent is the innermost earlier event that completely encloses it. If two events have
    the same start and end, the first event encloses the second. This applies only to frames and to
    events with a duration.
    """
    host = np.flatnonzero(~ON_DEVICE[slices["kind"]])
    is_frame = slices["kind"][host] == KIND_CODE["sample"]
    start = slices["start_ns"][host]
    # Frames without a duration enclose each other too.
    end = start + np.maximum(slices["duration_ns"][host], is_frame)
    order, parent = callers(start, end, 2 * slices["lane"][host] + is_frame)
    host, end, is_frame = host[order], end[order], is_frame[order]
    late = np.arange(len(host))
    while len(late := late[(parent[late] >= 0) & (end[parent[late]] < end[late])]):
        parent[late] = parent[parent[late]]
    depth, root = np.zeros(len(host), np.int64), np.arange(len(host))
    # Each round goes to the next outer event.
    inner = np.arange(len(host))
    while len(inner := inner[parent[root[inner]] >= 0]):
        root[inner] = parent[root[inner]]
        depth[inner] += 1
    for name in ("depth", "parent", "sample"):
        slices[name] = np.full(len(slices), ABSENT)
    slices["depth"][host] = depth
    slices["parent"][host] = np.where(parent < 0, ABSENT, host[parent])
    outermost, number = np.unique(host[root[is_frame]], return_inverse=True)
    in_time = np.argsort(np.argsort(slices["start_ns"][outermost], kind="stable"))
    slices["sample"][host[is_frame]] = in_time[number]


def counter_table(decoder: Decoder, tracks: pd.DataFrame) -> pd.DataFrame:
    """Return the columns time_ns, process, device, name, value and unit, sorted by track and time.

    Values that count multiples of a unit, such as 1024 bytes, are converted to that unit. Counters
    that state increases are left out, because AMD's profilers write none. A counter has a device if
    its track's name identifies a device other than a CPU.
    """
    time, lane = np.frombuffer(decoder.counters, np.int64).reshape(-1, 2).T
    value = np.frombuffer(decoder.counter_values, np.float64)
    order = np.lexsort((time, lane))
    time, lane = time[order], lane[order]
    track = tracks.iloc[lane].reset_index(drop=True)
    with np.errstate(over="ignore"):
        value = value[order] * track["multiplier"].to_numpy(float)
    device = track["number"].where(~track["is_cpu"].astype(bool), ABSENT)
    table = pd.DataFrame(
        {
            "process": nullable(np.array(track["process"], np.int64), "Int64"),
            "device": nullable(np.array(device, np.int64), "Int64"),
            "time_ns": time,
            "value": value,
            "name": track["name"].astype("category"),
            "unit": track["unit"].astype("category"),
        }
    )
    is_increase = track["is_incremental"].to_numpy(bool)
    decoder.not_kept[INCREASES] += int(is_increase.sum())
    kept = np.isfinite(value) | is_increase
    decoder.dropped += Counter({NO_VALUE: int((~kept).sum())})
    # At the end of a run, rocprof-sys sets its CPU and process counters to 0
    # (source/lib/rocprof-sys/library/cpu_freq.cpp). These rows aren't measurements.
    is_last = np.append(lane[1:] != lane[:-1], True)[: len(lane)] & (value == 0)
    closing = is_last & table["name"].astype(str).str.fullmatch(r"CPU .*\(S\)").to_numpy(bool)
    decoder.not_kept[CLOSING_ZEROS] += int(closing.sum())
    return table[kept & ~closing & ~is_increase]
