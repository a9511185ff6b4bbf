"""A timeline that shows what ran when. It has one lane per stream and per kind of host event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from tidyprof.analyses.common import (
    host_events,
    launch_times,
    names_matching,
    occupied,
    of_rank,
    start_and_end,
)
from tidyprof.analyses.steps import STEP_PATTERN, steps
from tidyprof.plots import style, viewer
from tidyprof.plots.bars import name_bar, room_for
from tidyprof.plots.figure import (
    TidyFigure,
    add_legend,
    axis_unit,
    duration_text,
    label_rows,
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

_BINS = 600
_LANE_INCHES = 0.42
_AXES_INCHES = 0.8 * style.WIDTH_INCHES
_MAX_THREADS = 3
_OUTLINED = 0.006
"""Minimum share of the window's width that a bar must cover to have an outline and a hatch. This
share corresponds to about 8 pixels.
"""

_TOLD = ("rank", "kind", "name", "short_name", "start_ns", "duration_ns", "launch_ns", "operator")
"""Columns that the viewer needs. Some profiles don't have the last two columns."""

_AUTOGRAD_PREFIX = "autograd::engine::evaluate_function: "
_HOST_LANES = {"operator": "operators", "runtime": "runtime calls"}
_LOOKS = {**style.KIND_LOOK, **{name: style.PART_LOOK[name] for name in style.PHASES}}
"""The color and hatch of each kind of event, and of the ranges that a trainer uses."""

_SEEN = 0.002
"""Minimum share of the window that a look must cover to be in the legend."""

_WORDS = {"annotation": "range", "runtime": "runtime call"}
"""Names of kinds in the legend, if they differ."""


