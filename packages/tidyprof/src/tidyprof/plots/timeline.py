"""A timeline that shows what ran when. It has one lane per stream and per kind of host event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from tidyprof.analyses.common import (
    equal,
    host_events,
    launch_times,
    names_matching,
    occupied,
    of_rank,
    start_and_end,
)
from tidyprof.analyses.steps import STEP_PATTERN, step_of_time, steps
from tidyprof.plots import style, viewer
from tidyprof.plots.bars import fitting, name_bar, room_for
from tidyprof.plots.figure import (
    TidyFigure,
    add_legend,
    axis_unit,
    duration_text,
    new_figure,
    settings,
)
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

DENSE = 600
"""Maximum number of events in a lane with separate bars. Above this number, the bars would merge,
so the lane shows how busy it is instead.
"""

SPARSE = 60
"""Maximum number of events in a lane with separate bars if any lane exceeds `DENSE`. Lanes that
show time in two different ways can't be compared.
"""

_BINS = 600
_LANE_INCHES = 0.42
_AXES_INCHES = 0.8 * style.WIDTH_INCHES
_MAX_THREADS = 3
_BESIDE = 12
"""Maximum number of characters in a name after a lane. Such names reduce the space for the axes."""

_TOLD_GAP = 0.1
"""Minimum share of the window that the longest gap must cover to be described."""

_OUTLINED = 0.006
"""Minimum share of the window's width that a bar must cover to have an outline and a hatch. This
share corresponds to about 8 pixels.
"""

_TOLD = ("rank", "kind", "name", "short_name", "start_ns", "duration_ns", "launch_ns", "operator")
"""Columns that the viewer needs. Some profiles don't have the last two columns."""

_AUTOGRAD_PREFIX = "autograd::engine::evaluate_function: "
_HOST_LANES = {"operator": "operators", "runtime": "runtime calls"}


@dataclass(frozen=True)
class Lane:
    """A lane of the timeline, which consists of its label and its events.

    The events aren't nested because they belong to one stream or one level.
    """

    label: str
    events: pd.DataFrame
    most: int = DENSE

    @property
    def dense(self) -> bool:
        """True if the lane has more events than bars can show."""
        return len(self.events) > self.most


def timeline(
    profile: Profile,
    *,
    start_ns: int | None = None,
    end_ns: int | None = None,
    step: int | None = None,
    rank: int | None = None,
    title: str | None = None,
) -> TidyFigure:
    """Plot what the host and each device stream did between two times, or during the host's range
    of one step.

    If no limits are given, the whole profile is drawn. `rank` selects one rank. If no rank is
    selected, a profile with several ranks shows the steps, ranges and streams of all ranks. Bars
    are labeled if there is room.

    If a lane has more than `DENSE` events, bar heights show how busy each short time span was. If
    there is such a lane, all lanes with more than `SPARSE` events are drawn this way. Raises
    ValueError if the step doesn't exist or if nothing happened in the window.
    """
    if rank is not None:
        profile = Profile(of_rank(profile.events, rank), meta=dict(profile.meta))
    begin, finish = _window(profile, start_ns, end_ns, step)
    first, last = start_and_end(profile.events)
    inside = profile.events[(first < finish) & (last > begin)]
    if not len(inside):
        raise ValueError(f"nothing happened between {begin} and {finish} ns")
    shown = Profile(inside, meta=dict(profile.meta))
    lanes = list(_lanes(shown))
    if any(lane.dense for lane in lanes):
        lanes = [replace(lane, most=SPARSE) for lane in lanes]
    unit, size = axis_unit(finish - begin)
    beside = [_beside(lane, finish - begin) for lane in lanes]
    inches = _AXES_INCHES - style.CHARACTER_POINTS * max(map(len, beside)) / 72
    with settings():
        figure, (axes,) = new_figure(
            str(profile.origin), height=1.7 + _LANE_INCHES * len(lanes), title=title
        )
        for row, lane in enumerate(lanes):
            _draw(axes, row, lane, begin, finish, size, inches)
            _name_beside(axes, (finish - begin) / size, row, beside[row])
        _mark_idle(axes, lanes, begin, finish, size, inches)
        _name_lanes(axes, lanes)
        axes.set_xlim(0, (finish - begin) / size)
        axes.set_xlabel(f"time since the start of the window, {unit}")
        add_legend(axes, _looks(lanes))
    figure.alternative_text = _words(shown, begin, finish, step)
    figure.closer = _closer(profile, lanes, begin, finish, title)
    return figure


