"""Where numbers come from stays with them: from readers through analyses into figures' corners."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from proflab import ledger
from proflab.errors import CourseError
from proflab.recordings import recording
from proflab.sources import source
from proflab.training import training_run
from tests.proflab.training_records import write_run
from tidyprof import analyses, plots
from tidyprof.plots import TidyFigure
from tidyprof.tables.contract import Origin, Profile

HERE = Origin("recorded", "one machine, on a day in March")
ANALYSES = (
    *("busy", "collectives", "gaps", "kernels", "operators", "overlap", "phases"),
    *("ranks", "step_budget", "steps"),
)
PLOTS: dict[str, Callable[[pd.DataFrame], TidyFigure]] = {
    "kernels": plots.top_kernels,
    "ranks": plots.ranks,
    "step_budget": plots.step_budget,
    "steps": lambda table: plots.step_times(table[table["rank"] == 0]),
}
LOSING = {
    "rebuilt from lists": lambda table, other: pd.DataFrame(table.to_dict("list")),
    "joined with another origin": lambda table, other: pd.concat([table, other]),
    "merged with another origin": lambda table, other: table.merge(other, how="left"),
    "constructed anew": lambda table, other: pd.DataFrame(table),
}
KEEPING = {
    "some rows": lambda table: table.head(3),
    "filtered": lambda table: table.loc[table.index >= 0],
    "sorted": lambda table: table.sort_values(table.columns[-1]),
    "with one more column": lambda table: table.assign(more=1),
    "counted anew": lambda table: table.reset_index(drop=True),
}


@pytest.fixture(scope="module")
def profile() -> Profile:
    path = recording("modeled-rank-skew").path / "torch"
    return tidyprof.read(path, origin=HERE)


def corner(figure: TidyFigure) -> str:
    """The text in the corner of the figure, without its line breaks."""
    (text,) = [text for text in figure.texts if text.get_gid() == "origin"]
    return " ".join(text.get_text().split())


@pytest.mark.parametrize("name", ANALYSES)
def test_every_table_and_figure_keeps_the_origin(profile: Profile, name: str) -> None:
    table = getattr(analyses, name)(profile)
    assert len(table)
    assert source(table) == str(HERE)
    if name in PLOTS:
        figure = PLOTS[name](table)
        assert str(HERE) in corner(figure)
        assert source(figure) == figure.origin


@pytest.mark.parametrize("name", PLOTS)
def test_plots_refuse_what_lost_its_origin(profile: Profile, name: str) -> None:
    table = getattr(analyses, name)(profile)
    other = table.copy()
    other.attrs["origin"] = Origin("modeled", "by hand")
    for way, lose in LOSING.items():
        lost = lose(table, other)
        with pytest.raises(ValueError, match="origin"):
            PLOTS[name](lost)
        with pytest.raises(CourseError):
            source(lost)
        assert len(lost) >= len(table), way


@pytest.mark.parametrize("way", KEEPING)
def test_choosing_rows_and_columns_keeps_it(profile: Profile, way: str) -> None:
    table = KEEPING[way](analyses.kernels(profile))
    assert corner(plots.top_kernels(table)) == str(HERE)


def test_a_profile_always_has_one(profile: Profile) -> None:
    rebuilt = Profile(pd.DataFrame(profile.events))
    assert corner(plots.timeline(rebuilt)) == "recorded: machine not stated"
    stated = source(analyses.compare(profile, rebuilt))
    assert str(HERE) in stated
    assert "not stated" in stated


def test_of_each_thing_that_has_one(tmp_path: Path) -> None:
    hand = Origin("modeled", "by hand")
    table = pd.DataFrame({"origin": ["a column of that name"], "duration_ns": [1], "step": [0]})
    table.attrs["origin"] = hand
    run = training_run(write_run(tmp_path / "run", [10, 11, 12]))
    experiment = ledger.add("an idea", [1.0] * 5, [1.0] * 5, origin=table)
    items = (hand, table, table["step"], experiment, plots.step_times(table))
    assert [source(item) for item in items] == ["modeled: by hand"] * 5
    assert source(run) == str(run.origin) == source(run.steps)


@pytest.mark.parametrize(
    "item", [pd.DataFrame({"origin": ["measured"]}), pd.Series([1]), 3, None, "x", TidyFigure()]
)
def test_of_what_has_none(item: object) -> None:
    with pytest.raises(CourseError) as error:
        source(item)
    assert "\n" not in str(error.value)
