"""Steps of several runs on one time axis, one run above the other: phases of the host, and when the device works."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.plots import TidyFigure
    from tidyprof.tables.contract import Profile


def runs_above(
    runs: Mapping[str, Profile], origin: object, first: int = 0, steps: int = 3, title: str | None = None
) -> TidyFigure:
    """For each run a row of the host and one of the device, from its step number `first` on.

    The axis is as long as `steps` steps of the first run. A triangle marks where a phase `data` begins: it is too short
    to be seen. Raises IndexError where a run has no step number `first`.
    """
    import tidyprof
    from tidyprof.plots import style
    from tidyprof.plots.figure import add_legend, new_figure, settings

    looks = {"forward": (style.SKY_BLUE, ""), "backward": (style.BLUE, "//"), "optimizer": (style.REDDISH_PURPLE, "..")}
    looks |= {"device works": (style.BLUISH_GREEN, "")}
    length_ms = tidyprof.steps(next(iter(runs.values())))["duration_ns"].iloc[first : first + steps].sum() / 1e6
    words = []
    with settings():
        figure, (axes,) = new_figure(str(origin), height=4.2, title=title)
        for place, (name, run) in enumerate(runs.items()):
            rows = _since(run, first)
            data = rows.loc[rows["phase"] == "data", "begin_ms"]
            data = data[data < length_ms]
            words.append(f"{name} at {', '.join(f'{begin:.1f}' for begin in data)} ms")
            axes.plot(data, [-2 * place + 0.55] * len(data), "v", color=style.TEXT, clip_on=False)
            for phase, own in rows.groupby("phase"):
                row, edge = (-2 * place - 1, "none") if phase == "device works" else (-2 * place, style.TEXT)
                if phase in looks:
                    look = dict(zip(("color", "hatch"), looks[phase], strict=True), edgecolor=edge)
                    axes.broken_barh(own[["begin_ms", "length_ms"]].to_numpy(), (row - 0.4, 0.8), **look)
        names = [f"{name}, {where}" for name in runs for where in ("host", "device")]
        axes.set_yticks([-place for place in range(len(names))], names)
        axes.set(xlim=(0, length_ms), xlabel="time, ms (a triangle: the next batch is asked for)")
        add_legend(axes, looks)
    figure.alternative_text = f"Host and device of {len(runs)} runs. They ask for data {'; '.join(words)}."
    return figure


def _since(run: Profile, first: int) -> pd.DataFrame:
    """Phases and work of the device in ms since the step began: columns phase, begin_ms, length_ms."""
    import pandas as pd

    import tidyprof

    device = run.device_events[["start_ns", "duration_ns"]].assign(phase="device works")
    rows = pd.concat([tidyprof.phases(run)[["phase", "start_ns", "duration_ns"]], device])
    begin = tidyprof.steps(run)["start_ns"].iloc[first]
    rows = rows[rows["start_ns"] >= begin]
    times = {"begin_ms": (rows["start_ns"] - begin) / 1e6, "length_ms": rows["duration_ns"] / 1e6}
    return rows.assign(**{name: column.astype(float) for name, column in times.items()})