def _closer(profile: Profile, lanes: list[Lane], begin: int, finish: int, title: str | None) -> str:
    """Return the viewer's data, which contains the lanes' events. Each event includes its launch
    and its part of a step.
    """
    columns = profile.events.columns.intersection(_TOLD)
    every = pd.concat([lane.events[columns] for lane in lanes])
    row = np.repeat(np.arange(len(lanes)), [len(lane.events) for lane in lanes])
    chosen = viewer.longest_of_each(every["duration_ns"].to_numpy(), row)
    events = every.iloc[chosen]
    start, launch = events["start_ns"].to_numpy(), launch_times(events)
    is_known = launch != ABSENT
    kinds = events["kind"].astype(str)
    looks = _looks(lanes)
    used = [kind for kind in style.KIND_LOOK if (every["kind"] == kind).any()]
    table = {
        "row": row[chosen],
        "start": start - begin,
        "length": events["duration_ns"],
        "name": events["short_name"].astype(str).str.removeprefix(_AUTOGRAD_PREFIX),
        "whole_name": events["name"],
        "look": kinds.map(used.index),
        "launched": np.where(is_known, start - launch, ABSENT),
        "part": _parts(profile, events, np.where(is_known, launch, start)),
    }
    if "operator" in events:
        table["operator"] = events["operator"]
    return viewer.boxes(
        pd.DataFrame({name: np.asarray(values) for name, values in table.items()}),
        finish - begin,
        [lane.label for lane in lanes],
        looks,
        origin=str(profile.origin),
        title=title,
        totals=np.bincount(row, minlength=len(lanes)).tolist(),
        unit="ns",
        things="events",
        axis="Horizontal axis: time since the start of the window",
    )


def _parts(profile: Profile, events: pd.DataFrame, moments: np.ndarray) -> np.ndarray:
    """Return the host's step and range at the time of each event.

    The result is a string such as `ProfilerStep#3, forward`, or an empty string if the host was in
    neither. For a range, the string contains only the step. For a step, the string is empty.
    """
    ranks, parts = events["rank"], np.full(len(moments), "", object)
    marks = host_events(profile, ["annotation"])
    is_mark = (events["kind"] == "annotation").to_numpy()
    is_itself = is_mark & names_matching(events, STEP_PATTERN)
    for rank in ranks.drop_duplicates():
        marks_of_rank = of_rank(marks, rank)
        is_step = names_matching(marks_of_rank, STEP_PATTERN)
        outer_steps = _outermost(marks_of_rank[is_step])
        outer_ranges = _outermost(marks_of_rank[~is_step])
        chosen = equal(ranks, rank)
        step = np.where(is_itself[chosen], -1, step_of_time(outer_steps, moments[chosen]))
        part = np.where(is_mark[chosen], -1, step_of_time(outer_ranges, moments[chosen]))
        # Give each pair of step and range one number, so that each pair's text is created only
        # once. -1 means none, which explains the empty first name and the + 1.
        step_names = ["", *outer_steps["short_name"].astype(str)]
        range_names = ["", *outer_ranges["short_name"].astype(str)]
        pairs = (step + 1) * len(range_names) + part + 1
        distinct, code = np.unique(pairs, return_inverse=True)
        texts = []
        for pair in distinct:
            names = (step_names[pair // len(range_names)], range_names[pair % len(range_names)])
            texts.append(", ".join(filter(None, names)))
        parts[chosen] = np.array(texts, object)[code]
    return parts


def _name_lanes(axes: Axes, lanes: list[Lane]) -> None:
    names = [
        f"{lane.label}\n(height: share of time)" if lane.dense else lane.label for lane in lanes
    ]
    axes.set_yticks(range(len(lanes)), names)
    for label in axes.get_yticklabels():
        label.set_parse_math(False)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(lanes) - 0.45, -0.55)


def _window(
    profile: Profile, start_ns: int | None, end_ns: int | None, step: int | None
) -> tuple[int, int]:
    first, last = start_and_end(profile.events)
    if not len(first):
        raise ValueError("there is nothing to plot: the profile has no events")
    if step is None:
        begin = int(first.min()) if start_ns is None else start_ns
        return begin, max(begin + 1, int(last.max()) if end_ns is None else end_ns)
    found = steps(profile)
    own = found[found["step"] == step]
    if not len(own):
        known = ", ".join(str(number) for number in sorted(found["step"].unique())) or "none"
        raise ValueError(f"this profile has no step {step}; its steps are: {known}")
    starts, ends = start_and_end(own)
    return int(starts.min()), int(ends.max())


def _lanes(profile: Profile) -> Iterator[Lane]:
    ranks = profile.events["rank"].drop_duplicates().sort_values()
    several = len(ranks) > 1
    for rank in ranks:
        own = Profile(of_rank(profile.events, rank), meta=dict(profile.meta))
        prefix = f"rank {rank}: " if several else ""
        yield from _host_lanes(own, prefix, ranges_only=several)
        device = own.device_events
        known = device[["device", "stream"]].drop_duplicates().sort_values(["device", "stream"])
        more_devices = known["device"].nunique(dropna=False) > 1
        for place in known.itertuples():
            events = device[
                _equal(device["device"], place.device) & _equal(device["stream"], place.stream)
            ]
            gpu = f"device {place.device}, " if more_devices else ""
            stream = "device" if pd.isna(place.stream) else f"stream {place.stream}"
            yield Lane(f"{prefix}{gpu}{stream}", events)


def _host_lanes(profile: Profile, prefix: str, ranges_only: bool) -> Iterator[Lane]:
    host = host_events(profile)
    marks = host[host["kind"] == "annotation"]
    is_step = names_matching(marks, STEP_PATTERN)
    for label, events in (("steps", marks[is_step]), ("ranges", marks[~is_step])):
        if len(events):
            yield Lane(f"{prefix}{label}", _outermost(events))
    if ranges_only:
        return
    calls = host[host["kind"].isin(list(_HOST_LANES))]
    busiest = calls["thread"].value_counts(dropna=False).index[:_MAX_THREADS]
    # Events are sorted by time, so the thread that starts first comes first.
    threads = calls.loc[calls["thread"].isin(busiest), "thread"].drop_duplicates()
    for number, thread in enumerate(threads):
        own = calls[_equal(calls["thread"], thread)]
        suffix = f" (thread {number + 1})" if len(threads) > 1 else ""
        for kind, label in _HOST_LANES.items():
            events = own[own["kind"] == kind]
            if len(events):
                yield Lane(f"{label}{suffix}", _outermost(events))


def _equal(column: pd.Series, value: object) -> pd.Series:
    return column.isna() if pd.isna(value) else (column == value).fillna(False).astype(bool)


def _outermost(events: pd.DataFrame) -> pd.DataFrame:
    """Return the events that aren't inside another event of the table."""
    start, end = start_and_end(events)
    order = np.lexsort((-end, start))
    reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end[order])[:-1]))
    return events.iloc[order[start[order] >= reach]]


