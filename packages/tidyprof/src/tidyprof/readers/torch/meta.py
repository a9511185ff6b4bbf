"""Metadata in a torch.profiler trace about the tool, the machine and the ranks, with warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.tables.contract import MARK, NOT_STATED, ORIGIN_KINDS, Origin, stated_origin

LATEST_BASE_NS = 2**61
"""Base times at or after this time, which is in the year 2043, are treated as damage."""

_VERSION_KEYS = {
    "roctracer_version": ("rocm-roctracer", "roctracer"),
    "rocprofiler-sdk_version": ("rocm-sdk", "rocprofiler-sdk"),
    "cupti_version": ("cuda", "CUPTI"),
}
_NUMBERING = {"rocm-roctracer": "agent", "rocm-sdk": "index", "cuda": "index", "xpu": "index"}
_COPIED = {
    "host": ("host_name", str),
    "device_properties": ("deviceProperties", list),
    "distributed": ("distributedInfo", dict),
}
"""Entries of `Profile.meta` that are copied: their names and types in the file."""

_NO_GPU_EVENTS = {
    "rocm-roctracer": (
        "ROCTracer in ROCm 7.2.1, or its copy in a torch wheel, can lose all kernel records"
    ),
    "rocm-sdk": "HIP was used before the profiler was registered (in Kineto before April 2026)",
}


KEY = "watch_parts"
"""Key under which the code block in snippets/14_instrument_me.py stores one list per part of a
step. The list contains the part's name, its start in nanoseconds since 1970, its length, and its
time on a CPU. If the system reports it, the list also contains the time spent waiting for a CPU.
All times are in nanoseconds.
"""

UNTRACED_KEY, MACHINE_KEY = "watch_untraced", "watch_machine"
"""Keys under which the code block stores the result of `untraced` and the strings that describe the
machine: host, gpu, torch and rocm.
"""

LONGEST_NS = 10**15
"""Maximum step time in nanoseconds, which is about eleven days."""

ROUNDED = 1.05
"""Maximum ratio between the sum of a step's parts and the step time. The ratio can exceed 1 because
the clocks are read at different times.
"""


_Time = (
    Annotated[int, msgspec.Meta(ge=0, lt=LONGEST_NS)]
    | Annotated[float, msgspec.Meta(ge=0, lt=LONGEST_NS)]
)
_Moment = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Content = TypeVar("Content")


_BaseTime = Annotated[int, msgspec.Meta(ge=0, lt=LATEST_BASE_NS)]
_HipVersion = Annotated[int, msgspec.Meta(ge=10**7)]


class _Distributed(msgspec.Struct):
    rank: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None


class _Untraced(msgspec.Struct):
    steps: _Time
    step_ns: _Time
    parts_ns: dict[str, _Time]
    long: Any = None


class _LongSteps(msgspec.Struct):
    """Times that the hooks of `tidyprof run` write (running/inside/recorder.py)."""

    ns: _Time
    of_ns: _Time


class _WatchPart(NamedTuple):
    name: str
    start: _Moment
    length: _Moment
    processor_time: _Moment
    processor_queue: _Moment | None = None


def _stated(value: Any, content: type[Content]) -> Content | None:
    """Return a value of the file as this type, or None if it doesn't match the type."""
    try:
        return msgspec.convert(value, content)
    except msgspec.ValidationError:
        return None


def base_time(metadata: dict[str, Any], path: Path) -> int:
    """Return the file's base time in nanoseconds since 1970. The base time is 0 for older files,
    because their times are absolute.

    Raises ProfileReadError if the file contains an invalid base time.
    """
    text = metadata.get("baseTimeNanoseconds", 0)
    stated = _stated(text, _BaseTime)
    if stated is None:
        raise ProfileReadError(
            path,
            f"baseTimeNanoseconds is {str(text)[:30]!r}, which isn't a time since 1970",
            "another tool changed the trace",
            "pass the original file from torch.profiler",
        )
    return stated


def back_end(
    metadata: dict[str, Any], categories: Iterable[str | None], calls: Iterable[str]
) -> str | None:
    """Return the profiling library that recorded the device, or None if it is unknown.

    The result is `rocm-roctracer`, `rocm-sdk`, `rocm`, `cuda`, `xpu` or `cpu`. It is `rocm` if the
    trace could come from either ROCm library, and `cpu` if the trace has no device data.

    - categories: categories of all events
    - calls: names of all runtime calls
    """
    for key, (dialect, _) in _VERSION_KEYS.items():
        if key in metadata:
            return dialect
    calls = tuple(calls)
    if any(call.startswith("hip") for call in calls):
        # rocprofiler-sdk always writes its version, but early roctracer back ends don't. A fused
        # file loses the key.
        return "rocm-roctracer" if "deviceProperties" in metadata else "rocm"
    if any(re.match(r"cu(da)?[A-Z]", call) for call in calls):
        return "cuda"
    present = [category for category in categories if category]
    if any(category.startswith("xpu_") for category in present):
        return "xpu"
    has_device = any(re.match(r"gpu_|kernel$|collective_comm$", category) for category in present)
    return None if has_device else "cpu"


