"""Export of any Profile as a Chrome trace for Perfetto (https://ui.perfetto.dev) and
chrome://tracing.

The output uses Google's Trace Event Format
(https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU). The output
follows torch.profiler's dialect, so `read_torch_trace` can read the file again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pandas as pd
from isal import igzip

from tidyprof.atomic_write import whole_file
from tidyprof.export.chrome_events import counter_lines, event_lines, flow_lines
from tidyprof.export.chrome_tracks import Tracks, find_tracks
from tidyprof.readers.torch.meta import LATEST_BASE_NS
from tidyprof.tables.contract import MARK, MODELED, Profile

_BEFORE_FIRST_NS = 1_000
"""Time between the base time and the first event, in nanoseconds. In torch.profiler's dialect, a
start of 0 means that the time was lost.
"""

_VERSION_KEYS = {
    "roctracer": "roctracer_version",
    "rocprofiler-sdk": "rocprofiler-sdk_version",
    "CUPTI": "cupti_version",
}
_STATED = ("tool", "tool_version", "gpu", "rocm", "torch", "host", "files")


@dataclass(frozen=True)
class Written:
    """The number of events, counter samples and launch flows in a trace.

    `shift_ns` was added to all times because the dialect doesn't allow times at or before zero. If
    no shift was necessary, `shift_ns` is 0.
    """

    events: int
    samples: int
    flows: int
    shift_ns: int


def write_chrome_trace(profile: Profile, path: str | PathLike[str]) -> Written:
    """Write the profile to a file whose name ends in .json or .json.gz.

    The new file replaces an existing file only when it is complete. Processes, threads, devices and
    streams have names in the trace. Times are in microseconds with three decimal places, so every
    nanosecond is preserved. Counters become counter tracks. Flow arrows lead from each runtime call
    to the device events with the same correlation id.

    The member `converted_from` contains the tool that wrote the profile, and the profile's origin.
    A modeled profile also contains the marker that readers recognize. Raises ValueError for any
    other file extension, and OSError if the file can't be written.
    """
    path = Path(path)
    check_name(path)
    base, shift = _base_time(profile)
    tracks = find_tracks(profile)
    with _replacing(path) as file:
        members = {
            key: value for key, value in _header(profile, base, shift).items() if value is not None
        }
        # The list comes last, so that a reader has all other members when it reaches the events.
        file.write(msgspec.json.encode(members)[:-1] + b',"traceEvents":[\n')
        written = _write_events(file, profile, tracks, base)
        file.write(b"\n]}\n")
    return Written(*written, shift_ns=shift)


def check_name(path: str | PathLike[str]) -> None:
    """Raise ValueError if `write_chrome_trace` doesn't support this file name."""
    if not Path(path).name.endswith((".json", ".json.gz")):
        raise ValueError(f"{path}: the name of a Chrome trace must end in .json or .json.gz")


def _write_events(
    file: BinaryIO, profile: Profile, tracks: Tracks, base: int
) -> tuple[int, int, int]:
    """Write all lines, and return the number of events, samples and flows."""
    counts = []
    separator = b""
    for lines in (
        [tracks.naming_lines()],
        event_lines(profile.events, tracks, base),
        counter_lines(profile.counters, tracks, base),
        flow_lines(profile.events, tracks, base),
    ):
        count = 0
        for chunk in lines:
            if chunk:
                file.write(separator + ",\n".join(chunk).encode("utf-8", "surrogateescape"))
                separator = b",\n"
                count += len(chunk)
        counts.append(count)
    _, events, samples, flow_ends = counts
    return events, samples, flow_ends // 2


def _base_time(profile: Profile) -> tuple[int, int]:
    """Return the trace's base time in nanoseconds, and the shift that prevents negative times."""
    times = (profile.events["start_ns"], profile.counters["time_ns"])
    if not any(map(len, times)):
        return 0, 0
    first = min(int(column.min()) for column in times if len(column))
    stated = profile.meta.get("base_time_ns", 0)
    if 0 < stated < first:
        return stated, 0
    # `read_torch_trace` treats a base after LATEST_BASE_NS as damage.
    base = min(first - _BEFORE_FIRST_NS, LATEST_BASE_NS - 1)
    return (max(base, 0), 0) if first > 0 else (base, -base)


def _header(profile: Profile, base: int, shift: int) -> dict[str, Any]:
    """Return the members next to the events, which are the known torch.profiler members and the
    origin.
    """
    meta = profile.meta
    ranks = profile.events["rank"].unique()
    of_one = len(ranks) == 1 and not pd.isna(ranks[0])
    distributed = {**meta.get("distributed", {}), "rank": int(ranks[0])} if of_one else None
    source = {key: meta[key] for key in _STATED if key in meta}
    source |= {"origin": str(profile.origin)} | ({"shift_ns": shift} if shift else {})
    mark = {MARK: {"error": profile.origin.detail}} if profile.origin.kind == MODELED else {}
    return {
        "schemaVersion": 1,
        "displayTimeUnit": "ns",
        "deviceProperties": meta.get("device_properties"),
        "distributedInfo": distributed,
        "hip_runtime_version": _hip_number(meta.get("hip_runtime_version")),
        **_library_version(str(meta.get("tool_version", ""))),
        "baseTimeNanoseconds": base + shift,
        "converted_from": source,
        **mark,
    }


def _library_version(text: str) -> dict[str, Any]:
    """Convert a version such as `roctracer 4.1` to the corresponding member of torch.profiler's
    traces.
    """
    library, _, version = text.rpartition(" ")
    if library not in _VERSION_KEYS:
        return {}
    try:
        return {_VERSION_KEYS[library]: float(version)}
    except ValueError:
        return {_VERSION_KEYS[library]: version}


def _hip_number(version: str | None) -> int | None:
    """Convert a version such as `6.4.43483` to a number such as 60443483 (see `HIP_VERSION` in
    hip/hip_version.h).
    """
    if not version:
        return None
    major, minor, patch = map(int, version.split("."))
    return major * 10**7 + minor * 10**5 + patch


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that replaces `path` when it is complete. If the name ends in .gz, the file is
    compressed.
    """
    with whole_file(path) as partial, partial.open("wb") as raw:
        if path.name.endswith(".gz"):
            # The header contains neither a name nor a time, so the same profile results in the same
            # bytes.
            with igzip.IGzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as file:
                yield file
        else:
            yield raw
