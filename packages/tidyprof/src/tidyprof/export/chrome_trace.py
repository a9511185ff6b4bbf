"""Export of any Profile as a Chrome trace for Perfetto (https://ui.perfetto.dev) and
chrome://tracing.

The output uses Google's Trace Event Format
(https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). The output
follows torch.profiler's dialect, so `read_torch_trace` can read the file again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import pandas as pd
from isal import igzip

from tidyprof.atomic_write import whole_file
from tidyprof.readers.torch.meta import LATEST_BASE_NS
from tidyprof.tables.contract import DEVICE_KINDS, MARK, MODELED, Profile
from tidyprof.tables.launches import launching_calls

_BEFORE_FIRST_NS = 1_000
"""Time between the base time and the first event, in nanoseconds. In torch.profiler's dialect, a
start of 0 means that the time was lost.
"""

_DIALECT = "torch.profiler"
"""The tool whose dialect the trace has."""

_AT_ONCE = 50_000
"""Number of events that are converted together, which limits the memory."""

_CATEGORIES = {
    "kernel": "kernel",
    "copy": "gpu_memcpy",
    "fill": "gpu_memset",
    "collective": "collective_comm",
    "runtime": "cuda_runtime",
    "operator": "cpu_op",
    "annotation": "user_annotation",
    "sample": "sample",
}
"""torch.profiler's category of each kind. torch.profiler also uses `cuda_runtime` for HIP calls."""

_NUMBERS = {
    "external_id": "External id",
    "device": "device",
    "stream": "stream",
    "correlation_id": "correlation",
    "collective": "Collective name",
    "group_size": "Group size",
    "bytes": "bytes",
    "rank": "rank",
    "number": "pid_raw",
}
_LISTS = {
    "grid": "grid",
    "block": "block",
    "input_shapes": "Input Dims",
    "input_types": "Input type",
}
"""The name of each column in the arguments of an event. TraceLens's TraceFuse uses `rank` and
`pid_raw` in traces of several ranks.
"""

_STATED = ("tool", "tool_version", "gpu", "rocm", "torch", "host", "files")


def write_chrome_trace(profile: Profile, path: str | PathLike[str]) -> None:
    """Write the profile to a file whose name ends in .json or .json.gz.

    The new file replaces an existing file only when it is complete. Processes, threads, devices and
    streams have names in the trace. Times are in microseconds with three decimal places, so every
    nanosecond is preserved. Counters become counter tracks. Flow arrows lead from each runtime call
    to the device events that it launched.

    The member `converted_from` contains the tool that wrote the profile, and the profile's origin.
    If times had to be shifted because the dialect has no times before zero, it also contains the
    shift. A modeled profile contains the marker that readers recognize. Raises ValueError for any
    other file extension, and OSError if the file can't be written.
    """
    path = Path(path)
    if not path.name.endswith((".json", ".json.gz")):
        raise ValueError(f"{path}: the name of a Chrome trace must end in .json or .json.gz")
    base, shift = _base_time(profile)
    events = _on_tracks(profile.events)
    entries = chain(
        _names(events),
        _events(events, base, profile.meta.get("tool") == _DIALECT and "source_category" in events),
        _samples(profile.counters, base),
        _arrows(events, base),
    )
    with whole_file(path) as partial, partial.open("wb") as raw, _compressed(path, raw) as file:
        # The list comes last, so that a reader has all other members when it reaches the events.
        members = msgspec.json.encode(_header(profile, base, shift))
        file.write(members[:-1] + b',"traceEvents":[')
        separator = b"\n"
        while chunk := list(islice(entries, _AT_ONCE)):
            file.write(separator + b",\n".join(map(msgspec.json.encode, chunk)))
            separator = b",\n"
        file.write(b"\n]}\n")


def _compressed(path: Path, raw: BinaryIO) -> AbstractContextManager[Any]:
    """Return a file that compresses if the name ends in .gz. Its header has neither a name nor a
    time, so the same profile results in the same bytes.
    """
    if path.name.endswith(".gz"):
        return igzip.IGzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
    return nullcontext(raw)


