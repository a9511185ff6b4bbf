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
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.image import imread
from matplotlib.text import Text

from tidyprof import analyses, plots
from tidyprof.names.short_names import CATEGORIES
from tidyprof.plots import style
from tidyprof.plots.bars import fitting
from tidyprof.plots.figure import axis_unit, duration_text, in_the_dark, new_figure, settings
from tidyprof.plots.timeline import DENSE, SPARSE
from tidyprof.readers.torch.reader import read_torch_trace
from tidyprof.tables.contract import KINDS, Origin
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
    "top_operators": lambda run: plots.top_operators(analyses.operators(run)),
    "step_budget": lambda run: plots.step_budget(analyses.step_budget(run)),
    "step_times": lambda run: plots.step_times(analyses.steps(run)),
    "busy": lambda run: plots.busy(analyses.busy(run)),
    "timeline": lambda run: plots.timeline(run),
    "ranks": lambda run: plots.ranks(analyses.ranks(run), title="A finding"),
    "collectives": lambda run: plots.collectives(analyses.collectives(run, per_rank=True)),
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
    (plots.top_operators, analyses.operators),
    (plots.step_budget, analyses.step_budget),
    (plots.step_times, analyses.steps),
    (plots.busy, analyses.busy),
    (plots.ranks, analyses.ranks),
    (plots.collectives, lambda run: analyses.collectives(run, per_rank=True)),
]


@pytest.mark.parametrize(("plot", "analysis"), LOST, ids=[plot.__name__ for plot, _ in LOST])
class TestRefusals:
    def test_numbers_of_unknown_origin(self, plot, analysis, run):
        table = pd.DataFrame(analysis(run).to_dict("list"))
        with pytest.raises(ValueError, match="where its numbers come from"):
            plot(table)

    def test_empty_table(self, plot, analysis, run):
        with pytest.raises(ValueError, match="nothing to plot"):
            plot(analysis(run).iloc[:0])

    def test_table_of_another_analysis(self, plot, analysis, run):
        with pytest.raises(ValueError, match=r"lacks .* make it with"):
            plot(analyses.gaps(run, minimum_ns=1))


class TestWords:
    """The text alternative says what the table says."""

    def test_top_kernels(self, run):
        table = analyses.kernels(run)
        text = plots.describe(plots.top_kernels(table))
        first = table.iloc[0]
        assert first["short_name"] in text
        assert f"{first['percent']:.0f} %" in text
        assert f"{first['calls']} calls" in text

    def test_the_other_kernels_are_named_and_have_no_bar(self, run):
        table = analyses.kernels(run)
        axes = plots.top_kernels(table, n=1).axes[0]
        assert len(axes.patches) == 1
        assert f"{len(table) - 1} other kernels" in " ".join(text.get_text() for text in axes.texts)

    def test_step_budget(self, run):
        table = analyses.step_budget(run)
        share = 100 * table["compute_ns"].sum() / table["duration_ns"].sum()
        assert f"compute {share:.0f} %" in plots.describe(plots.step_budget(table))

    def test_timeline(self, run):
        text = plots.describe(plots.timeline(run, rank=0))
        assert "one device" in text
        assert "4.00 ms" in text, "the collective is the longest event"

    def test_a_timeline_of_samples_says_what_is_not_drawn(self):
        rows = [
            event("annotation", "step", 0, 100),
            event("sample", "main", 0, 10),
            event("sample", "f", 5, 10),
        ]
        text = plots.describe(plots.timeline(profile_of(*rows)))
        assert "1 events. 2 frames of call-stack samples are not drawn." in text

    def test_a_step_without_the_profiler_is_seen_where_it_is_the_longest(self, run):
        longest = int(analyses.step_budget(run)["duration_ns"].max())
        axes = plots.step_budget(analyses.step_budget(run), untraced_ns=2 * longest).axes[0]
        left, right = axes.get_xlim()
        (line,) = (one.get_xdata()[0] for one in axes.lines if one.get_linestyle() == "--")
        assert left < line < right

    def test_slow_steps(self):
        table = pd.DataFrame({"step": range(8), "duration_ns": [450_000_000] + [20_000_000] * 7})
        table.attrs["origin"] = ORIGIN
        text = plots.describe(plots.step_times(table))
        assert "1 of them" in text
        assert "step 0 with 450 ms" in text

    def test_warm_up_is_left_out_of_the_median_of_the_steps(self):
        parts = ["warmup"] * 5 + ["steady"] * 3
        table = pd.DataFrame(
            {"step": range(8), "duration_ns": [90_000_000] * 5 + [20_000_000] * 3, "part": parts}
        )
        table.attrs["origin"] = ORIGIN
        figure = plots.step_times(table)
        assert "a median of 20.0 ms; 5 of them" in plots.describe(figure)
        assert "median 20.0 ms" in [text.get_text() for text in figure.axes[0].texts]

    def test_the_median_has_the_unit_of_its_axis(self):
        table = pd.DataFrame({"step": range(3), "duration_ns": [900_000_000] * 2 + [1_100_000_000]})
        table.attrs["origin"] = ORIGIN
        axes = plots.step_times(table).axes[0]
        assert axes.get_ylabel() == "step time, s"
        assert [text.get_text() for text in axes.texts] == ["median 0.90 s"]

    def test_a_step_far_off_is_cut_off_and_says_so(self):
        table = pd.DataFrame(
            {"step": range(8), "duration_ns": [450_000_000, 60_000_000] + [20_000_000] * 6}
        )
        table.attrs["origin"] = ORIGIN
        axes = plots.step_times(table).axes[0]
        assert max(bar.get_height() for bar in axes.patches) == 80
        assert {"↑22×", "3.0×"} <= {text.get_text() for text in axes.texts}

    def test_a_figure_from_elsewhere_has_none(self):
        from matplotlib.figure import Figure

        with pytest.raises(ValueError, match="text alternative"):
            plots.describe(Figure())


