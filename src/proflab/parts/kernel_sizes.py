"""How small the kernels of a run are: calls and time by the duration of the call, as a table and a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from tidyprof.plots import TidyFigure
    from tidyprof.tables.contract import Profile

LIMITS_NS = (0, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000)
"""Lower ends of the classes; the last one has no upper end."""

_BAR = 0.4


def kernel_sizes(profile: Profile) -> pd.DataFrame:
    """One row per class of durations: what ran on the devices for at least `from_ns` and less than `to_ns`.

    Columns: size (in words), from_ns, to_ns (<NA> for the last class), calls, total_ns, calls_percent and
    time_percent, the shares (0-100) of all calls and of their summed time. Leading and trailing classes without calls
    are left out. Raises ValueError if nothing ran on a device.
    """
    import numpy as np
    import pandas as pd

    duration = profile.device_events["duration_ns"].to_numpy(np.int64)
    if not len(duration):
        raise ValueError("the recording has no kernels: did rocprofv3 run with --kernel-trace?")
    place = np.searchsorted(LIMITS_NS, duration, side="right") - 1
    table = pd.DataFrame({"from_ns": LIMITS_NS, "to_ns": pd.array([*LIMITS_NS[1:], pd.NA], dtype="Int64")})
    table["calls"] = np.bincount(place, minlength=len(LIMITS_NS))
    table["total_ns"] = np.bincount(place, duration, minlength=len(LIMITS_NS)).astype("int64")
    table = table.loc[place.min() : place.max()].reset_index(drop=True)
    table.insert(0, "size", [_words(row.from_ns, row.to_ns) for row in table.itertuples()])
    table["calls_percent"] = 100 * table["calls"] / len(duration)
    table["time_percent"] = 100 * table["total_ns"] / duration.sum()
    table.attrs["origin"] = profile.origin
    return table


def share_below(table: pd.DataFrame, limit_ns: int, column: str = "calls_percent") -> float:
    """Share in percent of what is shorter than `limit_ns`, one of LIMITS_NS; raises ValueError for another one."""
    if limit_ns not in LIMITS_NS:
        raise ValueError(f"{limit_ns} ns is no limit between two classes; there are {LIMITS_NS}")
    return float(table.loc[table["from_ns"] < limit_ns, column].sum())


def sizes_figure(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """Two bars for each class of `kernel_sizes`: its share of the calls and its share of their time."""
    from tidyprof.plots import style
    from tidyprof.plots.figure import add_legend, new_figure, origin_of, settings

    looks = {"of all calls": (style.SKY_BLUE, ""), "of their time": (style.ORANGE, "///")}
    columns = ("calls_percent", "time_percent")
    with settings():
        figure, (axes,) = new_figure(origin_of(table), height=3.6, title=title)
        for side, column, look in zip((-1, 1), columns, looks.values(), strict=True):
            _bars(axes, table[column], side, look)
        axes.set_xticks(range(len(table)), table["size"])
        axes.set_xlim(-0.6, len(table) - 0.4)
        axes.set_ylim(0, 1.15 * table[list(columns)].to_numpy().max())
        axes.set_xlabel("duration of one call on the GPU")
        axes.set_ylabel("share, %")
        add_legend(axes, looks)
    largest, longest = (table.loc[table[column].idxmax()] for column in columns)
    figure.alternative_text = (
        f"Pairs of bars for {len(table)} classes of durations: each one's share of {table['calls'].sum():,} calls and "
        f"of their time. Most calls are in the class {largest['size']} ({largest.calls_percent:.0f} %), most time in "
        f"{longest['size']} ({longest.time_percent:.0f} %)."
    )
    return figure


def _bars(axes: Axes, shares: pd.Series, side: int, look: tuple[str, str]) -> None:
    from tidyprof.plots import style

    colour, hatch = look
    for place, share in enumerate(shares):
        middle = place + side * _BAR / 2
        axes.bar(middle, share, width=_BAR, color=colour, hatch=hatch, edgecolor=style.TEXT, linewidth=0.6)
        text = f"{share:.0f}" if share >= 0.5 or share == 0 else "<1"
        axes.annotate(text, (middle, share), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=10)


def _words(from_ns: int, to_ns: int) -> str:
    """A class for people, such as `2 to 5 µs`."""
    import pandas as pd

    if pd.isna(to_ns):
        return f"{from_ns / 1e6:g} ms or more"
    if from_ns == 0:
        return f"under {to_ns / 1e3:g} µs"
    unit, size = ("ms", 1e6) if to_ns >= 1e6 else ("µs", 1e3)
    return f"{from_ns / size:g} to {to_ns / size:g} {unit}"