def _base_time(profile: Profile) -> tuple[int, int]:
    """Return the trace's base time in nanoseconds, and the shift that prevents negative times."""
    first = min((*profile.events["start_ns"], *profile.counters["time_ns"]), default=1)
    # `read_torch_trace` treats a base after LATEST_BASE_NS as damage.
    base = min(int(first) - _BEFORE_FIRST_NS, LATEST_BASE_NS - 1)
    return (max(base, 0), 0) if first > 0 else (base, -base)


def _header(profile: Profile, base: int, shift: int) -> dict[str, Any]:
    """Return the members next to the events, which are the known torch.profiler members and the
    origin.
    """
    meta = profile.meta
    ranks = profile.events["rank"].unique()
    source = {key: meta[key] for key in _STATED if key in meta}
    header = {
        "schemaVersion": 1,
        "displayTimeUnit": "ns",
        "deviceProperties": meta.get("device_properties", []),
        "baseTimeNanoseconds": base + shift,
        "converted_from": source | {"origin": str(profile.origin), "shift_ns": shift},
    }
    if len(ranks) == 1 and not pd.isna(ranks[0]):
        header["distributedInfo"] = {**meta.get("distributed", {}), "rank": int(ranks[0])}
    if version := meta.get("hip_runtime_version"):
        # `6.4.43483` becomes 60443483 (see `HIP_VERSION` in hip/hip_version.h).
        major, minor, patch = map(int, version.split("."))
        header["hip_runtime_version"] = major * 10**7 + minor * 10**5 + patch
    library, _, version = str(meta.get("tool_version", "")).rpartition(" ")
    if library:  # torch.profiler writes a member such as "roctracer_version": 4.1
        header[f"{library.replace('CUPTI', 'cupti')}_version"] = version
    if profile.origin.kind == MODELED:
        header[MARK] = {"error": profile.origin.detail}
    return header


def _on_tracks(events: pd.DataFrame) -> pd.DataFrame:
    """Return the events with their place in the trace, sorted by time, and outer events first.

    The format supports only processes with threads. As in torch.profiler's traces, a device is
    therefore a process, and a stream is a thread of this process. The new columns are:

    - on_device: True for an event of a device.
    - number: the number of the process or device in the profile.
    - pid, tid: the process and thread in the trace (see `_pids`).
    """
    on_device = events["device"].notna() | events["kind"].isin(DEVICE_KINDS)
    number = events["device"].astype("Int64").where(on_device, events["process"])
    places = pd.DataFrame({"on_device": on_device, "rank": events["rank"], "number": number})
    place = places.groupby(list(places), dropna=False).ngroup().to_numpy(np.int64)
    pids = _pids(places.iloc[np.unique(place, return_index=True)[1]])
    thread = events["stream"].where(on_device, events["thread"])
    tracks = {"on_device": on_device, "number": number, "pid": np.array(pids, object)[place]}
    tids = ["unknown" if one is None else one for one in _plain(thread)]
    placed = events.assign(**tracks, tid=tids)
    owner = ["rank", "process", "correlation_id"]
    if (events.groupby("rank", dropna=False)["process"].nunique() > 1).any():
        # A trace doesn't state which process an id belongs to, so equal ids get other numbers.
        other = events.groupby(owner, dropna=False).ngroup().astype("Int64")
        placed["correlation_id"] = other.where(events["correlation_id"].notna())
    start, duration = (placed[name].to_numpy(np.int64) for name in ("start_ns", "duration_ns"))
    return placed.iloc[np.lexsort((-duration, start))]


def _pids(places: pd.DataFrame) -> list[int | str]:
    """Return a different pid for each process and device. It is the number in the profile, or words
    if the profile has no number. If numbers repeat or there are several ranks, places are numbered.
    """
    numbers, ranks = _plain(places["number"]), _plain(places["rank"])
    are_unique = len(set(numbers)) == len(numbers) and len(set(ranks)) == 1
    return [
        f"{'device' if on_device else 'host'} of rank {rank}"
        if number is None
        else number
        if are_unique
        else position
        for position, (number, rank, on_device) in enumerate(
            zip(numbers, ranks, places["on_device"], strict=True), 1
        )
    ]


