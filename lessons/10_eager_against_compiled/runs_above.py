"""A figure with the steps of several runs on one time axis."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import tidyprof
from proflab.showing import point_at
from tidyprof.plots import TidyFigure, style
from tidyprof.plots.figure import add_legend, new_figure, settings

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

LOOKS = {
    "forward": (style.SKY_BLUE, ""),
    "backward": (style.BLUE, "//"),
    "optimizer": (style.REDDISH_PURPLE, ".."),
    "GPU busy": (style.BLUISH_GREEN, ""),
}
"""Color and hatch of each kind of bar."""


def runs_above(runs: Mapping[str, Profile], title: str) -> TidyFigure:
    """Draw one row for the CPU and one for the GPU of each run. A triangle marks the start of each
    phase `data`, which is too short to see.
    """
    words, ends = [], []
    with settings():
        origin = str(next(iter(runs.values())).origin)
        figure, (axes,) = new_figure(origin, height=3.6, title=title)
        for row, (name, run) in enumerate(runs.items()):
            phases, device = tidyprof.phases(run), run.device_events.assign(phase="GPU busy")
            start = tidyprof.steps(run)["start_ns"].min()
            data = (phases.loc[phases["phase"] == "data", "start_ns"] - start) / 1e6
            ends.append(((device["start_ns"] + device["duration_ns"]).max() - start) / 1e6)
            words.append(f"{name} at {', '.join(f'{ms:.1f}' for ms in data)} ms")
            axes.plot(data, [-2 * row + 0.5] * len(data), "v", color=style.TEXT, clip_on=False)
            for look, (color, hatch) in LOOKS.items():
                table, place = (device, -2 * row - 1) if look == "GPU busy" else (phases, -2 * row)
                bars = table[table["phase"] == look]
                begins, lengths = (bars["start_ns"] - start) / 1e6, bars["duration_ns"] / 1e6
                spans = zip(begins, lengths, strict=True)
                style_of = {"color": color, "hatch": hatch}
                edge = "none" if look == "GPU busy" else style.TEXT
                axes.broken_barh([*spans], (place - 0.4, 0.8), edgecolor=edge, **style_of)
        rows = [f"{name}, {where}" for name in runs for where in ("CPU", "GPU")]
        axes.set_yticks([-place for place in range(len(rows))], rows)
        axes.set(xlim=0, xlabel="time, ms (a triangle marks the request of the next batch)")
        add_legend(axes, LOOKS)
    figure.alternative_text = f"{title}: batches are requested {'; '.join(words)}."
    first, last = ends[0], ends[-1]
    point_at(figure, f"{first - last:.0f} ms earlier", (last, -2 * row - 0.8), (0.88, 0.4))
    return figure
