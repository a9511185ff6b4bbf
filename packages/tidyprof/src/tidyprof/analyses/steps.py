"""Training steps and their phases, from the ranges that the training script marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import (
    OWNER,
    PLACE,
    Events,
    by_device,
    events_of_process,
    has_launches,
    host_events,
    launch_times,
    names_matching,
    occupied,
    of_rank,
    owner_of,
    percent,
    plain_events,
    plain_host_events,
    processes_apart,
    repeated,
    result,
    start_and_end,
)
from tidyprof.analyses.device_time import LATEST, idleness
from tidyprof.tables.codes import ABSENT, nullable
from tidyprof.tables.contract import DEVICE_KINDS, Profile
from tidyprof.tables.intervals import Intervals
from tidyprof.tables.records import PlainColumns, PlainEvents

STEP_PATTERN = r"ProfilerStep#(\d{1,18})"
"""Name of the range that torch.profiler writes for each step; no number that 64 bits can't hold."""

OTHER_MARKS = (
    r"(Optimizer\.)?zero_grad(#.*)?",
    r"(DistributedDataParallel\.)?forward",
    r"Optimizer\.step#.*",
)
"""Names of ranges that occur once in a step. They separate steps where neither the profiler nor
`data` does.
"""

ROUNDS = 3
"""Ranges must come so often in the same order to be taken for steps that nobody marked as such."""

NO_MARK = (
    r".*(nccl|rccl|gloo|mpi|ucc|xccl):.*|ProfilerStep#.*|enumerate\(DataLoader\)#.*|PyTorch"
    r" Profiler.*"
)
"""Ranges that PyTorch writes by itself and that may come any number of times in a step."""

PYTHON_FUNCTION = r".*\(\d+\): .*|<.*|nn\.Module: .*"
"""Names of Python functions in a trace with stacks; nobody marked them as ranges."""

PHASE_PATTERNS = {
    "data": r"data|enumerate\(DataLoader\)#.*",
    "forward": r"forward|DistributedDataParallel\.forward",
    "loss": r"loss",
    "backward": r"backward",
    "optimizer": r"optimizer|Optimizer\.(step|zero_grad)#.*",
}
"""Phase of a step -> names of its ranges: those that a script marks, and those that torch.profiler
adds.
"""

STEP_COLUMNS = {
    **PLACE,
    "process": "Int64",
    "step": "Int64",
    "start_ns": "int64",
    "duration_ns": "int64",
}
"""Columns of `steps`."""

_Columns = dict[str, np.ndarray]
"""Columns of `steps`, int64 with ABSENT."""

PHASE_COLUMNS = {
    **OWNER,
    "step": "Int64",
    "phase": "string",
    "calls": "int64",
    "start_ns": "int64",
    "duration_ns": "int64",
    "percent": "float64",
}
"""Columns of `phases`."""


def steps(profile: Profile, timeline: str = "host", mark: str | None = None) -> pd.DataFrame:
    """When each training step began and how long it took.

    timeline="host": one row per rank and step, device <NA>: the range `ProfilerStep#N`. Without
    such ranges a step lasts from one mark to the next, numbered from 0, and the last step ends with
    its last phase, or, where it has none, with the host's last event. The mark is the range,
    operator or call with the name `mark`. Without a name it is the first of these that occurs: a
    range `data`; a range of OTHER_MARKS that repeats; the first of several ranges that come in the
    same order ROUNDS times or more. Where several processes without a rank mark steps, each has
    rows of its own, and `process` says whose they are; else it is <NA>.

    timeline="device": one row per rank, device and step. The host runs ahead of the device, so here
    the launch time decides which step a device event belongs to. A step begins with the range on
    the host, so that idleness before its first launch is seen, but not before all work that was
    launched earlier has ended. It lasts until the next step begins, the last step until its last
    event and its range have ended. Steps that launched nothing have no row. An event without a
    launch record belongs to the step on the host that it starts in.

    attrs: `mark`, the name of the mark (None: there is none, and no row), and `steps`, the same in
    words. Raises ValueError for a mark that does not occur, for timeline="device" if the recording
    has no launch records, and as `common.owner_of` does.

    >>> tidyprof.steps(tidyprof.read("trace.json.gz"))[["step", "duration_ns"]].values.tolist()
    [[1, 100000]]
    """
    require_timeline(timeline)
    table = result(plain_steps(profile, timeline, mark).columns, STEP_COLUMNS, profile)
    name, words, _ = _known_host_steps(profile, mark)
    table.attrs |= {"mark": name, "steps": words}
    return table