class TestTimeline:
    def test_unknown_step_and_empty_window(self, run):
        with pytest.raises(ValueError, match=r"no step 9 .* 4, 5"):
            plots.timeline(run, step=9)
        with pytest.raises(ValueError, match="nothing happened"):
            plots.timeline(run, start_ns=10**12, end_ns=10**12 + 5)

    def test_a_long_gap_and_the_last_range_have_their_names(self):
        parts = (("data", 0, 700), ("forward", 700, 970), ("optimizer", 970, 1000))
        marks = [event("annotation", name, start, end) for name, start, end in parts]
        kernels = [
            event("kernel", "k", 710, 800, stream=0),
            event("kernel", "k", 790, 1000, stream=1),
        ]
        figure = plots.timeline(profile_of(*marks, *kernels))
        axes = figure.axes[0]
        places = {text.get_text(): text.get_position() for text in axes.texts}
        assert {"data", "forward", "optimizer", "idle 710 ns"} <= places.keys()
        lanes = [label.get_text() for label in axes.get_yticklabels()]
        middle, lane = places["idle 710 ns"]
        assert middle == pytest.approx(0.355)
        assert lanes[lane] == "stream 0", "the first lane of the device"
        words = "% of it and idle for 710 ns at a stretch, mostly in the range data."
        assert words in plots.describe(figure)

    def test_a_long_name_behind_a_lane_is_cut_and_names_on_bars_keep_to_theirs(self):
        rows = [
            event("annotation", "first_of_the_ranges", 0, 250),
            event("annotation", "Optimizer.step#SGD.step", 990, 1000),
        ]
        axes = drawn(plots.timeline(profile_of(*rows))).axes[0]
        first, last = axes.texts
        assert last.get_text() == "Optimizer.s…"
        end = axes.transData.transform((0.25, 0))[0]
        assert first.get_window_extent().x1 < end

    def test_a_short_gap_has_none(self):
        kernels = [event("kernel", "k", 0, 480), event("kernel", "k", 520, 1000)]
        figure = plots.timeline(profile_of(*kernels))
        assert "idle" not in plots.describe(figure)
        assert not [text for text in figure.axes[0].texts if "idle" in text.get_text()]

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

    def test_a_full_lane_shows_how_full_it_is(self):
        profile = profile_of(*(event("kernel", "k", 10 * n, 10 * n + 5) for n in range(DENSE + 1)))
        figure = plots.timeline(profile)
        (label,) = [label.get_text() for label in figure.axes[0].get_yticklabels()]
        assert "share of time" in label
        (bars,) = figure.axes[0].findobj(PolyCollection)
        heights = [np.ptp(path.vertices[:, 1]) for path in bars.get_paths()]
        assert np.mean(heights) / 0.8 == pytest.approx(0.5, abs=0.01)

    def test_beside_a_full_lane_others_show_how_full_they_are_and_a_few_bars_stay(self):
        many = [event("kernel", "k", 10 * n, 10 * n + 5) for n in range(DENSE + 1)]
        some = [event("operator", "aten::add", 10 * n, 10 * n + 5) for n in range(SPARSE + 1)]
        few = [event("copy", "c", 100 * n, 100 * n + 5, stream=9) for n in range(SPARSE)]
        labels = plots.timeline(profile_of(*many, *some, *few)).axes[0].get_yticklabels()
        shown = {
            label.get_text().partition("\n")[0]: "share of time" in label.get_text()
            for label in labels
        }
        assert shown == {"operators": True, "stream 0": True, "stream 9": False}


