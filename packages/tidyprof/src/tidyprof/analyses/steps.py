"""Training steps and their phases, based on the ranges that the training script marked."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    COLUMNS,
    Events,
    by_device,
    has_launches,
    host_events,
    launch_times,
    names_matching,
    occupied,
    of_rank,
    percent,
    plain_events,
    plain_host_events,
    ranks_of,
    repeated,
    result,
    start_and_end,
)
from tidyprof.analyses.device_time import LATEST
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import DEVICE_KINDS, Profile, whole_numbers
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainColumns, PlainEvents

STEP_PATTERN = r"ProfilerStep#(\d{1,18})"
"""Name of the range that torch.profiler writes for each step. The number in the name fits in 64
bits.
"""

OTHER_MARKS = (
    r"(Optimizer\.)?zero_grad(#.*)?",
    r"(DistributedDataParallel\.)?forward",
    r"Optimizer\.step#.*",
)
"""Names of ranges that occur once per step. These ranges mark the steps if there are no profiler
steps and no `data` ranges.
"""

PHASE_PATTERNS = {
    "data": r"data|enumerate\(DataLoader\)#.*",
    "forward": r"forward|DistributedDataParallel\.forward",
    "loss": r"loss",
    "backward": r"backward",
    "optimizer": r"optimizer|Optimizer\.(step|zero_grad)#.*",
}
"""The names of the ranges in each phase of a step. The list includes the ranges that a script marks
and the ranges that torch.profiler adds.
"""


_Columns = dict[str, np.ndarray]
"""Columns of `steps`, as int64 with `ABSENT`."""


def steps(profile: Profile, timeline: str = "host", mark: str | None = None) -> pd.DataFrame:
    """Return the start time and the duration of each training step.

    With `timeline="host"`, the table has one row per rank and step, and `device` is `<NA>`. The
    steps are the `ProfilerStep#N` ranges. If there are no such ranges, each step lasts from one
    mark to the next, and the numbers start at 0. The last step ends with its last phase. If the
    last step has no phases, it ends with the host's last event. A mark is a range, operator or call
    with the name `mark`. By default, the mark is the first of these ranges that exists:

    - a range with the name `data`
    - a range from `OTHER_MARKS` that repeats

    With `timeline="device"`, the table has one row per rank, device and step. Because the host runs
    ahead of the device, a device event belongs to the step in which the host launched it. A step
    starts with the host's range, so it includes the idle time before its first launch. However, a
    step doesn't start before all work that was launched earlier has ended. Each step lasts until
    the next step starts, and the last step lasts until its last event and its range have ended.
    Steps that launched nothing have no row. An event without a launch record belongs to the host
    step during which the event starts.

    In `attrs`, `mark` is the name of the mark. If the profile has no step markers, `mark` is None
    and the table is empty. `steps` describes the mark in words. Raises ValueError if no event has
    the name `mark`, or if several processes without a rank mark steps. With `timeline="device"`,
    also raises ValueError if the profile has no launch records.

    >>> tidyprof.steps(tidyprof.read("trace.json.gz"))[["step", "duration_ns"]].values.tolist()
    [[1, 100000]]
    """
    require_timeline(timeline)
    table = result(plain_steps(profile, timeline, mark).columns, "steps", profile)
    name, words, _ = _known_host_steps(profile, mark)
    table.attrs |= {"mark": name, "steps": words}
    return table


def plain_steps(profile: Profile, timeline: str = "host", mark: str | None = None) -> PlainEvents:
    """Return the result of `steps` as plain arrays. Raises the same errors as `steps`."""

    def build() -> PlainEvents:
        columns = (
            _known_host_steps(profile, mark)[-1]
            if timeline == "host"
            else _device_steps(profile, mark)
        )
        return PlainEvents(PlainColumns(columns), np.arange(len(columns["step"])))

    return profile.once(("plain steps", timeline, mark), build)


def mark_of_steps(profile: Profile, mark: str | None) -> str:
    """Return the name of the mark from `attrs["mark"]` of `steps`, or an empty string if there is
    no mark.
    """
    return _known_host_steps(profile, mark)[0] or ""


def require_timeline(timeline: str) -> None:
    """Raise ValueError if the timeline is unknown."""
    if timeline not in ("host", "device"):
        raise ValueError(f"timeline must be host or device, not {timeline!r}")


def with_mark_of(marked: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the attrs about the mark, which are copied from a table of `steps`."""
    table.attrs |= {key: marked.attrs[key] for key in ("mark", "steps")}
    return table


def _known_host_steps(profile: Profile, mark: str | None) -> tuple[str | None, str, _Columns]:
    """Return the attrs `mark` and `steps` of the host's steps, and the columns of these steps."""
    return profile.once(("steps", mark), lambda: _host_steps(profile, mark))