def plain_steps(profile: Profile, timeline: str = "host", mark: str | None = None) -> PlainEvents:
    """`steps` as plain arrays, with its errors."""

    def build() -> PlainEvents:
        columns = (
            _known_host_steps(profile, mark)[-1]
            if timeline == "host"
            else _device_steps(profile, mark)
        )
        return PlainEvents(PlainColumns(columns), np.arange(len(columns["step"])))

    return profile.once(("plain steps", timeline, mark), build)


def mark_of_steps(profile: Profile, mark: str | None) -> str:
    """The name that steps begin with, attrs["mark"] of `steps`; "" where nothing marks them."""
    return _known_host_steps(profile, mark)[0] or ""


def require_timeline(timeline: str) -> None:
    """Raise ValueError unless there is such a timeline."""
    if timeline not in ("host", "device"):
        raise ValueError(f"timeline must be host or device, not {timeline!r}")


def with_mark_of(marked: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The table with the attrs of a table of `steps` that are about the mark."""
    table.attrs |= {key: marked.attrs[key] for key in ("mark", "steps")}
    return table


def _known_host_steps(profile: Profile, mark: str | None) -> tuple[str | None, str, _Columns]:
    """The attrs `mark` and `steps` of the host's steps, and their columns."""
    return profile.once(("steps", mark), lambda: _host_steps(profile, mark))


def _host_steps(profile: Profile, mark: str | None) -> tuple[str | None, str, _Columns]:
    annotations = plain_host_events(profile, "annotation")
    numbered = annotations[names_matching(annotations, STEP_PATTERN)]
    if mark is None and len(numbered):
        return "ProfilerStep#N", "marked by the profiler, ProfilerStep#N", _numbered_steps(numbered)
    if mark := mark or _repeating_mark(host_events(profile, "annotation")):
        return mark, f"from each `{mark}` to the next", _steps_between(host_events(profile), mark)
    words = (
        "no steps are marked, so that all of the recording counts as one; name a range or an"
        ' operator that runs once in each step: mark="..."'
    )
    return None, words, _no_steps()


def _no_steps() -> _Columns:
    return repeated(dict.fromkeys(STEP_COLUMNS), 0)


def _numbered_steps(marks: PlainEvents) -> _Columns:
    columns = {column: marks[column] for column in ("rank", "start_ns", "duration_ns")}
    columns["step"] = np.array(
        [re.fullmatch(STEP_PATTERN, name).group(1) for name in marks["name"]], np.int64
    )
    columns |= {"device": np.full(len(marks), ABSENT), "process": processes_apart(marks, marks)}
    # Steps without a rank or process come last, in place of ABSENT, the least number.
    rank, process = (
        np.where(columns[column] == ABSENT, LATEST, columns[column]) for column in OWNER
    )
    order = np.lexsort((columns["start_ns"], process, rank))
    return {column: values[order] for column, values in columns.items()}


def _repeating_mark(annotations: pd.DataFrame) -> str | None:
    """The name of the ranges that a step begins with; None if there are none."""
    if names_matching(annotations, "data").any():
        return "data"
    for pattern in OTHER_MARKS:
        marks = annotations[names_matching(annotations, pattern)]
        repeating = marks[marks.duplicated(["rank", "process", "name"], keep=False)]
        if len(repeating):
            return str(repeating["name"].iloc[0])
    return _first_of_rounds(annotations)


def _first_of_rounds(annotations: pd.DataFrame) -> str | None:
    """The name that each round begins with, if the outermost ranges come in rounds of the same
    names.
    """
    ranges = annotations[~names_matching(annotations, f"{NO_MARK}|{PYTHON_FUNCTION}")]
    if len(ranges) < ROUNDS or len(ranges.drop_duplicates(["rank", "process", "thread"])) > 1:
        return None
    begin, end = start_and_end(ranges)
    outermost = begin >= np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end)[:-1])
    names = ranges.loc[outermost, "name"].astype(str).tolist()
    # A round is as long as it takes for the first name to come again. The last one may be cut.
    length = names.index(names[0], 1) if names[0] in names[1:] else len(names)
    in_rounds = all(name == names[number % length] for number, name in enumerate(names))
    return names[0] if in_rounds and len(names) >= ROUNDS * length else None


