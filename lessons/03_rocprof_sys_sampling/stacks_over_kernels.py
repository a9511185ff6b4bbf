"""A figure with the call stacks of each thread above the share of time when the GPU was busy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, takewhile
from operator import itemgetter

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

import tidyprof
from tidyprof.plots import TidyFigure, style, viewer
from tidyprof.plots.bars import fitting, name_bar
from tidyprof.plots.figure import add_legend, new_figure, settings
from tidyprof.tables.contract import Profile
from tidyprof.tables.intervals import Intervals

Box = tuple[int, float, float, str]
"""Depth, start and end in ns, and name of a function in a stack."""

MAX_THREADS = 2
"""Maximum number of threads in the figure. Those with the most different stacks come first, because
a sleeping thread always has the same stack.
"""

BINS, LEVELS = 300, 7
INCHES = 7.6
"""Width of the axes, in inches."""

LONE_NS = np.array([500_000, 500_000])
"""Time in ns before and after the only sample of a thread."""

REACH = 3
"""Maximum length of a sample, as a multiple of the median distance between two samples of its
thread. A sleeping thread has no samples.
"""

RANGES = (115, 20, 127, 147)
"""Positions on the GPU's axis, in percent: the middle and the height of the ranges, the names of
narrow ranges, and the end of the axis.
"""

LOOKS = {
    "function": (style.SKY_BLUE, ""),
    "range": (style.GREY, ""),
    "on the device": (style.BLUE, ""),
}
"""Color and hatch of each kind of box."""


def stacks_over_kernels(
    profile: Profile, begin_ns: int, end_ns: int, title: str | None = None
) -> TidyFigure:
    """Draw the sampled call stacks of each thread above the ranges and the share of busy GPU time.

    The main thread is the one that marks the ranges. A sample extends at most half the distance to
    its neighbors. The figure leaves out callers that all samples share, and functions that are too
    narrow for a name. Raises ValueError if there are no samples in this time.
    """
    stacks = _stacks(profile, begin_ns, end_ns)
    most = stacks.groupby("thread")["stack"].nunique().nlargest(MAX_THREADS).index
    ranges = tidyprof.phases(profile)
    marking = set(profile.events.loc[profile.events["kind"] == "annotation", "thread"].dropna())
    threads = {
        one: "main thread" if one in marking else f"thread {place}"
        for place, one in enumerate(most, start=1)
    }
    # Use integers, because a float can't represent every ns since 1970.
    edges = begin_ns + (end_ns - begin_ns) * np.arange(BINS + 1, dtype=np.int64) // BINS
    device = profile.device_events
    busy = Intervals.union(device["start_ns"], device["start_ns"] + device["duration_ns"])
    share = 100 * busy.covered_within(edges[:-1], edges[1:]) / np.diff(edges)
    boxes = {one: list(_boxes(stacks[stacks["thread"] == one])) for one in threads}
    count = len(threads) + 1
    with settings():
        figure, panes = new_figure(str(profile.origin), 1.7 * count, count, title)
        for axes, (thread, label) in zip(panes, threads.items(), strict=False):
            cut = [
                (depth, max(begin, begin_ns) - begin_ns, min(end, end_ns) - begin_ns, name)
                for depth, begin, end, name in boxes[thread]
            ]
            named = list(_named(cut, end_ns - begin_ns))
            for depth, begin, end, name in named:
                _bar(axes, depth, 1, begin, end, end_ns - begin_ns, name, "function")
            lowest = max((depth for depth, *_ in named), default=0)
            axes.set(ylim=(lowest + 0.5, -0.5), yticks=[], xticklabels=[], ylabel=label)
        last = panes[-1]
        last.stairs(share, (edges - begin_ns) / 1e6, fill=True, color=style.BLUE)
        last.set(ylim=(0, RANGES[3]), yticks=range(0, 101, 20), ylabel="GPU busy, %")
        last.set_xlabel("time since the start of the step, ms; ranges of the CPU are above the GPU")
        _draw_ranges(last, ranges, begin_ns, end_ns)
        add_legend(panes[0], LOOKS)
        for axes in panes:
            axes.set_xlim(0, (end_ns - begin_ns) / 1e6)
    figure.alternative_text = (
        f"Call stacks of {len(threads)} thread{'s' * (len(threads) > 1)} over"
        f" {(end_ns - begin_ns) / 1e6:.1f} ms, {len(stacks)} samples in all, above the"
        f" share of time when the GPU was busy: {share.mean():.0f}% on average."
    )
    figure.closer = _closer(profile, ranges, boxes, threads, begin_ns, end_ns, title)
    return figure


def _closer(
    profile: Profile,
    ranges: pd.DataFrame,
    boxes: Mapping[int, list[Box]],
    threads: Mapping[int, str],
    begin_ns: int,
    end_ns: int,
    title: str | None,
) -> str:
    """Return the data of the viewer that zooms into stacks and device work."""
    rows = [(lane, *box[1:], 0) for lane, one in enumerate(threads) for box in boxes[one]]
    for look, table, name in ((1, ranges, "phase"), (2, profile.device_events, "short_name")):
        ends = table["start_ns"] + table["duration_ns"]
        columns = (table["start_ns"], ends, table[name].astype(str))
        rows += [(len(threads) + look - 1, *row, look) for row in zip(*columns, strict=True)]
    drawn = pd.DataFrame(rows, columns=["row", "begin", "end", "name", "look"])
    drawn = drawn[(drawn["end"] > begin_ns) & (drawn["begin"] < end_ns)]
    starts, ends = (drawn[side].round().astype("int64") - begin_ns for side in ("begin", "end"))
    return viewer.boxes(
        drawn.assign(start=starts, length=ends - starts, whole_name=drawn["name"]),
        end_ns - begin_ns,
        [*threads.values(), "ranges of the CPU", "device"],
        LOOKS,
        origin=str(profile.origin),
        title=title,
        unit="ns",
        things="boxes",
        axis="A stack extends halfway to its neighbors; callers are above the functions they call",
    )


def _stacks(profile: Profile, begin_ns: int, end_ns: int) -> pd.DataFrame:
    """Return one row per sample in this time: taken_ns, thread, and the stack from the outermost
    function inwards.
    """
    frames = profile.events[profile.events["kind"] == "sample"]
    frames = frames.assign(taken_ns=frames["start_ns"] + frames["duration_ns"])
    frames = frames[frames["taken_ns"].between(begin_ns, end_ns, inclusive="left")]
    if not len(frames):
        raise ValueError("There is no call-stack sample in this time. Select a longer time.")
    moments = frames.sort_values(["taken_ns", "depth"]).groupby("sample", sort=False)
    return moments.agg(
        taken_ns=("taken_ns", "first"), thread=("thread", "first"), stack=("short_name", tuple)
    )


def _fits(share: float, name: str) -> bool:
    """Return True if the name fits into this share of the width."""
    return bool(fitting(name, int(share * INCHES * 72 / style.CHARACTER_POINTS - 1)))


def _named(boxes: Iterable[Box], whole: float) -> Iterator[Box]:
    """Yield the boxes that have room for their names, each under a caller that has room.

    boxes -- sorted by level, from the outermost function inwards.
    """
    # Readers couldn't place a box without a named caller above it.
    parents = [(-np.inf, np.inf)]
    for _, level in groupby(boxes, key=itemgetter(0)):
        named = [
            box
            for box in level
            if _fits((box[2] - box[1]) / whole, box[3])
            and any(left <= box[1] < right for left, right in parents)
        ]
        yield from named
        parents = [(begin, end) for _, begin, end, _ in named]


def _draw_ranges(axes: Axes, ranges: pd.DataFrame, begin_ns: int, end_ns: int) -> None:
    """Draw the parts of the step. A name that is wider than its range goes above it and ends with
    it, if there is room.
    """
    whole = end_ns - begin_ns
    left = ranges["start_ns"].clip(begin_ns, end_ns) - begin_ns
    right = (ranges["start_ns"] + ranges["duration_ns"]).clip(begin_ns, end_ns) - begin_ns
    parts = ranges.assign(left=left, right=right).query("left < right")
    for part in parts.itertuples():
        _bar(axes, *RANGES[:2], part.left, part.right, whole, part.phase, "range")
        if _fits((part.right - part.left) / whole, part.phase):
            continue
        wide = whole * len(part.phase) * style.CHARACTER_POINTS / 72 / INCHES
        if wide < part.right:
            at = (part.right / 1e6, RANGES[2])
            axes.text(*at, part.phase, ha="right", va="bottom", parse_math=False)


def _bar(
    axes: Axes, y: float, height: float, left: float, right: float, whole: float, name: str, what
) -> None:
    """Draw one box with its name; times are in ns."""
    look, width = LOOKS[what], (right - left) / 1e6
    edge = {"edgecolor": style.TEXT, "linewidth": 0.3}
    axes.barh(y, width, left=left / 1e6, height=height, color=look[0], **edge)
    name_bar(axes, left / 1e6 + width / 2, y, name, (right - left) / whole * INCHES, look)


def _boxes(stacks: pd.DataFrame) -> Iterator[Box]:
    """Yield depth, start, end and name of each function of one thread. Neighbors with the same
    callers become one box.
    """
    taken = stacks["taken_ns"].to_numpy()
    between = np.diff(taken)
    half = LONE_NS
    if len(between):
        half = np.pad(np.minimum(between, REACH * np.median(between)) / 2, 1, mode="edge")
    begins, ends = taken - half[:-1], taken + half[1:]
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*stacks["stack"], strict=False))
    # Keep only the innermost caller that all samples share.
    outer = max(0, len(list(shared)) - 1)
    rows = [stack[outer : outer + LEVELS] for stack in stacks["stack"]]
    for depth in range(LEVELS):
        first = 0
        for place, row in enumerate(rows):
            if place + 1 == len(rows) or rows[place + 1][: depth + 1] != row[: depth + 1]:
                if len(row) > depth:
                    yield depth, begins[first], ends[place], row[depth]
                first = place + 1