class TestBars:
    @pytest.mark.parametrize(
        ("name", "room", "text"),
        [
            ("train (loop.py)", 15, "train (loop.py)"),
            ("train (loop.py)", 6, "train"),
            ("… __getitem__ (datasets.py)", 11, "__getitem__"),
            ("torch::autograd::Engine::execute", 20, "Engine::execute"),
            ("at::native::add_kernel::operator", 12, "add_kernel:…"),
            ("torch::autograd::thread_main", 12, "thread_main"),
            ("at::sum<at::Half, at::Half>", 10, "sum"),
            ("<lambda> (train.py)", 9, "<lambda>"),
            ("_engine_run_backward (graph.py)", 9, "_engine_…"),
            ("autograd", 7, ""),
        ],
    )
    def test_a_name_has_its_longest_form_that_fits_or_none(self, name, room, text):
        assert fitting(name, room) == text

    def test_the_axis_ends_with_the_longest_bar_and_not_with_the_words_behind_it(self, run):
        table = analyses.ranks(run)
        axes = drawn(plots.ranks(table)).axes[0]
        longest = table["total_ns"].max() / 1e6
        assert axes.spines["bottom"].get_bounds() == (0, pytest.approx(longest))
        assert max(axes.get_xticks()) <= longest < axes.get_xlim()[1]

    def test_a_part_that_nobody_can_see_is_not_in_the_legend(self, run):
        table = analyses.step_budget(run)
        table["launch_bound_ns"] = 1
        named = [
            text.get_text() for text in plots.step_budget(table).axes[0].get_legend().get_texts()
        ]
        assert "compute" in named
        assert "launch-bound idle" not in named

    def test_no_name_lies_on_the_line_of_100_percent(self, run):
        table = analyses.busy(run)
        table["sum_percent"] = 112.0
        (axes,) = drawn(plots.busy(table)).axes
        line = axes.transData.transform((100, 0))[0]
        assert not [
            text
            for text in axes.texts
            if text.get_window_extent().x0 < line < text.get_window_extent().x1
        ]

    def test_a_number_and_its_percent_sign_stay_in_one_line(self, run):
        table = analyses.busy(run)
        for length in range(80, 110):
            table.attrs["origin"] = f"{'x' * length} 25 % and more words"
            (text,) = [text for text in plots.busy(table).texts if text.get_gid() == "origin"]
            assert "\n%" not in text.get_text()


class TestNotebook:
    def test_image_carries_the_text_alternative(self, run):
        figure = plots.top_kernels(analyses.kernels(run))
        shown = figure._repr_html_()
        assert 'alt="Bars of' in shown
        figure.alternative_text = '<script>"'
        assert "&lt;script&gt;&quot;" in figure._repr_html_()

    def test_a_notebook_gets_a_light_and_a_dark_picture(self, run):
        figure = plots.top_kernels(analyses.kernels(run))
        images = re.findall(
            r'class="(\S+)" .*?style="(\S+)" src="data:image/png;base64,(\S+)"',
            figure._repr_html_(),
        )
        assert [(name, "display:none" in look) for name, look, _ in images] == [
            ("tidy-light", False),
            ("tidy-dark", True),
        ]
        light, dark = (
            imread(io.BytesIO(base64.b64decode(data)), format="png") for *_, data in images
        )
        assert light.shape == dark.shape
        assert (light[0, 0, :3] == 1).all()
        assert (dark[0, 0, :3] == np.float32(17 / 255)).all()
        hued = np.ptp(light[:, :, :3], axis=2) > 0.5  # bars
        assert hued.any()
        assert (light[hued] == dark[hued]).mean() > 0.9
        assert "light=false] .tidy-light{display:none}" in figure._repr_html_()
        again = io.BytesIO()
        plots.save(figure, again, "png")
        assert base64.b64encode(again.getvalue()).decode() == images[0][2]

    def test_what_stands_on_a_bar_keeps_its_colour_in_the_dark(self, run):
        figure = plots.busy(analyses.busy(run))
        before = {text.get_text(): text.get_color() for text in figure.findobj(Text)}
        with in_the_dark(figure):
            for text in figure.findobj(Text):
                turned = to_hex(style.turned(to_rgba(before[text.get_text()])))
                on_bar = before[text.get_text()] in (style.BLACK, style.GROUND)
                assert to_hex(text.get_color()) == (
                    before[text.get_text()].lower() if on_bar else turned
                )
        assert {text.get_text(): text.get_color() for text in figure.findobj(Text)} == before

    def test_a_marker_is_turned_with_its_line_in_the_dark(self):
        with settings():
            figure, (axes,) = new_figure("modelled: by hand", height=2)
            (line,) = axes.plot([0, 1], [1, 2], "o-", color=style.BLACK)
        with in_the_dark(figure):
            assert to_hex(line.get_color()) == to_hex(line.get_markerfacecolor()) == "#ffffff"
            assert to_hex(axes.get_facecolor()) == "#111111"

    def test_a_blue_line_is_lighter_in_the_dark(self):
        with settings():
            figure, (axes,) = new_figure("measured: here", 2.0)
            (line,) = axes.plot([1, 2], color=style.BLUE)
        with in_the_dark(figure):
            assert style.contrast(to_hex(line.get_color()), "#111111") >= 5.5
        assert to_hex(line.get_color()) == style.BLUE.lower()

    def test_dots_on_the_map_of_waiting_stay_white_in_the_dark(self, run):
        figure = plots.collectives(analyses.collectives(run, per_rank=True))
        with in_the_dark(figure):
            assert to_hex(figure.axes[0].collections[0].get_facecolor()[0]) == "#ffffff"

    def test_a_kernel_name_is_no_mathematics(self, run):
        figure = plots.top_kernels(analyses.kernels(run))
        assert any("cost$x$" in text.get_text() for text in texts(drawn(figure)))

    def test_only_formats_that_can_be_repeated(self, run, tmp_path):
        with pytest.raises(ValueError, match=r"\.png or \.svg"):
            plots.save(plots.busy(analyses.busy(run)), tmp_path / "figure.pdf")