def marks_to_try(profile: Profile) -> list[tuple[str, int]]:
    """The range that steps could begin with where nothing marks any, and how often it comes: of
    those that come ROUNDS times or more, the one with the longest sum. Where there is none, an
    operator, by the same rule.
    """
    for kind in ("annotation", "operator"):
        events = host_events(profile, kind)
        events = events[~names_matching(events, f"{NO_MARK}|{PYTHON_FUNCTION}")]
        sums = events.groupby(events["name"].astype(str))["duration_ns"].agg(["size", "sum"])
        sums = sums[sums["size"] >= ROUNDS].sort_values("sum", ascending=False)
        if len(sums):
            return [(str(name), int(count)) for name, count in sums["size"].head(1).items()]
    return []


def _steps_between(host: pd.DataFrame, mark: str) -> _Columns:
    """A step from each event of this name to the next. Raises ValueError if there is none."""
    marks = host[host["name"] == mark]
    if not len(marks):
        raise ValueError(f"no range, operator or call on the host is named {mark!r}")
    tables: list[_Columns] = []
    host = host.assign(process=nullable(processes_apart(host, marks), "Int64"))
    for (rank, process), events in host.groupby(list(OWNER), dropna=False):
        # Two marks at the same time, as of two threads, begin one step.
        begin = np.unique(events.loc[events["name"] == mark, "start_ns"])
        if len(begin):
            last = events[events["start_ns"] >= begin[-1]]
            end = np.append(begin[1:], _end_of_last(last, mark))
            owner = {"rank": rank, "device": pd.NA, "process": process}
            times = {"step": np.arange(len(begin)), "start_ns": begin, "duration_ns": end - begin}
            tables.append(repeated(owner, len(begin)) | times)
    return _below_each_other(tables)


def _below_each_other(tables: Sequence[_Columns]) -> _Columns:
    return {
        name: np.concatenate([table[name] for table in [_no_steps(), *tables]])
        for name in STEP_COLUMNS
    }


def _end_of_last(events: pd.DataFrame, mark: str) -> int:
    """When the last step ends, from one owner's events since its mark."""
    phases = events[(events["kind"] == "annotation") & (events["name"] != mark)]
    phases = phases[names_matching(phases, "|".join(PHASE_PATTERNS.values()))]
    return int(start_and_end(phases if len(phases) else events)[1].max())


def _device_steps(profile: Profile, mark: str | None) -> _Columns:
    host = plain_steps(profile, mark=mark)
    if not len(host):
        return _no_steps()
    if not has_launches(plain_events(profile, DEVICE_KINDS)):
        raise ValueError(
            "the recording has no launch records, so device events cannot be given to steps"
        )
    tables: list[_Columns] = []
    for place, events in by_device(profile):
        owner = owner_of(place, events, host)
        of_host = events_of_process(host, owner)
        _, end = start_and_end(events)
        launch = _supposed_launches(events)
        step = step_of_time(of_host, launch)
        launching = np.unique(step[step >= 0])
        if not len(launching):
            continue
        on_host, finish = (times[launching] for times in start_and_end(of_host))
        begin = _device_begins(events, launch, on_host)
        # The last step has no next one that ends it: its work does, or its range, if that is later.
        last = max(end[step == launching[-1]].max(), finish[-1], begin[-1])
        times = {
            "step": of_host["step"][launching],
            "start_ns": begin,
            "duration_ns": np.diff(np.append(begin, last)),
        }
        tables.append(repeated(place | owner, len(launching)) | times)
    return _below_each_other(tables)


def _supposed_launches(events: PlainEvents) -> np.ndarray:
    """Return when the events of one device were launched, int64 ns; ABSENT, the least number, for a
    launch before the recording.

    An event without a launch record was launched before the recording if it has a correlation id
    and starts before the first event of its stream that has a launch. Otherwise, the file doesn't
    show the launch, and the event counts as launched at its own start.
    """
    start, launch = events["start_ns"], launch_times(events)
    known = launch != ABSENT
    stream = pd.factorize(events["stream"])[0]
    first = np.full(len(events), LATEST)
    np.minimum.at(first, stream[known], start[known])
    first = np.where(
        (first == LATEST)[stream] | (events["correlation_id"] <= 0), ABSENT, first[stream]
    )
    return np.where(known | (start < first), launch, start)


