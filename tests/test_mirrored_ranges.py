"""On a GPU torch.profiler writes each range twice, on the host and on the device. Nothing may count
both.

Whatever reads ranges is tried on one trace with the ranges on the device and without them, and has
to say the same: the functions of tidyprof and of lessons, the snippets, and the cells of lessons
that RANGES finds.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from proflab.parts.faulty_runs import indicators_of

import tidyprof
from tidyprof import Intervals, Profile, analyses, plots
from tidyprof.plots.figure import TidyFigure
from tidyprof_tests.mirrored_trace import write_both

VARYING = re.compile(r"\b[\d,]+ events\b")
"""How many events a file has. That counts what is there, so the ranges on the device, too."""

Pair = tuple[Profile, Profile]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_both(tmp_path_factory.mktemp("traces"))


def read(paths: tuple[Path, Path]) -> Pair:
    host_only, both = (tidyprof.read_torch_trace(path, python_functions=True) for path in paths)
    assert on_device(both) > on_device(host_only) == 0
    return host_only, both


def on_device(profile: Profile) -> int:
    """How many ranges there are on the device."""
    return int((profile.of_kind(("annotation",))["device"].notna()).sum())


@pytest.fixture(scope="module", params=["steps marked", "no step marked"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """The same, and that of a program that never calls `step()` of the profiler."""
    return read(
        write_both(tmp_path_factory.mktemp("traces"), marked=request.param == "steps marked")
    )


def plain(value: Any) -> Any:
    """What can be compared with == and shown: tables without the numbers of their rows, figures by
    their words.

    Of a profile, and of the events of a file as JSON, the ranges on the device are left out.
    """
    if isinstance(value, pd.DataFrame | pd.Series):
        return value.to_csv(
            index=not isinstance(value.index, pd.RangeIndex) and value.index.dtype != "int64"
        )
    if isinstance(value, Intervals):
        return value.starts.tolist(), value.ends.tolist()
    if isinstance(value, Profile):
        return plain(
            value.events[~(value.events["device"].notna() & (value.events["kind"] == "annotation"))]
        )
    if isinstance(value, TidyFigure):
        texts = [
            text.get_text()
            for axes in value.axes
            for text in (*axes.texts, *axes.get_yticklabels())
        ]
        return value.alternative_text, sorted(texts)
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set):
        return [
            plain(one)
            for one in value
            if not (isinstance(one, dict) and one.get("cat") == "gpu_user_annotation")
        ]
    return VARYING.sub("all events", str(value))


def result_of(function: Callable[[Profile], Any], profile: Profile) -> Any:
    """What a function says of a profile, or why it refuses."""
    try:
        return plain(function(profile))
    except Exception as error:
        return type(error), plain(str(error))


def compare(function: Callable[[Profile], Any], pair: Pair) -> Any:
    said = result_of(function, pair[0])
    assert result_of(function, pair[1]) == said
    return said


def of_a_profile_alone(function: Any) -> bool:
    """Whether this is a function that a profile is enough for."""
    if not inspect.isfunction(function):
        return False
    first, *others = [*inspect.signature(function).parameters.values()] or [None]
    takes = first is not None and str(first.annotation).startswith("Profile")
    return takes and all(
        one.default is not one.empty or one.kind is one.VAR_KEYWORD for one in others
    )


ANALYSES = {name: getattr(analyses, name) for name in analyses.__all__}
WITH_OPTIONS = {
    "steps of the device": lambda profile: analyses.steps(profile, "device"),
    "steps from a mark": lambda profile: analyses.steps(profile, mark="data"),
    "phases from a mark": lambda profile: analyses.phases(profile, mark="forward"),
    "budget of the device": lambda profile: analyses.step_budget(profile, "device"),
    "all gaps": lambda profile: analyses.gaps(profile, 0),
    "ranges among operators": lambda profile: analyses.operators(
        profile, ("operator", "annotation")
    ),
    "stacks of calls": lambda profile: analyses.call_stacks(profile),
    "triage": lambda profile: [str(value) for value in vars(tidyprof.diagnose(profile)).values()][
        :-1
    ],
    "timeline": plots.timeline,
    "timeline of a step": lambda profile: plots.timeline(profile, step=6),
    "indicators": indicators_of,
}


@pytest.mark.parametrize(
    "name", [name for name, one in ANALYSES.items() if of_a_profile_alone(one)]
)
def test_no_analysis_counts_ranges_on_the_device(name: str, pair: Pair) -> None:
    compare(ANALYSES[name], pair)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_nothing_counts_ranges_on_the_device(name: str, pair: Pair) -> None:
    compare(WITH_OPTIONS[name], pair)


def test_a_written_trace_keeps_the_ranges_apart(pair: Pair, tmp_path: Path) -> None:
    tidyprof.write_chrome_trace(pair[1], tmp_path / "written.json.gz")
    written = tidyprof.read_torch_trace(tmp_path / "written.json.gz", python_functions=True)
    assert on_device(written) == on_device(pair[1])
    assert plain(analyses.phases(written)) == plain(analyses.phases(pair[0]))
