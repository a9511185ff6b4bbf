"""Facts that a torch.profiler trace states about itself: tool, machine, ranks, and warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.tables.contract import MARK, NOT_STATED, ORIGIN_KINDS, Origin, stated_origin

LATEST_BASE_NS = 2**61
"""Base times from this one on (year 2043) are damage."""

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
        "ROCTracer of ROCm 7.2.1, or its copy in a wheel of torch, can lose all kernel records"
    ),
    "rocm-sdk": "HIP was in use before the profiler registered (Kineto of before April 2026)",
}


def base_time(metadata: dict[str, Any], path: Path) -> int:
    """The time, in ns since 1970, from which the file's times count; 0 in older files, whose times
    count from 1970.

    Raises ProfileReadError if the file states something else than such a time.
    """
    stated = metadata.get("baseTimeNanoseconds", 0)
    if isinstance(stated, bool) or not isinstance(stated, int) or not 0 <= stated < LATEST_BASE_NS:
        raise ProfileReadError(
            path,
            f"baseTimeNanoseconds is {str(stated)[:30]!r}, which is no time since 1970",
            "another tool changed the trace",
            "pass the file as torch.profiler wrote it",
        )
    return stated


def back_end(
    metadata: dict[str, Any], categories: Iterable[str | None], calls: Iterable[str]
) -> str | None:
    """The profiling library that recorded the device, None where the file leaves that open.

    One of `rocm-roctracer`, `rocm-sdk`, `rocm` (either), `cuda`, `xpu`, `cpu` (nothing of a
    device).
    categories, calls -- categories of all events, names of all runtime calls.
    """
    for key, (dialect, _) in _VERSION_KEYS.items():
        if key in metadata:
            return dialect
    calls = tuple(calls)
    if any(call.startswith("hip") for call in calls):
        # rocprofiler-sdk always states its version, early roctracer back ends did not; a fused file
        # lost the key.
        return "rocm-roctracer" if "deviceProperties" in metadata else "rocm"
    if any(re.match(r"cu(da)?[A-Z]", call) for call in calls):
        return "cuda"
    present = [category for category in categories if category]
    if any(category.startswith("xpu_") for category in present):
        return "xpu"
    has_device = any(re.match(r"gpu_|kernel$|collective_comm$", category) for category in present)
    return None if has_device else "cpu"


def facts(metadata: dict[str, Any], dialect: str | None) -> dict[str, Any]:
    """Entries of `Profile.meta` that one file states about tool and machine; what it does not state
    is absent.
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
    # Facts of the profiler come before those that the script noted.
    entries |= {key: text for key, text in _machine(metadata).items() if key not in entries}
    options = {option: bool(metadata[option]) for option in _OPTIONS if option in metadata}
    if options:
        entries["options"] = options
    world_size = (entries.get("distributed") or {}).get("world_size")
    return entries | {"world_size": world_size} if isinstance(world_size, int) else entries


def _origin_before_conversion(source: Any) -> Origin | None:
    """The origin that `write_chrome_trace` wrote into `converted_from`; None where there is none,
    or where it was not stated.
    """
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
    """Distinct names of the visible devices; containers can leave them empty."""
    if not isinstance(properties, list):
        return []
    names = [device.get("name") for device in properties if isinstance(device, dict)]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def hip_version(number: Any) -> str | None:
    """`6.4.43483` of 60443483: major * 10^7 + minor * 10^5 + patch (HIP_VERSION in
    hip/hip_version.h).

    Major and minor are those of the ROCm release that the HIP runtime belongs to.
    """
    if isinstance(number, bool) or not isinstance(number, int) or number < 10**7:
        return None
    return f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"


def stated_rank(metadata: dict[str, Any]) -> int | None:
    """The rank that a file of one process states in its distributedInfo."""
    distributed = metadata.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    if isinstance(rank, int) and not isinstance(rank, bool) and 0 <= rank < 2**31:
        return rank
    return None


def missing_gpu_warning(path: Path, dialect: str | None) -> str | None:
    """A warning for a file without any event on a device, although its profiler could record
    them.
    """
    if dialect in (None, "cpu"):
        return None
    cause = _NO_GPU_EVENTS.get(dialect, "the device's activity was not recorded")
    return (
        f"{path.name}: no event on a GPU, although the profiler had a back end for one ({dialect})."
        f" Likely cause: {cause}, or the profiler was asked for CPU activity only."
    )


KEY = "watch_parts"
"""The key under which the block of snippets/14_instrument_me.py keeps a list for each part of a
step: name, begin (ns since 1970), length, time on a processor and, where the system states it, time
in line for a processor, in ns.
"""

UNTRACED_KEY, MACHINE_KEY = "watch_untraced", "watch_machine"
"""The keys under which it keeps what `untraced` returns, and its machine: host, gpu, torch, rocm,
as texts.
"""

LONGEST_NS = 10**15
"""No step takes eleven days."""

ROUNDED = 1.05
"""So many times the step at most may its parts take together: their clocks are read at other
moments.
"""


def untraced(metadata: dict[str, Any]) -> dict[str, Any] | None:
    """The times that the script took without a profiler right before it recorded; None where the
    file states nothing sound.

    steps      -- how many were timed.
    step_ns    -- mean ns of a step; the device was waited for before the first and after the last.
    parts_ns   -- part -> mean ns of the host in it in one step.
    long_share -- share (0 to 1) of the time of all steps that single long steps took, which are
                  left out of the means; 0 where the file states none.
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
    """The share of long steps (0 to 1), from the times that the hooks of `tidyprof run` state
    (running/inside/recorder.py).
    """
    numbers = [stated.get(key) for key in ("ns", "of_ns")] if isinstance(stated, dict) else []
    if not numbers or not all(
        type(number) in (int, float) and 0 <= number < LONGEST_NS for number in numbers
    ):
        return 0.0
    return min(1.0, numbers[0] / numbers[1]) if numbers[1] else 0.0


def _machine(metadata: dict[str, Any]) -> dict[str, str]:
    """The facts that the script states about the machine, by the names of `Profile.meta`."""
    stated = metadata.get(MACHINE_KEY)
    names = ("host", "gpu", "torch") if isinstance(stated, dict) else ()
    found = {
        name: stated[name] for name in names if isinstance(stated.get(name), str) and stated[name]
    }
    if names and (version := re.match(r"\d+\.\d+", str(stated.get("rocm") or ""))):
        found["rocm"] = version[0]
    return found


NAMES = ("processor_time", "processor_queue")
"""Names in `Profile.counters`: how much of the time from time_ns on, duration_ns long, the thread
spent on a processor, and in line for one.
"""


def watch_tables(metadata: dict[str, Any], rank: int | None) -> list[pd.DataFrame]:
    """The samples of a trace of this rank, a table for each of NAMES; no table where the file
    states no sound samples.
    """
    stated = metadata.get(KEY)
    parts = [part for part in stated if _is_sound(part)] if isinstance(stated, list) else []
    tables = []
    for index, name in enumerate(NAMES):
        # The second time is missing where the system does not state it.
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
    """Whether this is a list as explained at KEY."""
    if not isinstance(part, list) or not 4 <= len(part) <= 5 or not isinstance(part[0], str):
        return False
    return all(
        isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**62
        for number in part[1:]
    )