def _draw(
    axes: Axes, row: int, lane: Lane, begin: int, finish: int, size: float, width: float
) -> None:
    """Draw one lane.

    - width: the width of the axes in inches, which is needed for names on bars.
    """
    kinds = lane.events["kind"].astype(str)
    filled = np.zeros(_BINS)  # share of each bin that earlier kinds fill, because kinds stack
    for kind in kinds.drop_duplicates():
        events = lane.events[kinds == kind]
        if lane.dense:
            edges = np.linspace(begin, finish, _BINS + 1).astype(np.int64)
            share = occupied(events).covered_within(edges[:-1], edges[1:]) / np.maximum(
                np.diff(edges), 1
            )
            times = (edges - begin) / size
            _rectangles(
                axes,
                times[:-1],
                times[1:],
                row + 0.4 - 0.8 * filled,
                0.8 * share,
                style.KIND_LOOK[kind][0],
            )
            filled += share
            continue
        start, end = start_and_end(events)
        left, right = (
            (np.clip(start, begin, finish) - begin) / size,
            (np.clip(end, begin, finish) - begin) / size,
        )
        # Outlines and hatches would cover bars that are only a few dots wide.
        wide = (right - left) / ((finish - begin) / size) > _OUTLINED
        color, hatch = style.KIND_LOOK[kind]
        bottom, height = np.full(len(left), row + 0.4), np.full(len(left), 0.8)
        _rectangles(axes, left[~wide], right[~wide], bottom[~wide], height[~wide], color)
        _rectangles(axes, left[wide], right[wide], bottom[wide], height[wide], color, hatch)
        inches = (right - left) / ((finish - begin) / size) * width
        names = events["short_name"].astype(str).str.removeprefix(_AUTOGRAD_PREFIX).tolist()
        for name, middle, length in zip(names, (left + right) / 2, inches, strict=True):
            name_bar(axes, middle, row, name, length, style.KIND_LOOK[kind])


def _beside(lane: Lane, length: int) -> str:
    """Return the text after a lane of ranges. The text is the name of the last range if the name
    doesn't fit on the range's bar.
    """
    if lane.dense or (lane.events["kind"].astype(str) != "annotation").any():
        return ""
    last = lane.events.iloc[-1]
    name = str(last["short_name"])
    has_room = room_for(name, last["duration_ns"] / length * _AXES_INCHES)
    return "" if has_room else fitting(name, _BESIDE)


