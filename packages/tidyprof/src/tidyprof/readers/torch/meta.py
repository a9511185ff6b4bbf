"""Metadata in a torch.profiler trace about the tool, the machine and the ranks, with warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
_OPTIONS = ("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
_COPIED = {"trace_id": str, "host_name": str, "deviceProperties": list, "distributedInfo": dict}
_NO_GPU_EVENTS = {
    "rocm-roctracer": (
        "ROCTracer in ROCm 7.2.1, or its copy in a torch wheel, can lose all kernel records"
    ),
    "rocm-sdk": "HIP was used before the profiler was registered (in Kineto before April 2026)",
}


def base_time(metadata: dict[str, Any], path: Path) -> int:
    """Return the file's base time in nanoseconds since 1970. The base time is 0 for older files,
    because their times are absolute.

    Raises ProfileReadError if the file contains an invalid base time.
    """
    stated = metadata.get("baseTimeNanoseconds", 0)
    if isinstance(stated, bool) or not isinstance(stated, int) or not 0 <= stated < LATEST_BASE_NS:
        raise ProfileReadError(
            path,
            f"baseTimeNanoseconds is {str(stated)[:30]!r}, which isn't a time since 1970",
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
    entries: dict[str, Any] = {"tool": "torch.profiler"}
    before = _origin_before_conversion(metadata.get("converted_from"))
    if origin := stated_origin(metadata.get(MARK)) or before:
        entries["origin"] = origin
    if dialect:
        entries["backend"] = dialect
    if dialect in _NUMBERING:
        entries["device_numbering"] = _NUMBERING[dialect]
    for key, (_, library) in _VERSION_KEYS.items():
        if key in metadata:
            entries["tool_version"] = f"{library} {metadata[key]}"
    names = _gpu_names(metadata.get("deviceProperties"))
    if names:
        entries["gpu"] = ", ".join(names)
    version = hip_version(metadata.get("hip_runtime_version"))
    if version:
        entries |= {"hip_runtime_version": version, "rocm": version.rpartition(".")[0]}
    for key, kind in _COPIED.items():
        if isinstance(metadata.get(key), kind) and metadata[key]:
            entries[_renamed(key)] = metadata[key]
    # The profiler's facts take precedence over facts from the script.
    entries |= {key: text for key, text in _machine(metadata).items() if key not in entries}
    options = {option: bool(metadata[option]) for option in _OPTIONS if option in metadata}
    if options:
        entries["options"] = options
    world_size = (entries.get("distributed") or {}).get("world_size")
    return entries | {"world_size": world_size} if isinstance(world_size, int) else entries


def _origin_before_conversion(source: Any) -> Origin | None:
    text = source.get("origin") if isinstance(source, dict) else None
    if not isinstance(text, str) or text == str(NOT_STATED):
        return None
    kind, _, detail = text.partition(": ")
    return Origin(kind, " ".join(detail.split())) if kind in ORIGIN_KINDS else None


def _renamed(key: str) -> str:
    return {
        "deviceProperties": "device_properties",
        "distributedInfo": "distributed",
        "host_name": "host",
    }.get(key, key)


def _gpu_names(properties: Any) -> list[str]:
    if not isinstance(properties, list):
        return []
    names = [device.get("name") for device in properties if isinstance(device, dict)]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def hip_version(number: Any) -> str | None:
    """Return the HIP version, such as `6.4.43483` for 60443483. The number is major * 10^7 + minor
    * 10^5 + patch (HIP_VERSION in hip/hip_version.h).

    The major and minor version are the same as in the ROCm release that contains the HIP runtime.
    """
    if isinstance(number, bool) or not isinstance(number, int) or number < 10**7:
        return None
    return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"


def stated_rank(metadata: dict[str, Any]) -> int | None:
    """Return the rank from the distributedInfo of a file that one process wrote."""
    distributed = metadata.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 2**31:
        return rank
    return None


def missing_gpu_warning(path: Path, dialect: str | None) -> str | None:
    """Return a warning about missing GPU events if the profiler supports devices. The caller checks
    whether there are any device events.
    """
    if dialect in (None, "cpu"):
        return None
    cause = _NO_GPU_EVENTS.get(dialect, "activity on the device was not recorded")
    return (
        f"{path.name}: the trace has no GPU events, although the profiler had a GPU back end"
        f" ({dialect}). Likely cause: {cause}, or the profiler was set to record only CPU activity."
    )


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
    stated = metadata.get(UNTRACED_KEY)
    if not isinstance(stated, dict) or not isinstance(stated.get("parts_ns"), dict):
        return None
    parts = stated["parts_ns"]
    numbers = [stated.get("steps"), stated.get("step_ns"), *parts.values()]
    sound = all(
        isinstance(number, int | float)
        and not isinstance(number, bool)
        and 0 <= number < LONGEST_NS
        for number in numbers
    )
    if not sound or stated["steps"] < 1 or stated["step_ns"] < 1:
        return None
    if sum(parts.values()) > ROUNDED * stated["step_ns"]:
        return None
    known = {"steps": int(stated["steps"]), "step_ns": float(stated["step_ns"]), "parts_ns": parts}
    return known | {"long_share": _long_share(stated.get("long"))}


def _long_share(stated: Any) -> float:
    """Return the share (0 to 1) of the total time that is in long steps. The share is computed from
    times that the hooks of `tidyprof run` write (running/inside/recorder.py).
    """
    numbers = [stated.get(key) for key in ("ns", "of_ns")] if isinstance(stated, dict) else []
    if not numbers or not all(
        type(number) in (int, float) and 0 <= number < LONGEST_NS for number in numbers
    ):
        return 0.0
    return min(1.0, numbers[0] / numbers[1]) if numbers[1] else 0.0


def _machine(metadata: dict[str, Any]) -> dict[str, str]:
    stated = metadata.get(MACHINE_KEY)
    names = ("host", "gpu", "torch") if isinstance(stated, dict) else ()
    found = {
        name: stated[name] for name in names if isinstance(stated.get(name), str) and stated[name]
    }
    if names and (version := re.match(r"\d+\.\d+", str(stated.get("rocm") or ""))):
        found["rocm"] = version[0]
    return found


NAMES = ("processor_time", "processor_queue")
"""Names in `Profile.counters` for the time that a thread spends on a CPU and the time that it
spends waiting for a CPU. Each value applies to the time interval that starts at `time_ns` and lasts
`duration_ns`.
"""


def watch_tables(metadata: dict[str, Any], rank: int | None) -> list[pd.DataFrame]:
    """Return the samples from a trace of this rank. Each name in NAMES has its own table. Return an
    empty list if the file has no valid samples.
    """
    stated = metadata.get(KEY)
    parts = [part for part in stated if _is_sound(part)] if isinstance(stated, list) else []
    tables = []
    for index, name in enumerate(NAMES):
        # The second time is missing if the system doesn't report it.
        rows = [
            (begin, length, times[index])
            for _, begin, length, *times in parts
            if len(times) > index
        ]
        if rows:
            table = pd.DataFrame(rows, columns=["time_ns", "duration_ns", "value"], dtype="int64")
            tables.append(
                table.assign(name=name, unit="ns", **({} if rank is None else {"rank": rank}))
            )
    return tables


def _is_sound(part: Any) -> bool:
    """Return True if the part is a list in the format that KEY describes."""
    if not isinstance(part, list) or not 4 <= len(part) <= 5 or not isinstance(part[0], str):
        return False
    return all(
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**62
        for number in part[1:]
    )
