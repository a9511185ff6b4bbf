"""Plots: origin in the corner, text alternative from the data, readable text, same bytes for the
same data.
"""

from __future__ import annotations

import base64
import io
import itertools
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from tidyprof import analyses, plots
from tidyprof.names.short_names import CATEGORIES
from tidyprof.plots import style
from tidyprof.plots.figure import axis_unit, duration_text
from tidyprof.tables.contract import KINDS
from tidyprof_tests.analyses.test_analyses import ORIGIN, event, host_step, profile_of
from tidyprof_tests.figures import (
    assert_readable,
    assert_repeatable,
    assert_says_what_it_shows,
    corner,
    drawn,
    texts,
)

LONG_NAME = (
    "void at::native::(anonymous namespace)::a_kernel_with_quite_a_long_name_indeed<c10::BFloat16,"
    " 128, 64>(int)"
)


@pytest.fixture(scope="module")
def run():
    """Two ranks, two steps: kernels with awkward names, a collective, copies, ranges, operators and
    calls.
    """
    rows = []
    for rank, step in itertools.product((0, 1), (4, 5)):
        start = 10_000_000 * (step - 4)
        place = {"rank": rank, "device": rank + 2}
        rows += [
            host_step(step, start, start + 10_000_000, rank=rank),
            event("annotation", "data", start, start + 1_000_000, rank=rank),
            event("operator", "aten::conv2d", start + 1_000_000, start + 4_000_000, rank=rank),
            event("operator", "<b>bold</b>", start + 1_500_000, start + 1_600_000, rank=rank),
            event("runtime", "hipLaunchKernel", start + 2_000_000, start + 2_100_000, rank=rank),
            event(
                "kernel",
                LONG_NAME,
                start + 2_200_000,
                start + 5_000_000,
                launch_ns=start + 2_000_000,
                **place,
            ),
            event(
                "kernel",
                "cost$x$_kernel",
                start + 5_500_000,
                start + 6_000_000,
                launch_ns=start + 2_100_000,
                **place,
            ),
            event(
                "copy",
                "Memcpy HtoD (Host -> Device)",
                start + 1_200_000,
                start + 2_000_000,
                stream=1,
                **place,
            ),
            event(
                "collective",
                "ncclDevKernel_Generic",
                start + 4_000_000,
                start + 8_000_000,
                stream=2,
                **place,
            ),
        ]
    return profile_of(*rows)


FIGURES = {
    "call_stacks": lambda run: plots.call_stacks(analyses.call_stacks(run)),
    "top_kernels": lambda run: plots.top_kernels(analyses.kernels(run), title="A finding"),
    "top_kernels per device": lambda run: plots.top_kernels(analyses.kernels(run, per_device=True)),
    "top_kernels cut": lambda run: plots.top_kernels(analyses.kernels(run), n=1),
    "step_budget": lambda run: plots.step_budget(analyses.step_budget(run)),
    "step_times": lambda run: plots.step_times(analyses.steps(run).query("rank == 0")),
    "timeline": lambda run: plots.timeline(run),
    "ranks": lambda run: plots.ranks(analyses.ranks(run), title="A finding"),
    "collectives": lambda run: plots.collectives(analyses.collectives(run)),
    "timeline step": lambda run: plots.timeline(run, step=5, rank=0, title="One step of one rank"),
}


@pytest.fixture(scope="module")
def figures(run) -> dict:
    """Each figure, laid out once."""
    return {name: drawn(make(run)) for name, make in FIGURES.items()}


@pytest.fixture
def figure(name, figures):
    return figures[name]


@pytest.mark.parametrize("name", FIGURES)
class TestEveryFigure:
    def test_says_what_it_shows(self, name, figure):
        assert_says_what_it_shows(figure)
        assert corner(figure) == str(ORIGIN)

    def test_is_readable(self, name, figure):
        assert_readable(figure)

    @pytest.mark.long
    def test_same_data_same_bytes(self, name, run):
        assert_repeatable(lambda: FIGURES[name](run))


LOST = [
    (plots.call_stacks, analyses.call_stacks),
    (plots.top_kernels, analyses.kernels),
    (plots.step_budget, analyses.step_budget),
    (plots.step_times, lambda run: analyses.steps(run).query("rank == 0")),
    (plots.ranks, analyses.ranks),
    (plots.collectives, lambda run: analyses.collectives(run)),
]


