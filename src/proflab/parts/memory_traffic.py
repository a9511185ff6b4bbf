"""How many bytes workloads move at each memory level, as a table and a figure: a memory chart for two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.plots import TidyFigure
    from tidyprof.tables.contract import Profile

LEVELS = {
    "l1": "vector L1, in each compute unit",
    "l2": "L2, in each chiplet",
    "hbm": "fabric, towards the memory (HBM)",
}
"""Level -> its name, from the compute unit outwards."""

_BAR = 0.38


def memory_traffic(profiles: Mapping[str, Profile]) -> pd.DataFrame:
    """One row per workload and level: `workload`, `level` (a key of LEVELS), `bytes` of all its kernels together.

    Bytes as in `tidyprof.roofline_points`. Raises ValueError where a level was not counted.
    """
    import pandas as pd

    import tidyprof

    rows = []
    for workload, profile in profiles.items():
        points = tidyprof.roofline_points(profile)
        for level in LEVELS:
            moved = points[f"{level}_bytes"]
            if moved.isna().any():
                raise ValueError(f"{workload} did not count the traffic of {level}: profile all blocks")
            rows.append({"workload": workload, "level": level, "bytes": float(moved.sum())})
    table = pd.DataFrame(rows)
    table.attrs["origin"] = "; ".join(dict.fromkeys(str(profile.origin) for profile in profiles.values()))
    return table


def traffic_figure(table: pd.DataFrame, needed_bytes: float, title: str | None = None) -> TidyFigure:
    """Bars for each level, one per workload, and a line at the bytes that the work needs."""
    from tidyprof.plots import style
    from tidyprof.plots.figure import add_legend, new_figure, origin_of, settings

    names = list(dict.fromkeys(table["workload"]))
    looks = dict(zip(names, [(style.SKY_BLUE, ""), (style.ORANGE, "///")], strict=True))
    with settings():
        figure, (axes,) = new_figure(origin_of(table), height=3.6, title=title)
        for row in table.itertuples():
            place = list(LEVELS).index(row.level) + (names.index(row.workload) - 0.5) * _BAR
            colour, hatch = looks[row.workload]
            size = row.bytes / 1e6
            axes.barh(place, size, height=_BAR, color=colour, hatch=hatch, edgecolor=style.TEXT, linewidth=0.6)
            text = f"{size:.2f} MB, {row.bytes / needed_bytes:.1f} times what is needed"
            axes.annotate(text, (size, place), (6, 0), textcoords="offset points", va="center", fontsize=10)
        axes.axvline(needed_bytes / 1e6, color=style.TEXT, linestyle="--", linewidth=1.2)
        axes.set_yticks(range(len(LEVELS)), list(LEVELS.values()))
        axes.invert_yaxis()
        axes.set_xlim(0, table["bytes"].max() / 1e6 * 1.5)
        axes.set_xlabel(f"moved, MB (dashed: the {needed_bytes / 1e6:.2f} MB that the work needs)")
        add_legend(axes, looks)
    most = table.loc[table["bytes"].idxmax()]
    figure.alternative_text = (
        f"Pairs of bars for {len(LEVELS)} memory levels: the bytes that {' and '.join(names)} move there. The most is "
        f"{most.bytes / 1e6:.1f} MB by {most.workload} at {LEVELS[most.level]}, {most.bytes / needed_bytes:.0f} times "
        "what the work needs."
    )
    return figure
