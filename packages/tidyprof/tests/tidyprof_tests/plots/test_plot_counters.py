"""Samples over time: one panel for each quantity, one line for each device, in words what the lines
show.
"""

from __future__ import annotations

import re

import pandas as pd
import pytest

from tidyprof import plots
from tidyprof.plots.counters import FEW, LINES, counters
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile
from tidyprof_tests.figures import (
    assert_readable,
    assert_repeatable,
    assert_says_what_it_shows,
    drawn,
)

ORIGIN = Origin("modelled", "by hand")
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


def test_without_names_the_usual_ones_that_there_are_are_drawn(log: Profile) -> None:
    labels = [axes.get_ylabel() for axes in counters(log).axes]
    assert labels == ["GPU busy, %", "power, W", "memory used, GB"]
    assert lines(counters(log).axes[2]) == [([0, 1, 2], [2.5, 2.5, 2.5])]


def test_shares_have_the_whole_scale_and_others_begin_at_nothing(log: Profile) -> None:
    figure = counters(log, ["cpu_user", "power"])
    assert figure.axes[0].get_ylim() == (0, 100)
    assert figure.axes[1].get_ylim() == (0, pytest.approx(1.08 * 500))


def test_a_share_above_the_whole_is_not_cut_off() -> None:
    figure = counters(
        profile_of((0, None, "process_cpu", 180.0, "%"), (1, None, "process_cpu", 0.0, "%")),
        ["process_cpu"],
    )
    assert figure.axes[0].get_ylim()[1] > 180


def test_devices_can_be_chosen_and_keep_the_machine(log: Profile) -> None:
    figure = counters(log, ["gpu_busy", "cpu_user"], devices=[1])
    assert lines(figure.axes[0]) == [([0, 1, 2], [0, 0, 0])]
    assert lines(figure.axes[1]) == [([0, 1, 2], [0, 10, 20])]


def test_several_devices_are_told_apart_by_more_than_colour(log: Profile) -> None:
    first, second = (
        line for line in counters(log, ["power"]).axes[0].lines if len(line.get_xdata())
    )
    assert first.get_linestyle() != second.get_linestyle()
    assert first.get_marker() != second.get_marker()
    legend = counters(log, ["power"]).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["device 0", "device 1"]
    assert len({look[1:] for look in LINES}) == len(LINES)


def test_samples_are_marked_only_where_they_are_few() -> None:
    few = profile_of(*((second, 0, "power", 1.0, "W") for second in range(FEW)))
    many = profile_of(*((second, 0, "power", 1.0, "W") for second in range(FEW + 1)))
    assert counters(few).axes[0].lines[0].get_marker() == "o"
    assert counters(many).axes[0].lines[0].get_marker() == ""


def test_words_come_from_the_samples(log: Profile) -> None:
    text = plots.describe(counters(log, ["gpu_busy", "power"]))
    assert (
        text
        == "Lines of GPU busy and power over 2.00 s in 3 samples. The mean of GPU busy is highest"
        " on device 0 with 80 % and lowest on device 1 with 0 %."
    )
    alone = plots.describe(counters(log, ["power"], devices=[0]))
    assert (
        alone
        == "Lines of power over 2.00 s in 3 samples. The mean of power is 400 W, from 300 to 500."
    )
    assert len(re.findall(r"\. [A-Z]|\.$", text)) == 2


def test_the_figure_is_sound(log: Profile) -> None:
    figure = drawn(counters(log, title="A finding"))
    assert_says_what_it_shows(figure)
    assert_readable(figure)
    assert_repeatable(lambda: counters(log))


def test_one_sample_is_drawn() -> None:
    figure = counters(profile_of((0, 0, "power", 171.0, "W")))
    assert lines(figure.axes[0]) == [([0], [171])]
    assert "in 1 sample." in plots.describe(figure)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"names": ["gpu_use"]},
            "nothing was sampled of gpu_use; there is cpu_user, gpu_busy, memory_used, power",
        ),
        ({"devices": [0, 7]}, "there is no device 7; there are 0, 1"),
    ],
)
def test_what_is_not_in_the_log_is_named(change: dict, words: str, log: Profile) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        counters(log, **change)


def test_a_log_without_a_gpu_is_not_drawn_unless_asked() -> None:
    machine = profile_of((0, None, "cpu_user", 5.0, "%"))
    with pytest.raises(
        ValueError, match="nothing was sampled of a GPU; name quantities to draw, of cpu_user"
    ):
        counters(machine)
    assert lines(counters(machine, ["cpu_user"]).axes[0]) == [([0], [5])]


def test_an_empty_log_is_refused() -> None:
    with pytest.raises(
        ValueError, match="nothing was sampled of a GPU; name quantities to draw, of none"
    ):
        counters(profile_of())
