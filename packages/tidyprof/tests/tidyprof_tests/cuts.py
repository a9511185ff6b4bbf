"""What is left of a recording where something was not recorded: cuts of a Chrome trace, and of any
profile.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidyprof import Profile

Events = list[dict[str, Any]]

RANGES = ("user_annotation", "gpu_user_annotation")
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "collective_comm", "gpu_user_annotation")
STEP = "ProfilerStep#"


def decoded(path: Path) -> dict[str, Any]:
    """A Chrome trace; its events are in "traceEvents"."""
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)


def category(event: dict[str, Any]) -> str:
    return event.get("cat") or ""


def is_call(event: dict[str, Any]) -> bool:
    return category(event).endswith(("_runtime", "_driver", "_sync"))


def without(*categories: str) -> Callable[[Events], Events]:
    return lambda events: [event for event in events if category(event) not in categories]


def without_calls(events: Events) -> Events:
    return [event for event in events if not is_call(event)]


def begin_and_end(events: Events) -> tuple[float, float]:
    """The first begin and the last end of complete events, in µs."""
    timed = [event for event in events if event.get("ph") == "X"]
    return min(float(one["ts"]) for one in timed), max(
        float(one["ts"]) + float(one["dur"]) for one in timed
    )


def steps_of(events: Events) -> Events:
    """The profiler's steps in order, those of the first thread that has them; else four made
    ones.
    """
    found = [
        one for one in events if category(one) == "user_annotation" and one["name"].startswith(STEP)
    ]
    if len({one["name"] for one in found}) > 2:
        found.sort(key=lambda one: float(one["ts"]))
        return [one for one in found if one["tid"] == found[0]["tid"]]
    begin, end = begin_and_end(events)
    host = [one for one in events if one.get("ph") == "X" and category(one) not in ON_DEVICE]
    place = {key: host[0][key] if host else 1 for key in ("pid", "tid")}
    length = (end - begin) / 6
    made = {"ph": "X", "cat": "user_annotation", **place, "dur": length}
    return [{**made, "name": f"{STEP}{i}", "ts": begin + i * length} for i in range(4)]


def uneven_steps(events: Events) -> Events:
    """Of the ranges only the profiler's steps, the last of them 3 times as long."""
    *others, last = steps_of(events)
    return [*without(*RANGES)(events), *others, {**last, "dur": 3 * float(last["dur"])}]


def one_step(events: Events) -> Events:
    first = steps_of(events)[0]
    begin, end = float(first["ts"]), float(first["ts"]) + float(first["dur"])
    return [
        event for event in events if event.get("ph") != "X" or begin <= float(event["ts"]) < end
    ]


def one_kernel(events: Events) -> Events:
    first = next((event for event in events if category(event) == "kernel"), None)
    return [event for event in events if category(event) not in ON_DEVICE or event is first]


CUTS_OF_TRACES: dict[str, Callable[[Events], Events]] = {
    "without annotations": without(*RANGES),
    "uneven steps": uneven_steps,
    "without operators": without("cpu_op"),
    "without calls": without_calls,
    "one step": one_step,
    "one kernel": one_kernel,
    "host alone": lambda events: without_calls(without(*ON_DEVICE)(events)),
    "device alone": lambda events: [event for event in events if category(event) in ON_DEVICE],
    "calls, but no device": without(*ON_DEVICE),
    "ranges alone": lambda events: [event for event in events if category(event) in RANGES],
}
"""Name of a cut -> what it keeps of the events of a trace."""


def cut_traces(files: Sequence[Path], folder: Path) -> Iterator[tuple[str, Path]]:
    """Name and path of each cut: of a trace, or of a folder with one of each rank, of which the
    last one is cut.
    """
    *whole, last = files
    trace = decoded(last)
    for name, cut in CUTS_OF_TRACES.items():
        target = folder / name.replace(" ", "_")
        target.mkdir()
        for file in whole:
            (target / file.name).symlink_to(file)
        written = target / last.name.removesuffix(".gz")
        written.write_text(json.dumps({**trace, "traceEvents": cut(trace["traceEvents"])}))
        yield name, target if whole else written


def cut_profiles(profile: Profile) -> Iterator[tuple[str, Profile]]:
    """Name and profile of each cut: without one kind of events, with no other, with one event of
    it, and so on.
    """
    kinds = profile.events["kind"].astype(str)
    for kind in kinds.unique():
        yield f"without {kind}", replace(profile, events=profile.events[kinds != kind])
        yield f"{kind} alone", replace(profile, events=profile.events[kinds == kind])
        yield f"one {kind}", replace(profile, events=profile.events[kinds == kind].head(1))
    yield "without events", replace(profile, events=profile.events.head(0))
    if len(profile.counters):
        yield "without counters", replace(profile, counters=profile.counters.head(0))
        yield "one sample", replace(profile, counters=profile.counters.head(1))