def _device_begins(events: PlainEvents, launch: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """When steps that begin at these times on the host begin on the device: once all work that was
    launched before has ended.

    Work that the file lacks, but for whose end the step's first work waited, counts as launched
    before.
    """
    start, end = start_and_end(events)
    unseen = idleness(int(min(begin[0], start.min())), int(end.max()), events).earlier
    order = np.argsort(launch, kind="stable")
    ended = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end[order]))
    busy_until = ended[np.searchsorted(launch[order], begin, side="left")]
    next_unseen = np.searchsorted(unseen.ends, begin, side="right")
    hidden = np.append(unseen.starts, LATEST)[next_unseen] <= np.maximum(begin, busy_until)
    begin = np.where(hidden, np.append(unseen.ends, 0)[next_unseen], begin)
    return np.maximum.accumulate(np.maximum(begin, busy_until))


def step_of_time(own: Events, times: np.ndarray) -> np.ndarray:
    """For each time the position in `own` (one owner's steps, in order) that it falls in; -1 for
    none or ABSENT.
    """
    begin, finish = start_and_end(own)
    step = np.searchsorted(begin, times, side="right") - 1
    # The -1 of times before all steps reads ABSENT, the end behind the last.
    return np.where((step >= 0) & (times < np.append(finish, ABSENT)[step]), step, -1)


def phases(profile: Profile, mark: str | None = None) -> pd.DataFrame:
    """How long the host spent in each phase of each step, on CPU and GPU recordings alike.

    One row per rank, step and phase that occurs; phases are the keys of PHASE_PATTERNS. calls
    counts the ranges, start_ns is the start of the first range, duration_ns the time inside any of
    them (both clipped to the step), percent the share of the step. A recording without steps has
    one step <NA>: all of it. `process`, `mark` and attrs are as in `steps`. These are times of the
    host, which runs ahead of a GPU: they say who was waiting, not what the GPU did.
    """
    annotations = host_events(profile, ["annotation"])
    rows = []
    marked = steps_or_all(profile, mark)
    for step in marked.to_dict("records"):
        own = events_of_process(annotations, step)
        begin, finish = start_and_end(own)
        own = own[(begin < step["start_ns"] + step["duration_ns"]) & (finish > step["start_ns"])]
        for phase, pattern in PHASE_PATTERNS.items():
            ranges = own[names_matching(own, pattern)]
            if len(ranges):
                rows.append({**_phase_row(ranges, step), "phase": phase})
    return with_mark_of(marked, result(rows, PHASE_COLUMNS, profile))


def _phase_row(ranges: pd.DataFrame, step: dict[str, Any]) -> dict[str, Any]:
    inside = occupied(ranges).clip(step["start_ns"], step["start_ns"] + step["duration_ns"])
    return {
        **{column: step[column] for column in (*OWNER, "step")},
        "calls": len(ranges),
        "start_ns": max(int(ranges["start_ns"].min()), step["start_ns"]),
        "duration_ns": inside.length,
        "percent": float(percent(inside.length, step["duration_ns"])),
    }


def steps_or_all(profile: Profile, mark: str | None = None) -> pd.DataFrame:
    """The host's steps; an owner that marked none has one step <NA>: its whole recording. Columns
    and attrs are those of `steps`.

    Processes without a rank that neither mark steps nor use a device are left out where others mark
    steps.
    """
    marked = steps(profile, mark=mark)
    tables = []
    for owner in _owners(profile, marked):
        own = events_of_process(marked, owner)
        if not len(own):
            begin, finish = start_and_end(events_of_process(profile.events, owner))
            whole = {**owner, "start_ns": begin.min(), "duration_ns": finish.max() - begin.min()}
            own = result([whole], STEP_COLUMNS, profile)
        tables.append(own)
    return with_mark_of(marked, result(pd.concat(tables) if tables else [], STEP_COLUMNS, profile))


def _owners(profile: Profile, marked: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The owners whose steps there are, or whose whole recording counts as one step: all ranks, or
    their processes.
    """
    for rank in profile.events["rank"].drop_duplicates().sort_values():
        marking = of_rank(marked, rank)["process"].dropna()
        working = of_rank(profile.device_events, rank)["process"].dropna()
        for process in sorted({*marking, *working}) if len(marking) else [pd.NA]:
            yield {"rank": rank, "process": process}


def phase_time(profile: Profile, owner: Mapping[str, Any], phase: str) -> Intervals:
    """The time that the host of one owner spent in a phase."""
    annotations = events_of_process(plain_host_events(profile, "annotation"), owner)
    return occupied(annotations, names_matching(annotations, PHASE_PATTERNS[phase]))