class TestStyle:
    def test_text_contrast(self):
        assert style.contrast("#000000", "#FFFFFF") == pytest.approx(21)
        for text in (style.TEXT, style.MUTED_TEXT):
            assert style.contrast(text, style.GROUND) >= style.MINIMUM_CONTRAST
        for look in (style.CATEGORY_LOOK, style.PART_LOOK, style.KIND_LOOK):
            for colour, _ in look.values():
                assert style.contrast(style.text_on(colour), colour) >= style.MINIMUM_CONTRAST, (
                    colour
                )

    def test_contrast_in_the_dark(self):
        ground = to_hex(style.turned(to_rgba(style.GROUND)))
        assert ground == "#111111"
        for text in (style.TEXT, style.MUTED_TEXT, style.text_on(style.GROUND)):
            assert (
                style.contrast(to_hex(style.turned(to_rgba(text))), ground)
                >= style.MINIMUM_CONTRAST
            )
        for look in (style.CATEGORY_LOOK, style.PART_LOOK, style.KIND_LOOK):
            for colour, _ in look.values():
                assert style.contrast(colour, ground) >= style.MINIMUM_FILL_CONTRAST, colour

    def test_no_two_looks_are_alike(self):
        device = {part: style.PART_LOOK[part] for part in analyses.budget.DEVICE_PARTS}
        host = {part: style.PART_LOOK[part] for part in analyses.budget.HOST_PARTS}
        for look in (style.CATEGORY_LOOK, style.KIND_LOOK, device, host):
            assert len(set(look.values())) == len(look)

    def test_copies_share_their_colour_with_no_other_kernels(self):
        colours = [colour for colour, _ in style.CATEGORY_LOOK.values()]
        assert colours.count(style.CATEGORY_LOOK["copy"][0]) == 1

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


def test_recorded_four_ranks(recordings):
    """All plots of a real recording of four ranks: nothing raised, nothing cut off."""
    profile = read_torch_trace(
        recordings / "torch-mi300-ddp-4ranks-fused" / "merged_all_events.json.gz"
    )
    profile.meta["origin"] = Origin(
        "recorded", "ResNet-50 on CIFAR-100, four AMD Instinct GPUs of the MI300 series"
    )
    for name in ("top_kernels", "top_operators", "step_budget", "step_times", "busy", "timeline"):
        figure = drawn(FIGURES[name](profile))
        for text in texts(figure):
            box = text.get_window_extent()
            assert figure.bbox.x0 - 1 <= box.x0, f"{name}: {text.get_text()}"
            assert box.x1 <= figure.bbox.x1 + 1, f"{name}: {text.get_text()}"


def test_reading_and_plotting_need_no_torch():
    code = (
        "import sys, tidyprof.names.short_names, tidyprof.analyses, tidyprof.plots;"
        " sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
