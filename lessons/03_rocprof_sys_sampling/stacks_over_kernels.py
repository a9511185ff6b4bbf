"""Call stacks of each thread over time, above the share of time in which the GPU was busy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby, takewhile
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from tidyprof.plots import TidyFigure
    from tidyprof.tables.contract import Profile

Box = tuple[int, float, float, str]
"""A function in a stack: its depth, begin and end in ns, and its name."""

MOST_THREADS = 2
"""Number of threads that are drawn, those with the most different stacks first: a sleeping thread
has one stack all the time.
"""

_BINS = 300
_LEVELS = 7
_INCHES = 7.6
"""Width of the axes, in inches."""

_LONE_NS = np.array([500_000, 500_000])
"""Time in ns that a thread's only sample reaches to either side."""

_REACH = 3
"""A sample stands for at most this many usual distances between two samples of its thread: a thread
that sleeps has no samples.
"""

_RANGES_AT, _RANGES_HEIGHT, _NAMES_AT, _TOP = 115, 20, 127, 147
"""Middle and height of the ranges, above the 100 % of the GPU, where the names of narrow ones
stand, and the end of the axis; in percent of the GPU.
"""


def stacks_over_kernels(
    profile: Profile, begin_ns: int, end_ns: int, title: str | None = None
) -> TidyFigure:
    """What each thread was doing, by its samples, and how busy the GPU was in which range, on one
    time axis.

    The main thread is the one that marks the ranges. A sample is drawn up to half the way to the
    next one of its thread. Callers that all samples share are left out, and so are functions that
    are too narrow for a name. Raises ValueError if no call stack was sampled from begin_ns to
    end_ns.
    """
    from tidyprof.plots import style
    from tidyprof.plots.figure import add_legend, new_figure, settings
    from tidyprof.tables.intervals import Intervals

    stacks = _stacks(profile, begin_ns, end_ns)
    most = stacks.groupby("thread")["stack"].nunique().nlargest(MOST_THREADS).index
    marking = set(profile.events.loc[profile.events["kind"] == "annotation", "thread"].dropna())
    threads = {
        one: "main thread" if one in marking else f"thread {place}"
        for place, one in enumerate(most, start=1)
    }
    # In whole ns: a float can't hold every ns of a time since 1970.
    edges = begin_ns + (end_ns - begin_ns) * np.arange(_BINS + 1, dtype=np.int64) // _BINS
    device = profile.device_events
    busy = Intervals.union(device["start_ns"], device["start_ns"] + device["duration_ns"])
    share = 100 * busy.covered_within(edges[:-1], edges[1:]) / np.diff(edges)
    with settings():
        figure, panes = new_figure(
            str(profile.origin), 2.1 * (len(threads) + 1), len(threads) + 1, title
        )
        for axes, (thread, label) in zip(panes, threads.items(), strict=False):
            _icicles(axes, stacks[stacks["thread"] == thread], begin_ns, end_ns)
            axes.set_ylabel(label)
        panes[-1].stairs(share, (edges - begin_ns) / 1e6, fill=True, color=style.BLUE)
        panes[-1].set(
            ylim=(0, _TOP),
            yticks=range(0, 101, 20),
            ylabel="GPU busy, %",
        )
        panes[-1].set_xlabel(
            "time since the beginning of the window, ms; above the GPU the ranges of the host"
        )
        _ranges(panes[-1], profile, begin_ns, end_ns)
        add_legend(panes[0], _looks())
        for axes in panes:
            axes.set_xlim(0, (end_ns - begin_ns) / 1e6)
    figure.alternative_text = (
        f"Call stacks of {len(threads)} thread{'s' * (len(threads) > 1)} over"
        f" {(end_ns - begin_ns) / 1e6:.1f} ms, {len(stacks)} samples in all, above the"
        f" share of time in which the GPU ran something: {share.mean():.0f} % on average."
        + _in_the_gap(profile, stacks, marking, begin_ns, end_ns)
    )
    figure.closer = _closer(profile, stacks, threads, begin_ns, end_ns, title)
    return figure


def _looks() -> dict[str, tuple[str, str]]:
    """What is drawn -> colour and hatch."""
    from tidyprof.plots import style

    return {
        "function": (style.SKY_BLUE, ""),
        "range": (style.GREY, ""),
        "on the device": (style.BLUE, ""),
    }


