"""Where numbers come from stays with them: from every reader through every analysis into every
figure's corner.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from proflab import ledger
from proflab.correctness_gate import CorrectnessGate
from proflab.errors import CourseError
from proflab.recordings import shipped_folder
from proflab.sources import source
from proflab.training import training_run
from tests.proflab.training_records import write_run
from tidyprof import analyses, plots
from tidyprof.plots import TidyFigure
from tidyprof.readers.registry import FORMATS
from tidyprof.tables.contract import Origin, Profile
from tidyprof_tests import snapshot_writer
from tidyprof_tests.rocpd_writer import small_database

RECORDING_OF_READER = {
    "torch": "torch-mi250-minitoy/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "rpd": "rpd-mi200-matmul/matmul_result.rpd",
    "rocprof_compute": "rocprof-compute-mi308x-montecarlo",
    "rocprof_sys": "rocprof-sys-cpu/rocprofsys-python-output",
    "rocprofv3": "rocprofv3-csv-docs/kernel_trace.csv",
    "rocprof_v1": "rocprofv1-mi210-torch-add/HSA_trace",
    "perfetto": "rocprofv3-lumi-taylor/results.pftrace",
    "system": (
        "smi-mi300x-vllm-llama31-bs1/monitoring/"
        "gpu_power_Llama-3.1-8B_latency_bs1_in128_out128_float16_mem0.8_20250807_185823.csv"
    ),
}
"""A small recording for each reader; the database of rocpd and the allocator's snapshot are made
here.
"""

MANY_RANKS = "torch-mi300-ddp-4ranks-fused/merged_nccl_only.json.gz"


def once(ask: Callable[[Profile], pd.DataFrame]) -> Callable[[Profile], pd.DataFrame]:
    """Asks each profile once: several tests look at the same tables."""
    known: dict[int, tuple[Profile, pd.DataFrame]] = {}

    def answer(profile: Profile) -> pd.DataFrame:
        if id(profile) not in known:
            known[id(profile)] = profile, ask(profile)
        return known[id(profile)][1]

    return answer


ANALYSES: dict[str, Callable[[Profile], pd.DataFrame]] = {
    name: once(getattr(analyses, name))
    for name in (
        *(
            "blocked_calls",
            "busy",
            "call_stacks",
            "collective_entries",
            "collectives",
            "gaps",
            "kernels",
            "launches",
            "memory_blocks",
            "modules",
            "operators",
        ),
        *(
            "overlap",
            "phases",
            "ranks",
            "roofline_ceilings",
            "roofline_points",
            "speed_of_light",
            "step_budget",
        ),
        "steps",
    )
} | {
    "compare": once(lambda profile: analyses.compare(profile, profile)),
    "compare_ranks": lambda profile: analyses.compare_ranks(
        analyses.overlap(profile), analyses.collective_entries(profile)
    ),
}
NO_TABLES = {"DeviceTime", "between", "of_steps", "parts_of"}
"""Names of tidyprof.analyses that give no table of numbers."""

TABLES = {
    "busy": (plots.busy, ANALYSES["busy"]),
    "call_stacks": (plots.call_stacks, ANALYSES["call_stacks"]),
    "collectives": (
        plots.collectives,
        lambda profile: analyses.collectives(profile, per_rank=True),
    ),
    "ranks": (plots.ranks, ANALYSES["ranks"]),
    "step_budget": (plots.step_budget, ANALYSES["step_budget"]),
    "step_times": (plots.step_times, ANALYSES["steps"]),
    "top_kernels": (plots.top_kernels, ANALYSES["kernels"]),
    "top_operators": (plots.top_operators, ANALYSES["operators"]),
}
"""Plots that take one table, each with the analysis that makes it."""

PLOTS: dict[str, Callable[[Profile], TidyFigure]] = {
    name: lambda profile, plot=plot, ask=ask: plot(ask(profile))
    for name, (plot, ask) in TABLES.items()
} | {
    "counters": plots.counters,
    "memory": plots.memory,
    "timeline": plots.timeline,
}
NO_FIGURES = {"TidyFigure", "describe", "save"}
"""Names of tidyprof.plots that make no figure."""


def origin_for(reader: str) -> Origin:
    return Origin("recorded", f"one machine of {reader}, on a day in March")


@pytest.fixture(scope="module")
def profiles(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    """What each reader makes of its recording, each with an origin of its own."""
    paths = {reader: recordings / path for reader, path in RECORDING_OF_READER.items()}
    made = tmp_path_factory.mktemp("made")
    paths["rocpd"] = small_database(made / "results.db")
    paths["memory_snapshot"] = snapshot_writer.write(
        made / "snapshot.pickle", snapshot_writer.small_snapshot()
    )
    read = {known.folder: known.read for known in FORMATS}
    found = {
        module: read[module](path, origin=origin_for(module)) for module, path in paths.items()
    }
    found["many ranks"] = read["torch"](recordings / MANY_RANKS, origin=origin_for("many ranks"))
    functions = recordings / "torch-mi300x-resnet18-train"
    found["functions"] = read["torch"](
        functions, python_functions=True, origin=origin_for("functions")
    )
    return found


@pytest.fixture(scope="module")
def shipped() -> dict[str, Profile]:
    """Traces of one rank and of several that come with the course."""
    traces = {"torch": "torch-h200-case-compiled", "many ranks": "modelled-rank-skew/torch"}
    return {
        name: FORMATS[0].read(shipped_folder() / path, origin=origin_for(name))
        for name, path in traces.items()
    }


def corner(figure: TidyFigure) -> str:
    """Text in the corner of the figure, without its line breaks."""
    (text,) = [text for text in figure.texts if text.get_gid() == "origin"]
    return " ".join(text.get_text().split())


def answers(ways: dict[str, Callable], profile: Profile) -> dict[str, object]:
    """What each way gives for this profile; ways that say that they have no data for it are left
    out.
    """
    found = {}
    for name, ask in ways.items():
        try:
            found[name] = ask(profile)
        except ValueError:
            continue
    return found


class TestEveryPath:
    def test_every_reader_is_here(self, profiles: dict[str, Profile]) -> None:
        assert {known.folder for known in FORMATS} <= set(profiles)

    def test_every_analysis_and_plot_is_here(self) -> None:
        assert set(analyses.__all__) == set(ANALYSES) | NO_TABLES
        assert set(plots.__all__) == set(PLOTS) | NO_FIGURES

    def test_readers_keep_the_origin(self, profiles: dict[str, Profile]) -> None:
        assert {name: source(profile) for name, profile in profiles.items()} == {
            name: str(origin_for(name)) for name in profiles
        }

    def test_without_an_origin_it_is_what_the_file_says_of_its_machine(
        self, recordings: Path
    ) -> None:
        profile = FORMATS[0].read(recordings / RECORDING_OF_READER["torch"])
        assert source(analyses.kernels(profile)) == "recorded: AMD Radeon Graphics"

    def test_every_analysis_of_every_reader_keeps_the_origin(
        self, profiles: dict[str, Profile]
    ) -> None:
        answered: set[str] = set()
        for name, profile in profiles.items():
            tables = answers(ANALYSES, profile)
            assert {analysis: source(table) for analysis, table in tables.items()} == dict.fromkeys(
                tables, str(origin_for(name))
            )
            answered |= {analysis for analysis, table in tables.items() if len(table)}
        assert answered == set(ANALYSES), (
            "each analysis must have had data from one reader at least"
        )

    def test_every_figure_of_every_reader_has_the_origin_in_its_corner(
        self, profiles: dict[str, Profile]
    ) -> None:
        drawn: set[str] = set()
        for name, profile in profiles.items():
            for plot, figure in answers(PLOTS, profile).items():
                assert str(origin_for(name)) in corner(figure), (name, plot)
                assert source(figure) == figure.origin
                drawn.add(plot)
        assert drawn == set(PLOTS), "each plot must have been drawn for one reader at least"

    def test_a_comparison_names_both_origins(self, profiles: dict[str, Profile]) -> None:
        one, other = profiles["rpd"], profiles["rocprofv3"]
        origins = [str(origin_for(name)) for name in ("rpd", "rocprofv3")]
        stated = source(analyses.compare(one, other))
        assert all(origin in stated for origin in origins)


LOSING = {
    "rebuilt from lists": lambda table, other: pd.DataFrame(table.to_dict("list")),
    "rebuilt from rows": lambda table, other: pd.DataFrame([row for _, row in table.iterrows()]),
    "joined with another origin": lambda table, other: pd.concat([table, other]),
    "merged with another origin": lambda table, other: table.merge(other, how="left"),
    "constructed anew": lambda table, other: pd.DataFrame(table),
}
KEEPING = {
    "some rows": lambda table: table.head(3),
    "filtered": lambda table: table.loc[table.index >= 0],
    "sorted": lambda table: table.sort_values(table.columns[-1]),
    "with one more column": lambda table: table.assign(more=1),
    "copied": lambda table: table.copy(),
    "counted anew": lambda table: table.reset_index(drop=True),
}


def table_for(plot: str, profiles: dict[str, Profile]) -> pd.DataFrame:
    return TABLES[plot][1](profiles["many ranks" if plot == "collectives" else "torch"])


class TestPandas:
    """What pandas does to a table between an analysis and a plot."""

    @pytest.mark.parametrize("way", LOSING)
    @pytest.mark.parametrize("plot", TABLES)
    def test_plots_refuse_what_lost_its_origin(
        self, plot: str, way: str, shipped: dict[str, Profile]
    ) -> None:
        table = table_for(plot, shipped)
        other = table.copy()
        other.attrs["origin"] = Origin("modelled", "by hand")
        lost = LOSING[way](table, other)
        lost.attrs.pop("source", None)
        assert len(lost) >= len(table)
        with pytest.raises(ValueError, match="where its numbers come from"):
            TABLES[plot][0](lost)
        with pytest.raises(CourseError, match="does not say where its numbers come from"):
            source(lost)

    @pytest.mark.parametrize("way", KEEPING)
    def test_choosing_rows_and_columns_keeps_it(
        self, way: str, shipped: dict[str, Profile]
    ) -> None:
        table = KEEPING[way](table_for("top_kernels", shipped))
        assert corner(plots.top_kernels(table)) == str(origin_for("torch"))

    def test_timeline_takes_profiles_and_these_always_have_one(
        self, shipped: dict[str, Profile]
    ) -> None:
        profile = shipped["torch"]
        rebuilt = Profile(pd.DataFrame(profile.events))
        assert corner(plots.timeline(rebuilt)) == "recorded: machine not stated"


class TestSource:
    def test_of_each_thing_that_has_one(self, tmp_path: Path) -> None:
        hand = Origin("modelled", "by hand")
        table = pd.DataFrame({"origin": ["a column of that name"], "duration_ns": [1], "step": [0]})
        table.attrs["origin"] = hand
        run = training_run(write_run(tmp_path / "run", [10, 11, 12]))
        experiment = ledger.add("an idea", [1.0] * 5, [1.0] * 5, CorrectnessGate(()), origin=table)
        figure = plots.step_times(table)
        assert [source(item) for item in (hand, table, table["step"], experiment, figure)] == [
            "modelled: by hand"
        ] * 5
        assert source(run) == str(run.origin) == source(run.steps)

    @pytest.mark.parametrize(
        "item",
        [
            pd.DataFrame({"origin": ["measured"]}),
            pd.Series([1]),
            3,
            None,
            "text",
            TidyFigure(),
            object(),
        ],
    )
    def test_of_what_has_none(self, item: object) -> None:
        with pytest.raises(CourseError, match=type(item).__name__) as error:
            source(item)
        assert "\n" not in str(error.value)