def _name_beside(axes: Axes, x: float, y: float, name: str) -> None:
    axes.annotate(
        name,
        (x, y),
        xytext=(4, 0),
        textcoords="offset points",
        va="center_baseline",
        annotation_clip=False,
        parse_math=False,
    )


def _mark_idle(
    axes: Axes, lanes: list[Lane], begin: int, finish: int, size: float, width: float
) -> None:
    """Label the long gaps of each device as idle, in the first lane of the device."""
    rows: dict[tuple[object, object], list[int]] = {}
    for row, lane in enumerate(lanes):
        first = lane.events.iloc[0]
        if not pd.isna(first["device"]):
            rows.setdefault((first["rank"], first["device"]), []).append(row)
    for own in rows.values():
        events = pd.concat([lanes[row].events for row in own])
        idle = Intervals.window(begin, finish) - occupied(events)
        for start, end in zip(idle.starts, idle.ends, strict=True):
            text, middle = f"idle {duration_text(end - start)}", (start + end) / 2
            if room_for(text, (end - start) / (finish - begin) * width) == text:
                look = {"ha": "center", "va": "center_baseline", "color": style.MUTED_TEXT}
                axes.text((middle - begin) / size, own[0], text, **look)


def _rectangles(
    axes: Axes,
    left: np.ndarray,
    right: np.ndarray,
    bottom: np.ndarray,
    height: np.ndarray,
    color: str,
    hatch: str | None = None,
) -> None:
    """Draw bars that extend upward from their bottom edges, because the axis points down.

    If a hatch is given, the bars have an outline, even if the hatch is empty.
    """
    corners = [(left, bottom), (right, bottom), (right, bottom - height), (left, bottom - height)]
    shapes = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)
    outlined = hatch is not None
    axes.add_collection(
        PolyCollection(
            shapes,
            facecolor=color,
            edgecolor=style.TEXT if outlined else color,
            linewidth=0.4 if outlined else 0.2,
            hatch=hatch or None,
        )
    )


def _looks(lanes: list[Lane]) -> dict[str, tuple[str, str]]:
    used = {kind for lane in lanes for kind in lane.events["kind"].astype(str).unique()}
    names = {"annotation": "range", "runtime": "runtime call"}
    return {names.get(kind, kind): look for kind, look in style.KIND_LOOK.items() if kind in used}


def _words(profile: Profile, begin: int, finish: int, step: int | None) -> str:
    device = profile.device_events
    what = f"step {step}" if step is not None else "the trace"
    window = f"Timeline of {duration_text(finish - begin)} of {what}"
    if not len(device):
        host = host_events(profile)
        names = _outermost(host[host["kind"] == "operator"])
        samples = int((profile.events["kind"] == "sample").sum())
        second = (
            f"The plot doesn't show {samples:,} frames of call-stack samples."
            if samples
            else "No operators were recorded."
        )
        if len(names):
            second = (
                f"The longest operator is {names.loc[names['duration_ns'].idxmax(), 'short_name']}."
            )
        return (
            f"{window} on the host, with {len(host):,} host events and no device events. {second}"
        )
    groups = device.groupby(["rank", "device"], dropna=False)
    shares = [
        100 * occupied(events).clip(begin, finish).length / (finish - begin) for _, events in groups
    ]
    share = (
        f"{shares[0]:.0f}%"
        if len(shares) == 1
        else f"between {min(shares):.0f}% and {max(shares):.0f}%"
    )
    longest = device.loc[device["duration_ns"].idxmax()]
    where = f"{len(shares)} devices" if len(shares) > 1 else "one device"
    return (
        f"{window}, with {len(device):,} events on {where}, busy for {share} of it"
        f"{_gap_words(profile, begin, finish) if len(shares) == 1 else ''}. The longest"
        f" device event is {longest['short_name']} with {duration_text(longest['duration_ns'])}."
    )


def _gap_words(profile: Profile, begin: int, finish: int) -> str:
    """Describe the device's longest idle time and the host's range at that time. If the gap is
    short, return an empty string.
    """
    idle = Intervals.window(begin, finish) - occupied(profile.device_events)
    lengths = idle.ends - idle.starts
    if not len(lengths) or lengths.max() < _TOLD_GAP * (finish - begin):
        return ""
    start, end = idle.starts[lengths.argmax()], idle.ends[lengths.argmax()]
    marks = host_events(profile, ["annotation"])
    ranges = _outermost(marks[~names_matching(marks, STEP_PATTERN)])
    first, last = start_and_end(ranges)
    shared = np.minimum(last, end) - np.maximum(first, start)
    where = ""
    if len(shared) and shared.max() > (end - start) / 2:
        where = f", mostly in the range {ranges['short_name'].iloc[int(shared.argmax())]}"
    return f" and idle for up to {duration_text(end - start)} at a time{where}"
