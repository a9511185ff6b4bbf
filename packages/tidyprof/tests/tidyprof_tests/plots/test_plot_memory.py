"""Memory of PyTorch's allocator: steps over the number of the change, in binary units, both
quantities on one axis.
"""

from __future__ import annotations

import pandas as pd
import pytest

from tidyprof import plots
from tidyprof_tests.figures import (
    assert_readable,
    assert_repeatable,
    assert_says_what_it_shows,
    drawn,
)
from tidyprof_tests.plots.test_plot_counters import profile_of

MEBIBYTE = 2**20
REQUESTED, RESERVED = "requested memory", "reserved memory"


def history(device: int = 0) -> list[tuple]:
    """A segment of 20 MiB for two tensors of 8 and 4 MiB, of which one goes long afterwards."""
    taken = (
        (0, REQUESTED, 8),
        (0, RESERVED, 20),
        (1, REQUESTED, 12),
        (1, RESERVED, 20),
        (900, REQUESTED, 4),
    )
    return [
        (second, device, name, mebibytes * float(MEBIBYTE), "bytes")
        for second, name, mebibytes in taken
    ]


def test_what_is_held_is_drawn_in_steps_until_the_end_and_by_number_of_the_change() -> None:
    (axes,) = plots.memory(profile_of(*history())).axes
    lines = {line.get_label(): line for line in axes.lines}
    assert {
        name: (list(line.get_xdata()), list(line.get_ydata())) for name, line in lines.items()
    } == {
        RESERVED: ([0, 4], [20, 20]),  # the second sample is no change
        REQUESTED: ([1, 2, 3, 4], [8, 12, 4, 4]),
    }
    assert {line.get_drawstyle() for line in axes.lines} == {"steps-post"}
    assert axes.get_ylabel() == "memory, MiB"


PHASES = pd.DataFrame(
    {"name": ["forward", "idle", "backward"], "start_ns": [0, 2, 900], "duration_ns": [2, 898, 1]}
)


def phases() -> pd.DataFrame:
    """Seconds of `history`, as its profile counts them."""
    begin = int(profile_of(*history()).counters["time_ns"].min())
    seconds = PHASES[["start_ns", "duration_ns"]] * 10**9
    return seconds.assign(name=PHASES["name"], start_ns=seconds["start_ns"] + begin)


def test_phases_are_shaded_and_named_from_their_first_change_to_their_last() -> None:
    figure = plots.memory(profile_of(*history()), phases=phases())
    (axes,) = figure.axes
    shaded = axes.collections[0].get_paths()
    assert [(*map(round, band.get_extents().intervalx),) for band in shaded] == [(0, 3), (3, 4)]
    assert [text.get_text() for text in axes.texts] == ["forward", "backward"]
    assert "over 4 changes, shaded in this order: forward, backward. The" in plots.describe(figure)


@pytest.mark.parametrize("shaded", [None, phases()], ids=["plain", "shaded"])
def test_the_figure_is_sound(shaded: pd.DataFrame | None) -> None:
    figure = drawn(plots.memory(profile_of(*history()), title="A finding", phases=shaded))
    assert_says_what_it_shows(figure)
    assert_readable(figure)
    assert_repeatable(lambda: plots.memory(profile_of(*history()), phases=shaded))


@pytest.mark.parametrize(
    ("names", "words"), [(None, "PyTorch"), (["requested memory"], "requested memory")]
)
def test_a_profile_without_it_is_not_drawn(names: list[str] | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        plots.memory(profile_of((0, 0, "power", 171.0, "W")), names)
