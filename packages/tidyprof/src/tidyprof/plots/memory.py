"""What PyTorch's allocator held, change after change."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.textpath import TextPath

from tidyprof.plots import style, viewer
from tidyprof.plots.figure import TidyFigure, new_figure, settings
from tidyprof.tables.contract import Profile

LOOKS = {
    "reserved memory": (style.VERMILLION, "--"),
    "allocated memory": (style.BLUE, "-"),
    "requested memory": (style.BLUE, "-"),
}
"""Quantity -> colour and dashes, as the readers name it. Reserved first: a segment is there before
its tensors.
"""

_NAME_POINTS = style.POINTS
_AXIS_INCHES = 0.94 * style.WIDTH_INCHES
"""Length of the axis: the figure without the labels on its left."""

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))


def memory(
    profile: Profile,
    names: Sequence[str] | None = None,
    device: int | None = None,
    title: str | None = None,
    phases: pd.DataFrame | None = None,
) -> TidyFigure:
    """One line for each quantity in steps, since an allocator holds what it has until the next
    change.

    The axis counts the changes, as PyTorch's own viewer does: in time, one slow first step would
    hide all others.

    names -- of `profile.counters`, of those in LOOKS; all that there are, if None. device -- number
             of the GPU.
    phases -- what to shade, one after the other: a row each, with name, start_ns and duration_ns.

    Raises ValueError where there is none of them, and where several ranks or devices are in the
    file and none is named.
    """
    table = _changes(profile, names, device)
    largest = table["value"].max()
    unit, size = next((unit for unit in UNITS if largest >= unit[1]), UNITS[-1])
    bands = [] if phases is None else _bands(table, phases)
    with settings():
        figure, (axes,) = new_figure(str(profile.origin), 3.0, title=title)
        _shade(axes, bands, len(table))
        for name, own in table.groupby("name", sort=False):
            colour, dashes = LOOKS[name]
            places, values = [*own.index, len(table)], [*own["value"], own["value"].iloc[-1]]
            heights = [value / size for value in values]
            axes.plot(
                places, heights, drawstyle="steps-post", color=colour, linestyle=dashes, label=name
            )
        axes.set(xlim=(0, len(table)), ylim=(0, (1.35 if bands else 1.08) * largest / size or 1))
        axes.set(xlabel="number of the change", ylabel=f"memory, {unit}")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(LOOKS), borderaxespad=0.3)
    last = table.groupby("name", sort=False)["value"].agg(["max", "last"]) / size
    said = [
        f"{name} reaches {one['max']:,.1f} {unit} and ends at {one['last']:,.1f}"
        for name, one in last.iterrows()
    ]
    shaded = f", shaded in this order: {', '.join(name for name, *_ in bands)}" if bands else ""
    figure.alternative_text = (
        f"Steps of memory over {len(table):,} changes{shaded}. The {', the '.join(said)}."
    )
    figure.closer = _closer(table, bands, str(profile.origin), title)
    return figure


def _closer(
    table: pd.DataFrame, bands: Sequence[tuple[str, int, int]], origin: str, title: str | None
) -> str:
    names = [name for name in LOOKS if (table["name"] == name).any()]
    dashed = {"--": "dashed", "-": ""}
    shaded = [(*band, style.PART_LOOK.get(band[0], style.PART_LOOK["other"])[0]) for band in bands]
    return viewer.curve(
        table.assign(look=table["name"].map(names.index)),
        shaded,
        [(name, LOOKS[name][0], dashed[LOOKS[name][1]]) for name in names],
        origin=origin,
        title=title,
        axis="Across: the number of the change",
    )


def _bands(table: pd.DataFrame, phases: pd.DataFrame) -> list[tuple[str, int, int]]:
    """Name of each phase, and its first change and the one after its last; without those in which
    nothing changed.
    """
    begin, end = phases["start_ns"], phases["start_ns"] + phases["duration_ns"]
    places = zip(*(table["time_ns"].searchsorted(times) for times in (begin, end)), strict=True)
    found = [
        (str(name), int(first), int(last))
        for name, (first, last) in zip(phases["name"], places, strict=True)
    ]
    return [band for band in found if band[2] > band[1]]


def _shade(axes: Axes, bands: Sequence[tuple[str, int, int]], changes: int) -> None:
    """A light ground for each phase, with its name where there is room, across where it is narrow,
    and a line where it begins.
    """
    for name, first, last in bands:
        colour, _ = style.PART_LOOK.get(name, style.PART_LOOK["other"])
        axes.axvspan(first, last, color=colour, alpha=0.18, linewidth=0)
        axes.axvline(first, color=style.MUTED_TEXT, linewidth=0.5)
        inches = (last - first) / changes * _AXIS_INCHES
        if inches > 1.5 * _NAME_POINTS / 72:  # room for a line of text at least
            across = TextPath((0, 0), name, size=_NAME_POINTS).get_extents().width / 72 > inches
            look = {
                "va": "top",
                "ha": "center",
                "fontsize": _NAME_POINTS,
                "parse_math": False,
                "rotation": 90 * across,
            }
            axes.text((first + last) / 2, 0.98, name, transform=axes.get_xaxis_transform(), **look)


def _changes(profile: Profile, names: Sequence[str] | None, device: int | None) -> pd.DataFrame:
    """The samples that differ from the one before, numbered in their order."""
    table = profile.counters.astype({"name": object})
    wanted = [name for name in LOOKS if names is None or name in names]
    found = [
        table[(table["name"] == name) & (device is None or table["device"] == device)]
        for name in wanted
    ]
    changes = pd.concat(own[own["value"].diff() != 0] for own in found) if found else table.iloc[:0]
    missing = sorted({*(names or ())} - {*changes["name"]})
    if missing or not len(changes):
        raise ValueError(
            f"no {', '.join(missing) or 'memory of PyTorch'} in this profile; record with"
            " `profile_memory=True`, or read a snapshot of the allocator"
        )
    columns = [column for column in ("rank", "device") if column in changes]
    if len(changes[columns].drop_duplicates()) > 1:
        raise ValueError("memory of several ranks or devices: read one rank, and name the device")
    return changes.sort_values("time_ns", kind="stable", ignore_index=True)