def _names(events: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield metadata events that name all processes, devices, threads and streams. Each rank's host
    is above its devices.
    """
    places = events.drop_duplicates("pid").sort_values(["rank", "on_device", "number"])
    for order, row in enumerate(places.itertuples()):
        name = (
            f"{'GPU' if row.on_device else 'process'} {'' if pd.isna(row.number) else row.number}"
        )
        facts = {
            "name": name if pd.isna(row.rank) else f"rank {row.rank}: {name}",
            "labels": "GPU" if row.on_device else "CPU",
            "sort_index": order,
        }
        for key, value in facts.items():
            yield {"ph": "M", "name": f"process_{key}", "pid": row.pid, "args": {key: value}}
    for row in events.drop_duplicates(["pid", "tid"]).itertuples():
        name = f"{'stream' if row.on_device else 'thread'} {row.tid}"
        place = {"pid": row.pid, "tid": row.tid}
        yield {"ph": "M", "name": "thread_name", **place, "args": {"name": name}}


def _events(events: pd.DataFrame, base_ns: int, stated: bool) -> Iterator[dict[str, Any]]:
    """Yield every event as a complete event (phase X).

    - stated: True if the categories of the file are torch.profiler's.
    """
    is_mark = events["on_device"] & (events["kind"] == "annotation")
    categories = events["kind"].astype(str).map(_CATEGORIES).mask(is_mark, "gpu_user_annotation")
    if stated:
        categories = events["source_category"]
    events = events.assign(category=categories)
    if (events["pid"] == events["number"]).all():
        events = events.drop(columns=["rank", "number"])  # the trace's members state the rank
    known = [name for name in (*_NUMBERS, *_LISTS) if name in events]
    members = [(_NUMBERS | _LISTS)[name] for name in known]
    columns = ("category", "name", "pid", "tid", "start_ns", "duration_ns")
    for first in range(0, len(events), _AT_ONCE):
        chunk = events.iloc[first : first + _AT_ONCE]
        arguments = zip(*(_values(chunk[name]) for name in known), strict=True)
        rows = zip(*(_plain(chunk[name]) for name in columns), strict=True)
        for (category, name, pid, tid, start, duration), values in zip(
            rows, arguments, strict=True
        ):
            args = {
                member: value
                for member, value in zip(members, values, strict=True)
                if value is not None
            }
            times = {"ts": (start - base_ns) / 1000, "dur": duration / 1000}
            place = {"pid": pid, "tid": tid}
            yield {"ph": "X", "cat": category, "name": name or "", **place, **times, "args": args}


def _samples(counters: pd.DataFrame, base_ns: int) -> Iterator[dict[str, Any]]:
    """Yield every sample as a counter event (phase C).

    NaN and infinity are left out because JSON doesn't support them.
    """
    for row in counters[np.isfinite(counters["value"])].itertuples():
        owner = "the host" if pd.isna(row.device) else f"device {row.device}"
        yield {
            "ph": "C",
            "cat": "counter",
            "name": row.name,
            "pid": f"counters of {owner}",
            "ts": (row.time_ns - base_ns) / 1000,
            "args": {"value" if pd.isna(row.unit) else row.unit: row.value},
        }


def _arrows(events: pd.DataFrame, base_ns: int) -> Iterator[dict[str, Any]]:
    """Yield two flow events (phases s and f) for each device event whose launching call is among
    the events.
    """
    launched, call = launching_calls(events)
    places = [_plain(events[name]) for name in ("pid", "tid", "start_ns")]
    for number, pair in enumerate(zip(call.tolist(), launched.tolist(), strict=True), 1):
        for phase, row in zip(({"ph": "s"}, {"ph": "f", "bp": "e"}), pair, strict=True):
            pid, tid, start = (column[row] for column in places)
            place = {"pid": pid, "tid": tid, "ts": (start - base_ns) / 1000}
            yield {**phase, "cat": "ac2g", "name": "ac2g", "id": number, **place}


def _plain(values: pd.Series) -> list[Any]:
    """Return the values as plain objects, with None for missing values."""
    return values.to_numpy(dtype=object, na_value=None).tolist()


def _values(column: pd.Series) -> list[Any]:
    """Return an argument of each event. Lists are already JSON."""
    if column.name not in _LISTS:
        return _plain(column)
    return [text and msgspec.Raw(text.encode()) for text in _plain(column)]