@dataclass(frozen=True)
class _Window:
    """The times that the axis shows.

    - begin, finish: the limits in nanoseconds.
    - size: the number of nanoseconds per axis unit.
    - inches: the width of the axes, which is needed for names on bars.
    """

    begin: int
    finish: int
    size: float
    inches: float

    def x(self, times: np.ndarray) -> np.ndarray:
        """Return times as positions on the axis. Times outside of the window are clipped."""
        return (np.clip(times, self.begin, self.finish) - self.begin) / self.size

    def share(self, start: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return which share of the window lies between two times."""
        return (self.x(end) - self.x(start)) / ((self.finish - self.begin) / self.size)


@dataclass(frozen=True)
class Lane:
    """A lane of the timeline, which consists of its label and its events.

    - events: the events of one stream, or the outermost events of a host thread.
    - nested: these events and the events inside them, which only the viewer shows.
    - is_dense: True if the lane has more events than bars can show.
    """

    label: str
    events: pd.DataFrame
    nested: pd.DataFrame
    is_dense: bool


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

    If a lane has more than `DENSE` events, bar heights show how busy each short time span was.
    Raises ValueError if the step doesn't exist or if nothing happened in the window.
    """
    if rank is not None:
        profile = Profile(of_rank(profile.events, rank), meta=dict(profile.meta))
    begin, finish = _limits(profile, start_ns, end_ns, step)
    first, last = start_and_end(profile.events)
    inside = profile.events[(first < finish) & (last > begin)]
    if not len(inside):
        raise ValueError(f"nothing happened between {begin} and {finish} ns")
    shown = Profile(inside, meta=dict(profile.meta))
    lanes = [Lane(*found, len(found[1]) > DENSE) for found in _lanes(shown)]
    unit, size = axis_unit(finish - begin)
    window = _Window(begin, finish, size, _AXES_INCHES)
    height = 1.7 + _LANE_INCHES * len(lanes)
    axis = f"time, {unit}"
    if any(lane.is_dense for lane in lanes):
        axis += "; where bars merge, their height shows how busy the lane is"
    with settings():
        figure, (axes,) = new_figure(str(profile.origin), height=height, title=title)
        for row, lane in enumerate(lanes):
            _draw(axes, row, lane, window)
        _mark_idle(axes, lanes, window)
        label_rows(axes, [lane.label for lane in lanes], 0.55)
        axes.set_ylim(len(lanes) - 0.45, -0.55)
        axes.set_xlim(0, (finish - begin) / size)
        axes.set_xlabel(axis)
        add_legend(axes, _looks([lane.events for lane in lanes], finish - begin))
    figure.alternative_text = _words(shown, begin, finish, step)
    figure.closer = _closer(profile, lanes, begin, finish, title)
    return figure


def _closer(profile: Profile, lanes: list[Lane], begin: int, finish: int, title: str | None) -> str:
    """Return the viewer's data, which contains the lanes' events and their launches."""
    every = pd.concat([lane.nested.filter(_TOLD) for lane in lanes])
    totals = [len(lane.nested) for lane in lanes]
    row = np.repeat(np.arange(len(lanes)), totals)
    chosen = viewer.longest_of_each(every["duration_ns"].to_numpy(), row)
    events = every.iloc[chosen]
    start, launch = events["start_ns"].to_numpy(), launch_times(events)
    looks = _looks([every])
    keys = pd.Series(_look_of(events)).replace(_WORDS)
    table = pd.DataFrame(
        {
            "row": row[chosen],
            "start": start - begin,
            "length": events["duration_ns"].to_numpy(),
            "name": _bar_names(events),
            "whole_name": events["name"].array,
            "look": keys.map([*looks].index).array,
            "launched": np.where(launch == ABSENT, ABSENT, start - launch),
        }
    )
    if "operator" in events:
        table["operator"] = events["operator"].array
    return viewer.boxes(
        table,
        finish - begin,
        [lane.label for lane in lanes],
        looks,
        origin=str(profile.origin),
        title=title,
        totals=totals,
        unit="ns",
        things="events",
        axis="Horizontal axis: time since the start of the window",
    )


def _bar_names(events: pd.DataFrame) -> list[str]:
    return events["short_name"].astype(str).str.removeprefix(_AUTOGRAD_PREFIX).tolist()


def _limits(
    profile: Profile, start_ns: int | None, end_ns: int | None, step: int | None
) -> tuple[int, int]:
    if not len(profile.events):
        raise ValueError("there is nothing to plot: the profile has no events")
    own = profile.events
    if step is not None:
        found = steps(profile)
        own = found[found["step"] == step]
        if not len(own):
            known = ", ".join(str(number) for number in sorted(found["step"].unique())) or "none"
            raise ValueError(f"this profile has no step {step}; its steps are: {known}")
        start_ns = end_ns = None
    start, end = start_and_end(own)
    begin = int(start.min()) if start_ns is None else start_ns
    return begin, max(begin + 1, int(end.max()) if end_ns is None else end_ns)


def _lanes(profile: Profile) -> Iterator[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Yield the label, the events and the nested events of each lane, from top to bottom."""
    ranks = profile.events["rank"].drop_duplicates().sort_values()
    several = len(ranks) > 1
    for rank in ranks:
        host, work = of_rank(host_events(profile), rank), of_rank(profile.device_events, rank)
        prefix = f"rank {rank}: " if several else ""
        for label, events in _host_lanes(host, ranges_only=several):
            if len(events):
                yield f"{prefix}{label}", _outermost(events), events
        more_devices = work["device"].nunique(dropna=False) > 1
        for (device, number), events in work.groupby(["device", "stream"], dropna=False):
            gpu = f"device {device}, " if more_devices else ""
            stream = "device" if pd.isna(number) else f"stream {number}"
            yield f"{prefix}{gpu}{stream}", events, events


def _host_lanes(host: pd.DataFrame, ranges_only: bool) -> Iterator[tuple[str, pd.DataFrame]]:
    marks = host[host["kind"] == "annotation"]
    is_step = names_matching(marks, STEP_PATTERN)
    yield from (("steps", marks[is_step]), ("ranges", marks[~is_step]))
    if ranges_only:
        return
    calls = host[host["kind"].isin(list(_HOST_LANES))]
    busiest = calls["thread"].value_counts(dropna=False).index[:_MAX_THREADS]
    # Events are sorted by time, so the thread that starts first comes first.
    threads = calls[calls["thread"].isin(busiest)].groupby("thread", dropna=False, sort=False)
    main = set(marks["thread"][:1])
    for number, (thread, own) in enumerate(threads, 1):
        role = f"thread {number}"
        if thread in main:
            role = "main thread"
        elif own["name"].astype(str).str.startswith(_AUTOGRAD_PREFIX).any():
            role = "backward thread"
        for kind, label in _HOST_LANES.items():
            yield f"{label}{f', {role}' * (len(threads) > 1)}", own[own["kind"] == kind]


def _outermost(events: pd.DataFrame) -> pd.DataFrame:
    """Return the events that aren't inside another event of the table."""
    start, end = start_and_end(events)
    order = np.lexsort((-end, start))
    reach = np.append(np.iinfo(np.int64).min, np.maximum.accumulate(end[order]))[:-1]
    return events.iloc[order[start[order] >= reach]]


def _draw(axes: Axes, row: int, lane: Lane, window: _Window) -> None:
    filled = np.zeros(_BINS)  # share of each bin that earlier kinds fill, because kinds stack
    for key, events in lane.events.groupby(_look_of(lane.events), sort=False):
        color, hatch = look = _LOOKS[str(key)]
        if lane.is_dense:
            edges = np.linspace(window.begin, window.finish, _BINS + 1).astype(np.int64)
            lengths = np.maximum(np.diff(edges), 1)
            share = occupied(events).covered_within(edges[:-1], edges[1:]) / lengths
            times = window.x(edges)
            _rectangles(axes, times[:-1], times[1:], row + 0.4 - 0.8 * filled, 0.8 * share, color)
            filled += share
            continue
        start, end = start_and_end(events)
        left, right, share = window.x(start), window.x(end), window.share(start, end)
        # Outlines and hatches would cover bars that are only a few dots wide.
        for wide, pattern in ((share <= _OUTLINED, None), (share > _OUTLINED, hatch)):
            _rectangles(axes, left[wide], right[wide], row + 0.4, 0.8, color, pattern)
        bars = zip(_bar_names(events), (left + right) / 2, share * window.inches, strict=True)
        for name, middle, inches in bars:
            name_bar(axes, middle, row, name, inches, look)


def _mark_idle(axes: Axes, lanes: list[Lane], window: _Window) -> None:
    """Label the long gaps of each device as idle, in the first lane of the device."""
    rows: dict[tuple[object, object], list[int]] = {}
    for row, lane in enumerate(lanes):
        first = lane.events.iloc[0]
        if not pd.isna(first["device"]):
            rows.setdefault((first["rank"], first["device"]), []).append(row)
    look = {"ha": "center", "va": "center_baseline", "color": style.MUTED_TEXT}
    for own in rows.values():
        idle = Intervals.window(window.begin, window.finish)
        idle = idle - occupied(pd.concat([lanes[row].events for row in own]))
        for start, end in zip(idle.starts, idle.ends, strict=True):
            text = f"idle {duration_text(end - start)}"
            if room_for(text, window.share(start, end) * window.inches) == text:
                axes.text(window.x((start + end) / 2), own[0], text, **look)


def _rectangles(
    axes: Axes,
    left: np.ndarray,
    right: np.ndarray,
    bottom: np.ndarray | float,
    height: np.ndarray | float,
    color: str,
    hatch: str | None = None,
) -> None:
    """Draw bars that extend upward from their bottom edges, because the axis points down.

    If a hatch is given, the bars have an outline, even if the hatch is empty.
    """
    left, right, bottom, height = np.broadcast_arrays(left, right, bottom, height)
    top = bottom - height
    corners = np.array([[left, bottom], [right, bottom], [right, top], [left, top]])
    edge = (color, 0.2) if hatch is None else (style.TEXT, 0.4)
    look = dict(zip(("edgecolor", "linewidth"), edge, strict=True))
    shapes = corners.transpose(2, 0, 1)
    axes.add_collection(PolyCollection(shapes, facecolor=color, hatch=hatch or None, **look))


def _look_of(events: pd.DataFrame) -> np.ndarray:
    """Return the key of each event's look, which is its kind or the name of a known range."""
    names, kinds = (events[column].astype(str) for column in ("short_name", "kind"))
    return np.where((kinds == "annotation") & names.isin(style.PHASES), names, kinds)


def _looks(lanes: list[pd.DataFrame], window_ns: int = 0) -> dict[str, tuple[str, str]]:
    """Return the looks of these events with their names for the legend. Looks that cover less than
    `_SEEN` of a window are left out.
    """
    found = pd.concat(lanes)
    lengths = found.groupby(_look_of(found))["duration_ns"].sum()
    used = set(lengths.index[lengths >= _SEEN * window_ns])
    return {_WORDS.get(key, key): look for key, look in _LOOKS.items() if key in used}


def _words(profile: Profile, begin: int, finish: int, step: int | None) -> str:
    what = "the trace" if step is None else f"step {step}"
    device, host = profile.device_events, host_events(profile)
    where, events = ("a device", device) if len(device) else ("the host", host)
    longest = events.loc[events["duration_ns"].idxmax()]
    return (
        f"Timeline of {duration_text(finish - begin)} of {what}, with {len(host):,} events on the"
        f" host and {len(device):,} on devices. The longest event on {where} is"
        f" {longest['short_name']} with {duration_text(longest['duration_ns'])}."
    )
