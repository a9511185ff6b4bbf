"""Samples over time: one panel for each quantity, one line for each device, in words what the lines
show.
"""

from __future__ import annotations

import re

import pandas as pd
import pytest

from tidyprof.plots.counters import counters
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile
from tidyprof_tests.figures import (
    assert_readable,
    assert_repeatable,
    assert_says_what_it_shows,
    drawn,
)

ORIGIN = Origin("modeled", "by hand")
START = 1_700_000_000_000_000_000


def profile_of(*rows: tuple) -> Profile:
    """Rows of second, device, name, value and unit."""
    table = pd.DataFrame(rows, columns=["time_ns", "device", "name", "value", "unit"])
    table["time_ns"] = START + (table["time_ns"].astype(float) * 1e9).astype("int64")
    table = table.astype(
        {"device": "Int32", "name": "category", "value": "float64", "unit": "category"}
    )
    events = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in EVENT_DTYPES.items()})
    return Profile(events, table, {"origin": ORIGIN})


@pytest.fixture
def log() -> Profile:
    """Two GPUs over two seconds, and the machine's processor: GPU 1 is idle throughout."""
    rows = []
    for second, busy, power in ((0, 100.0, 300.0), (1, 50.0, 400.0), (2, 90.0, 500.0)):
        rows += [(second, 0, "gpu_busy", busy, "%"), (second, 1, "gpu_busy", 0.0, "%")]
        rows += [(second, 0, "power", power, "W"), (second, 1, "power", 150.0, "W")]
        rows += [
            (second, 0, "memory_used", 2.5e9, "bytes"),
            (second, None, "cpu_user", 10.0 * second, "%"),
        ]
    return profile_of(*rows)


def lines(axes) -> list[tuple[list[float], list[float]]]:
    """What is drawn, without the empty lines of the legend."""
    return [
        (list(line.get_xdata()), list(line.get_ydata()))
        for line in axes.lines
        if len(line.get_xdata())
    ]


def test_each_quantity_has_a_panel_with_a_line_for_each_device(log: Profile) -> None:
    figure = counters(log, ["gpu_busy", "power"])
    busy, power = figure.axes
    assert lines(busy) == [([0, 1, 2], [100, 50, 90]), ([0, 1, 2], [0, 0, 0])]
    assert lines(power)[1] == ([0, 1, 2], [150, 150, 150])
    assert [axes.get_ylabel() for axes in figure.axes] == ["GPU busy, %", "power, W"]
    assert figure.axes[-1].get_xlabel() == "time since the first sample, s"


def test_the_figure_is_sound(log: Profile) -> None:
    figure = drawn(counters(log, title="A finding"))
    assert_says_what_it_shows(figure)
    assert_readable(figure)
    assert_repeatable(lambda: counters(log))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"names": ["gpu_use"]},
            "cpu_user, gpu_busy, memory_used, power",
        ),
    ],
)
def test_what_is_not_in_the_log_is_named(change: dict, words: str, log: Profile) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        counters(log, **change)


def test_an_empty_log_is_refused() -> None:
    with pytest.raises(ValueError, match="none"):
        counters(profile_of())