def _in_the_gap(
    profile: Profile, stacks: pd.DataFrame, marking: set[int], begin_ns: int, end_ns: int
) -> str:
    """A sentence: the function in which most samples of the main thread end, in the longest gap of
    this time; "" without a gap or without samples in it.
    """
    import tidyprof

    gaps = tidyprof.gaps(profile)
    begins = gaps["start_ns"].clip(begin_ns, end_ns)
    lengths = (gaps["start_ns"] + gaps["duration_ns"]).clip(begin_ns, end_ns) - begins
    if not lengths.any():
        return ""
    begin, length = begins[lengths.idxmax()], lengths.max()
    inside = stacks[
        stacks["thread"].isin(marking) & stacks["taken_ns"].between(begin, begin + length)
    ]
    if not len(inside):
        return ""
    ends = inside["stack"].str[-1].value_counts()
    return (
        f" In the longest gap of the GPU, {length / 1e6:.1f} ms, {ends.iloc[0]} of the"
        f" {len(inside)} samples of the main thread end in {ends.index[0]}."
    )


def _closer(
    profile: Profile,
    stacks: pd.DataFrame,
    threads: Mapping[int, str],
    begin_ns: int,
    end_ns: int,
    title: str | None,
) -> str:
    """The page of the viewer: every function, however narrow, the ranges, and the device's
    events.
    """
    import pandas as pd

    import tidyprof
    from tidyprof.plots import viewer

    lanes: list[str] = []
    rows: list[tuple[int, float, float, str, int]] = []
    for thread, label in threads.items():
        found = list(_boxes(stacks[stacks["thread"] == thread]))
        rows += [(len(lanes) + depth, begin, end, name, 0) for depth, begin, end, name in found]
        lanes += [label] + [""] * max((depth for depth, *_ in found), default=0)
    ranges = tidyprof.phases(profile)
    device = profile.device_events
    for label, table, names, look in (
        ("ranges of the host", ranges, ranges["phase"], 1),
        ("device", device, device["short_name"], 2),
    ):
        ends = table["start_ns"] + table["duration_ns"]
        for begin, end, name in zip(table["start_ns"], ends, names, strict=True):
            rows.append((len(lanes), begin, end, str(name), look))
        lanes.append(label)
    drawn = pd.DataFrame(rows, columns=["row", "begin", "end", "name", "look"])
    drawn = drawn[(drawn["end"] > begin_ns) & (drawn["begin"] < end_ns)]
    begins, ends = (drawn[side].round().astype("int64") - begin_ns for side in ("begin", "end"))
    return viewer.boxes(
        drawn.assign(start=begins, length=ends - begins, whole_name=drawn["name"]),
        end_ns - begin_ns,
        lanes,
        _looks(),
        origin=str(profile.origin),
        title=title,
        unit="ns",
        things="boxes",
        axis="A stack reaches half the way to the samples beside it, callers above what they call",
        deep=True,
    )


def _stacks(profile: Profile, begin_ns: int, end_ns: int) -> pd.DataFrame:
    """One row for each sample taken in this time: taken_ns, thread, and the stack from the
    outermost function inwards.
    """
    frames = profile.events[profile.events["kind"] == "sample"]
    frames = frames.assign(taken_ns=frames["start_ns"] + frames["duration_ns"])
    frames = frames[frames["taken_ns"].between(begin_ns, end_ns, inclusive="left")].sort_values(
        ["taken_ns", "depth"]
    )
    if not len(frames):
        raise ValueError(
            "no call stack was sampled in this time; sample more often, or look at a longer time"
        )
    moments = frames.groupby("sample", sort=False)
    return moments.agg(
        taken_ns=("taken_ns", "first"), thread=("thread", "first"), stack=("short_name", tuple)
    )


def _icicles(axes: Axes, stacks: pd.DataFrame, begin_ns: int, end_ns: int) -> None:
    cut = [
        (depth, max(begin, begin_ns), min(end, end_ns), name)
        for depth, begin, end, name in _boxes(stacks)
    ]
    boxes = list(
        _named(cut, lambda begin, end, name: _fits((end - begin) / (end_ns - begin_ns), name))
    )
    for depth, begin, end, name in boxes:
        _box(axes, depth, 1, begin - begin_ns, end - begin_ns, end_ns - begin_ns, name, "function")
    axes.set(
        ylim=(max((depth for depth, *_ in boxes), default=0) + 0.5, -0.5), yticks=[], xticklabels=[]
    )