def _host_steps(profile: Profile, mark: str | None) -> tuple[str | None, str, _Columns]:
    annotations = plain_host_events(profile, "annotation")
    numbered = annotations[names_matching(annotations, STEP_PATTERN)]
    if mark is None and len(numbered):
        _refuse_processes(numbered)
        return "ProfilerStep#N", "marked by the profiler, ProfilerStep#N", _numbered_steps(numbered)
    if mark := mark or _repeating_mark(host_events(profile, "annotation")):
        return mark, f"from each `{mark}` to the next", _steps_between(host_events(profile), mark)
    words = (
        "no steps are marked, so the whole trace counts as one step; to mark steps, pass the name"
        ' of a range or operator that runs once per step: mark="..."'
    )
    return None, words, _stacked([])


def _refuse_processes(marks: Events) -> None:
    """Raise ValueError if several processes without a rank have step markers."""
    processes = np.unique(whole_numbers(of_rank(marks, None)["process"]))
    if (processes != ABSENT).sum() > 1:
        raise ValueError(
            "several processes without a rank mark steps; read the files of one process at a time,"
            " or let the profiler write the rank into each file name"
        )


def _stacked(tables: Sequence[_Columns]) -> _Columns:
    """Return the rows of all tables. Without tables, return columns without rows."""
    tables = [repeated(dict.fromkeys(COLUMNS["steps"]), 0), *tables]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _numbered_steps(marks: PlainEvents) -> _Columns:
    numbers = [re.fullmatch(STEP_PATTERN, name).group(1) for name in marks["name"]]
    columns = {
        **{column: marks[column] for column in ("rank", "start_ns", "duration_ns")},
        "step": np.array(numbers, np.int64),
        "device": np.full(len(marks), ABSENT),
    }
    # As an unsigned number, ABSENT is larger than every rank, so it comes last.
    order = np.lexsort((columns["start_ns"], columns["rank"].view(np.uint64)))
    return {column: values[order] for column, values in columns.items()}


def _repeating_mark(annotations: pd.DataFrame) -> str | None:
    """Return the name of the ranges that mark the start of a step, or None if there are no such
    ranges.
    """
    if names_matching(annotations, "data").any():
        return "data"
    for pattern in OTHER_MARKS:
        marks = annotations[names_matching(annotations, pattern)]
        repeating = marks[marks.duplicated(["rank", "process", "name"], keep=False)]
        if len(repeating):
            return str(repeating["name"].iloc[0])
    return None


def _steps_between(host: pd.DataFrame, mark: str) -> _Columns:
    """Return the steps between consecutive events with this name.

    Raises ValueError if there is no such event.
    """
    marks = host[host["name"] == mark]
    if not len(marks):
        raise ValueError(f"no range, operator or call on the host is named {mark!r}")
    _refuse_processes(marks)
    tables: list[_Columns] = []
    for rank, events in host.groupby("rank", dropna=False):
        # Two marks at the same time, for example from two threads, start one step.
        begin = np.unique(events.loc[events["name"] == mark, "start_ns"])
        if len(begin):
            last = events[events["start_ns"] >= begin[-1]]
            end = np.append(begin[1:], _end_of_last(last, mark))
            place = {"rank": rank, "device": pd.NA}
            times = {"step": np.arange(len(begin)), "start_ns": begin, "duration_ns": end - begin}
            tables.append(repeated(place, len(begin)) | times)
    return _stacked(tables)


def _end_of_last(events: pd.DataFrame, mark: str) -> int:
    """Return the end of the last step, based on one rank's events since the step's mark."""
    phases = events[(events["kind"] == "annotation") & (events["name"] != mark)]
    phases = phases[names_matching(phases, "|".join(PHASE_PATTERNS.values()))]
    return int(start_and_end(phases if len(phases) else events)[1].max())


def _device_steps(profile: Profile, mark: str | None) -> _Columns:
    host = plain_steps(profile, mark=mark)
    if not len(host):
        return _stacked([])
    if not has_launches(plain_events(profile, DEVICE_KINDS)):
        raise ValueError(
            "the trace has no launch records, so device events can't be assigned to steps"
        )
    tables: list[_Columns] = []
    for place, events in by_device(profile):
        rank = place["rank"]
        of_host = of_rank(host, rank)
        _, end = start_and_end(events)
        launch = _supposed_launches(events)
        step = step_of_time(of_host, launch)
        launching = np.unique(step[step >= 0])
        if not len(launching):
            continue
        on_host, finish = (times[launching] for times in start_and_end(of_host))
        begin = _device_begins(events, launch, on_host)
        # The last step has no next step, so it ends with its work or its range, whichever ends
        # later.
        last = max(end[step == launching[-1]].max(), finish[-1], begin[-1])
        times = {
            "step": of_host["step"][launching],
            "start_ns": begin,
            "duration_ns": np.diff(np.append(begin, last)),
        }
        tables.append(repeated(place, len(launching)) | times)
    return _stacked(tables)