@pytest.mark.parametrize(("plot", "analysis"), LOST, ids=[plot.__name__ for plot, _ in LOST])
class TestRefusals:
    def test_numbers_of_unknown_origin(self, plot, analysis, run):
        table = pd.DataFrame(analysis(run).to_dict("list"))
        with pytest.raises(ValueError, match="origin"):
            plot(table)

    def test_empty_table(self, plot, analysis, run):
        with pytest.raises(ValueError, match="nothing to plot"):
            plot(analysis(run).iloc[:0])

    def test_table_of_another_analysis(self, plot, analysis, run):
        with pytest.raises(ValueError, match=r"lacks .*tidyprof\.analyses\."):
            plot(analyses.gaps(run, minimum_ns=1))


class TestTimeline:
    def test_one_lane_per_stream(self, run):
        labels = [
            label.get_text() for label in plots.timeline(run, rank=1).axes[0].get_yticklabels()
        ]
        assert labels == [
            "steps",
            "ranges",
            "operators",
            "runtime calls",
            "stream 0",
            "stream 1",
            "stream 2",
        ]


def test_only_the_thread_that_marks_the_steps_first_is_the_main_thread() -> None:
    """The thread of the backward pass can mark ranges, too."""
    threads = [{"thread": number} for number in (1, 2)]
    backward = "autograd::engine::evaluate_function: AddmmBackward0"
    run = profile_of(
        host_step(0, 0, 100, **threads[0]),
        event("operator", "aten::addmm", 5, 20, **threads[0]),
        event("operator", backward, 30, 60, **threads[1]),
        event("annotation", "reduce", 40, 50, **threads[1]),
    )
    labels = [label.get_text() for label in plots.timeline(run).axes[0].get_yticklabels()]
    assert labels == ["steps", "ranges", "operators, main thread", "operators, backward thread"]


class TestNotebook:
    def test_image_carries_the_text_alternative(self, run):
        figure = plots.top_kernels(analyses.kernels(run))
        shown = figure._repr_html_()
        assert 'alt="Bars of' in shown
        figure.alternative_text = '<script>"'
        assert "&lt;script&gt;&quot;" in figure._repr_html_()

    def test_a_notebook_gets_the_saved_picture(self, run):
        figure = plots.top_kernels(analyses.kernels(run))
        (data,) = re.findall(r'src="data:image/png;base64,(\S+)"', figure._repr_html_())
        saved = io.BytesIO()
        plots.save(figure, saved, "png")
        assert base64.b64decode(data) == saved.getvalue()

    def test_a_kernel_name_is_no_mathematics(self, run):
        figure = plots.top_kernels(analyses.kernels(run))
        assert any("cost$x$" in text.get_text() for text in texts(drawn(figure)))


def luminance(color: str) -> float:
    """The relative luminance, from 0 to 1 (WCAG 2.2)."""
    channels = np.array(to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


class TestStyle:
    def test_text_contrast(self):
        """At least 4.5 (WCAG 2.2, success criterion 1.4.3)."""
        looks = (style.CATEGORY_LOOK, style.PART_LOOK, style.KIND_LOOK)
        colors = {color for look in looks for color, _ in look.values()}
        pairs = [(style.text_on(color), color) for color in colors]
        pairs += [(text, style.GROUND) for text in (style.TEXT, style.MUTED_TEXT)]
        for pair in pairs:
            dark, light = sorted(map(luminance, pair))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, pair

    def test_everything_has_a_look(self):
        assert set(style.CATEGORY_LOOK) == set(CATEGORIES)
        assert set(style.KIND_LOOK) == set(KINDS)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1234, "1.23 µs"),
        (45_678_000, "45.7 ms"),
        (999_600_000, "1000 ms"),
        (2e9, "2.00 s"),
    ],
)
def test_durations_for_people(nanoseconds, text):
    assert duration_text(nanoseconds) == text


def test_axis_units():
    assert [axis_unit(length)[0] for length in (1, 5_000, 5_000_000, 5e9)] == [
        "µs",
        "µs",
        "ms",
        "s",
    ]


def test_reading_and_plotting_need_no_torch():
    code = (
        "import sys, tidyprof.names.short_names, tidyprof.analyses, tidyprof.plots;"
        " sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