def _fits(share: float, name: str) -> bool:
    """Whether a name has room in this share of the width."""
    from tidyprof.plots import style
    from tidyprof.plots.bars import fitting

    return bool(fitting(name, int(share * _INCHES * 72 / style.CHARACTER_POINTS - 1)))


def _named(boxes: Iterable[Box], fits: Callable[[float, float, str], bool]) -> Iterator[Box]:
    """The boxes with room for their name, each under a caller that has it; narrow neighbours become
    one box, if that has room.

    boxes -- level by level, from the outermost function inwards.
    """
    # A reader could not place a box without a named caller above it.
    parents = [(-np.inf, np.inf)]
    for depth, level in groupby(boxes, key=itemgetter(0)):
        found, named, narrow = list(level), [], []
        for left, right in parents:
            run: list[Box] = []
            for box in [one for one in found if left <= one[1] < right]:
                if run and (box[1] > run[-1][2] or fits(*box[1:])):
                    narrow.append(run)
                    run = []
                named += [box] * fits(*box[1:])
                run += [box] * (not fits(*box[1:]))
            narrow.append(run)
        several = [
            (depth, run[0][1], run[-1][2], f"{len({name for *_, name in run})} functions")
            for run in narrow
            if len(run) > 1
        ]
        yield from (*named, *(box for box in several if fits(*box[1:])))
        parents = [(begin, end) for _, begin, end, _ in named]


def _ranges(axes: Axes, profile: Profile, begin_ns: int, end_ns: int) -> None:
    """The parts of the step, as the program names them, above the GPU's work in them. A name that
    is wider than its range stands above it, unless one of a longer range stands there.
    """
    import tidyprof
    from tidyprof.plots import style

    whole = end_ns - begin_ns
    parts = tidyprof.phases(profile)
    parts = parts.assign(
        left=parts["start_ns"].clip(begin_ns, end_ns) - begin_ns,
        right=(parts["start_ns"] + parts["duration_ns"]).clip(begin_ns, end_ns) - begin_ns,
    )
    taken: list[tuple[float, float]] = []
    for part in parts.query("left < right").sort_values("duration_ns")[::-1].itertuples():
        name = part.phase
        _box(axes, _RANGES_AT, _RANGES_HEIGHT, part.left, part.right, whole, name, "range")
        if _fits((part.right - part.left) / whole, name):
            continue
        wide = whole * len(name) * style.CHARACTER_POINTS / 72 / _INCHES
        begin = min(part.left, whole - wide)
        if all(begin + wide < left or right < begin for left, right in taken):
            taken.append((begin, begin + wide))
            at = (begin + wide / 2) / 1e6, _NAMES_AT
            axes.text(*at, name, ha="center", va="bottom", parse_math=False)


def _box(
    axes: Axes,
    y: float,
    height: float,
    left_ns: float,
    right_ns: float,
    whole_ns: float,
    name: str,
    kind: str,
) -> None:
    from tidyprof.plots import style
    from tidyprof.plots.bars import name_bar

    look, left, width = _looks()[kind], left_ns / 1e6, (right_ns - left_ns) / 1e6
    axes.barh(
        y, width, left=left, height=height, color=look[0], edgecolor=style.TEXT, linewidth=0.3
    )
    name_bar(axes, left + width / 2, y, name, (right_ns - left_ns) / whole_ns * _INCHES, look)


def _boxes(stacks: pd.DataFrame) -> Iterator[Box]:
    """Depth, begin, end and name of every function of one thread; neighbours with the same callers
    are one box.
    """
    taken = stacks["taken_ns"].to_numpy()
    between = np.diff(taken)
    half = (
        np.pad(np.minimum(between, _REACH * np.median(between)) / 2, 1, mode="edge")
        if len(between)
        else _LONE_NS
    )
    begins, ends = taken - half[:-1], taken + half[1:]
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*stacks["stack"], strict=False))
    # Of the shared callers the innermost one stays, as the ground of the stacks.
    outer = max(0, len(list(shared)) - 1)
    rows = [stack[outer : outer + _LEVELS] for stack in stacks["stack"]]
    for depth in range(_LEVELS):
        first = 0
        for place, row in enumerate(rows):
            if place + 1 == len(rows) or rows[place + 1][: depth + 1] != row[: depth + 1]:
                if len(row) > depth:
                    yield depth, begins[first], ends[place], row[depth]
                first = place + 1