def _supposed_launches(events: PlainEvents) -> np.ndarray:
    """Return the launch times of the events of one device, in int64 nanoseconds.

    For a launch before the start of the trace, the time is `ABSENT`, which is the smallest number.
    An event without a launch record counts as launched before the trace if it has a correlation id
    and starts before its stream's first event with a launch. Otherwise, the launch is missing from
    the file, and the event counts as launched at its own start.
    """
    start, launch = events["start_ns"], launch_times(events)
    known = launch != ABSENT
    stream = pd.factorize(events["stream"])[0]
    first = np.full(len(events), LATEST)
    np.minimum.at(first, stream[known], start[known])
    first = first[stream]
    earlier = (start < first) & (first < LATEST) & (events["correlation_id"] > 0)
    return np.where(known | earlier, launch, start)


def _device_begins(events: PlainEvents, launch: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Return the device start times of steps that start at these times on the host.

    A step starts on the device when all work that was launched earlier has ended.
    """
    order = np.argsort(launch, kind="stable")
    ended = np.append(ABSENT, np.maximum.accumulate(start_and_end(events)[1][order]))
    busy_until = ended[np.searchsorted(launch[order], begin, side="left")]
    return np.maximum.accumulate(np.maximum(begin, busy_until))


def step_of_time(own: Events, times: np.ndarray) -> np.ndarray:
    """For each time, return the position of the step in `own` that contains the time. The position
    is -1 for a time outside of all steps and for `ABSENT`.

    - own: the steps of one rank, in order.
    """
    begin, finish = start_and_end(own)
    step = np.searchsorted(begin, times, side="right") - 1
    # For a time before all steps (-1), ABSENT is used as the end of the step.
    return np.where((step >= 0) & (times < np.append(finish, ABSENT)[step]), step, -1)


def phases(profile: Profile, mark: str | None = None) -> pd.DataFrame:
    """Return how long the host spent in each phase of each step, for profiles with or without a
    GPU.

    The table has one row for each phase that occurs in a step of a rank. The phases are the keys of
    `PHASE_PATTERNS`. `calls` is the number of ranges in the phase. `start_ns` is the start of the
    first range, and `duration_ns` is the time inside any of the ranges. Both values are clipped to
    the step. `percent` is the phase's share of the step.

    Without step markers, the whole profile counts as one step `<NA>`. `mark` and `attrs` are
    the same as in `steps`. The host runs ahead of the GPU, so these host times show whether the
    host was waiting, but not what the GPU did.
    """
    annotations = host_events(profile, ["annotation"])
    rows = []
    marked = steps_or_all(profile, mark)
    for step in marked.to_dict("records"):
        start, end = step["start_ns"], step["start_ns"] + step["duration_ns"]
        own = of_rank(annotations, step["rank"])
        begin, finish = start_and_end(own)
        own = own[(begin < end) & (finish > start)]
        for phase, pattern in PHASE_PATTERNS.items():
            ranges = own[names_matching(own, pattern)]
            if len(ranges):
                inside = occupied(ranges).clip(start, end).length
                row = {
                    "phase": phase,
                    "calls": len(ranges),
                    "start_ns": max(int(ranges["start_ns"].min()), start),
                    "duration_ns": inside,
                    "percent": float(percent(inside, end - start)),
                }
                rows.append({"rank": step["rank"], "step": step["step"], **row})
    return with_mark_of(marked, result(rows, "phases", profile))


def steps_or_all(profile: Profile, mark: str | None = None) -> pd.DataFrame:
    """Return the host's steps. For each rank that marked no steps, the whole profile is one step
    `<NA>`.

    The columns and attrs are the same as in `steps`.
    """
    marked = steps(profile, mark=mark)
    tables = []
    for rank in ranks_of(profile.events):
        own = of_rank(marked, rank)
        if not len(own):
            begin, finish = start_and_end(of_rank(profile.events, rank))
            times = {"start_ns": begin.min(), "duration_ns": finish.max() - begin.min()}
            own = result([{"rank": rank, **times}], "steps", profile)
        tables.append(own)
    return with_mark_of(marked, result(pd.concat(tables) if tables else [], "steps", profile))


def phase_time(profile: Profile, rank: int | None, phase: str) -> Intervals:
    """Return the times when one rank's host was in a phase."""
    annotations = of_rank(plain_host_events(profile, "annotation"), rank)
    return occupied(annotations, names_matching(annotations, PHASE_PATTERNS[phase]))
