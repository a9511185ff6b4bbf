"""The `ktop` trap of rpd: kernels by the time of their launch calls on the host beside their time on the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes

from tidyprof.plots import style
from tidyprof.plots.figure import TidyFigure, axis_unit, duration_text, new_figure, origin_of, settings

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.trace_database import TraceDatabase

LAUNCH_AND_GPU = """
SELECT o.description AS name, count(*) AS calls, sum(o."end" - o.start) AS gpu_ns, sum(a."end" - a.start) AS launch_ns
FROM rocpd_api_ops l JOIN op o ON o.id = l.op_id JOIN api a ON a.id = l.api_id
WHERE o.opType = 'KernelExecution' GROUP BY o.description ORDER BY gpu_ns DESC
"""
"""Kernels with their time on the GPU and the time of the calls that launched them, by rpd's link between the two
(rocpd_python/rocpd/schema_data of https://github.com/ROCm/rocmProfileData)."""

SHOWN = 5
"""Kernels from the top of each ranking in the figure."""

_GPU_LOOK = (style.BLUE, "")
_LAUNCH_LOOK = (style.VERMILLION, "///")
_ROW_INCHES = 0.42


def two_rankings(database: TraceDatabase) -> pd.DataFrame:
    """One row per kernel name of an .rpd file, longest GPU time first.

    Columns: name, short_name, calls, gpu_ns, launch_ns (its launch calls on the host, which is what `ktop` adds up),
    gpu_place and launch_place (1 is the first).
    """
    from tidyprof.names.short_names import short_name

    table = database.ask(LAUNCH_AND_GPU)
    table.insert(1, "short_name", table["name"].map(short_name))
    for what in ("gpu", "launch"):
        table[f"{what}_place"] = table[f"{what}_ns"].rank(ascending=False, method="first").astype("int64")
    return table


def plot_two_rankings(table: pd.DataFrame, title: str | None = None) -> TidyFigure:
    """The first kernels of both rankings of `two_rankings`, with their time on the GPU and in their launch calls.

    Raises ValueError for a table without rows or origin.
    """
    if not len(table):
        raise ValueError("there is nothing to plot: the file has no kernel with a launch record")
    shown = table[(table["gpu_place"] <= SHOWN) | (table["launch_place"] <= SHOWN)].sort_values("gpu_place")
    with settings():
        height = 1.5 + _ROW_INCHES * len(shown)
        figure, (left,) = new_figure(str(origin_of(table)), height=height, title=title)
        left.remove()
        left, right = figure.subplots(1, 2, sharey=True)
        _bars(left, shown, "gpu", _GPU_LOOK, "time on the GPU")
        _bars(right, shown, "launch", _LAUNCH_LOOK, "time of the launch calls on the host, as in ktop")
        left.set_yticks(range(len(shown)), shown["short_name"])
        for label in left.get_yticklabels():
            label.set_parse_math(False)
        left.invert_yaxis()
    figure.alternative_text = _words(table, shown)
    return figure


def _bars(axes: Axes, shown: pd.DataFrame, what: str, look: tuple[str, str], label: str) -> None:
    times, places = shown[f"{what}_ns"], shown[f"{what}_place"]
    unit, size = axis_unit(times.max())
    colour, hatch = look
    axes.barh(range(len(shown)), times / size, color=colour, hatch=hatch, edgecolor=style.TEXT, linewidth=0.6)
    for row, (time, place) in enumerate(zip(times, places, strict=True)):
        axes.annotate(
            f"{duration_text(time)}, place {place}",
            (time / size, row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=9,
            color=style.MUTED_TEXT,
        )
    # Room for the text at the end of the longest bar.
    axes.set_xlim(0, times.max() / size * 1.6)
    axes.set_title(label, fontsize=11)
    axes.set_xlabel(unit)
    axes.tick_params(axis="y", length=0)


def _words(table: pd.DataFrame, shown: pd.DataFrame) -> str:
    first, launched = table.sort_values("gpu_place").iloc[0], table.sort_values("launch_place").iloc[0]
    return (
        f"Two bars for each of {len(shown)} kernels of {len(table)}, by time on the GPU and by time of their launch "
        f"calls. {first.short_name} takes {duration_text(first.gpu_ns)} on the GPU, place 1, and is at place "
        f"{first.launch_place} by launch calls, where {launched.short_name} comes first with "
        f"{duration_text(launched.launch_ns)}."
    )