def facts(metadata: dict[str, Any], dialect: str | None) -> dict[str, Any]:
    """Return the `Profile.meta` entries about the tool and the machine from one file. Unknown
    entries are omitted.
    """
    origin = stated_origin(metadata.get(MARK))
    version = hip_version(metadata.get("hip_runtime_version"))
    copied = {
        name: metadata[key]
        for name, (key, kind) in _COPIED.items()
        if isinstance(metadata.get(key), kind)
    }
    entries = {
        "tool": "torch.profiler",
        "origin": origin or _origin_before_conversion(metadata.get("converted_from")),
        "backend": dialect,
        "device_numbering": _NUMBERING.get(dialect or ""),
        "gpu": ", ".join(_gpu_names(copied.get("device_properties", []))),
        "hip_runtime_version": version,
        "rocm": version and version.rpartition(".")[0],
        **copied,
    }
    for key, (_, library) in _VERSION_KEYS.items():
        if key in metadata:
            entries["tool_version"] = f"{library} {metadata[key]}"
    entries = {key: value for key, value in entries.items() if value}
    # The profiler's facts take precedence over facts from the script.
    entries = _machine(metadata.get(MACHINE_KEY)) | entries
    world_size = entries.get("distributed", {}).get("world_size")
    return entries | ({"world_size": world_size} if isinstance(world_size, int) else {})


def _origin_before_conversion(source: Any) -> Origin | None:
    text = source.get("origin") if isinstance(source, dict) else None
    if not isinstance(text, str) or text == str(NOT_STATED):
        return None
    kind, _, detail = text.partition(": ")
    return Origin(kind, " ".join(detail.split())) if kind in ORIGIN_KINDS else None


def _gpu_names(properties: list[Any]) -> list[str]:
    names = [device.get("name") for device in properties if isinstance(device, dict)]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def hip_version(number: Any) -> str | None:
    """Return the HIP version, such as `6.4.43483` for 60443483. The number is major * 10^7 + minor
    * 10^5 + patch (HIP_VERSION in hip/hip_version.h).

    The major and minor version are the same as in the ROCm release that contains the HIP runtime.
    """
    known = _stated(number, _HipVersion)
    if known is None:
        return None
    return f"{known // 10**7}.{known // 10**5 % 100}.{known % 10**5}"


def stated_rank(metadata: dict[str, Any]) -> int | None:
    """Return the rank from the distributedInfo of a file that one process wrote."""
    distributed = _stated(metadata.get("distributedInfo"), _Distributed)
    return distributed.rank if distributed else None


def missing_gpu_warning(path: Path, dialect: str | None) -> list[str]:
    """Return a warning about missing GPU events if the profiler supports devices. The caller checks
    whether there are any device events.
    """
    if dialect in (None, "cpu"):
        return []
    cause = _NO_GPU_EVENTS.get(dialect, "activity on the device was not recorded")
    return [
        f"{path.name}: the trace has no GPU events, although the profiler had a GPU back end"
        f" ({dialect}). Likely cause: {cause}, or the profiler was set to record only CPU activity."
    ]


def untraced(metadata: dict[str, Any]) -> dict[str, Any] | None:
    """Return the times that the script measured without a profiler just before it started the
    trace. Return None if the file has no valid times.

    - steps: number of timed steps
    - step_ns: mean step time. The script waits for the device before the first step and after the
      last step.
    - parts_ns: mean host time per step for each part of a step
    - long_share: share (0 to 1) of the total step time that is in single long steps. The means
      exclude these steps. The share is 0 if unknown.
    """
    stated = _stated(metadata.get(UNTRACED_KEY), _Untraced)
    if stated is None or min(stated.steps, stated.step_ns) < 1:
        return None
    if sum(stated.parts_ns.values()) > ROUNDED * stated.step_ns:
        return None
    long = _stated(stated.long, _LongSteps)
    return {
        "steps": int(stated.steps),
        "step_ns": float(stated.step_ns),
        "parts_ns": stated.parts_ns,
        "long_share": min(1.0, long.ns / long.of_ns) if long and long.of_ns else 0.0,
    }


def _machine(stated: Any) -> dict[str, str]:
    known = _stated(stated, dict[str, str | None]) or {}
    version = re.match(r"\d+\.\d+", known.get("rocm") or "")
    found = {name: known.get(name) for name in ("host", "gpu", "torch")}
    return {name: text for name, text in (found | {"rocm": version and version[0]}).items() if text}


def watch_tables(metadata: dict[str, Any], rank: int | None) -> list[pd.DataFrame]:
    """Return the samples `processor_queue` from a trace of this rank: the time that a thread spent
    waiting for a CPU. Each value applies to the time interval that starts at `time_ns` and lasts
    `duration_ns`. Return an empty list if the file has no valid samples.
    """
    parts = _stated(metadata.get(KEY), list[_WatchPart]) or []
    known = [part for part in parts if part.processor_queue is not None]
    if not known:
        return []
    columns = {
        "time_ns": [part.start for part in known],
        "duration_ns": [part.length for part in known],
        "value": [part.processor_queue for part in known],
        "name": "processor_queue",
        "unit": "ns",
    }
    return [pd.DataFrame(columns | ({} if rank is None else {"rank": rank}))]
