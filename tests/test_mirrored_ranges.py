"""On a GPU torch.profiler writes each range twice, on the host and on the device. Nothing may count
both.

Whatever reads ranges is tried on one trace with the ranges on the device and without them, and has
to say the same: the functions of tidyprof and of lessons, the snippets, and the cells of lessons
that RANGES finds.
"""

from __future__ import annotations

import ast
import gzip
import inspect
import re
import runpy
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jupytext
import pandas as pd
import pytest

import tidyprof
from proflab.exercises import exercises_of
from proflab.lessons import lessons
from proflab.parts.clinic import vital_signs
from tests.conftest import REPOSITORY
from tidyprof import Intervals, Profile, analyses, plots
from tidyprof.analyses.steps import marks_to_try
from tidyprof.plots.figure import TidyFigure
from tidyprof_tests.mirrored_trace import ALLOCATED, STEP_NS, write_both
from tools.solutions import solved_source

RANGES = re.compile(
    r"annotation|\bphases\(|ProfilerStep|key_averages|traceEvents|\.events\b(?=[\s\S]*\bname\b)"
)
"""What a cell has in it that reads ranges, or chooses events of any kind by their names."""

NOT_PLAYED = {
    ("02", "for workers in (2, 0):"): "records with the profiler, and adds nothing up",
    ("02", "narrow = nn.Sequential"): "records the processor alone, with the profiler",
    ("03", "stacks = inside"): "rocprof-sys writes each range once",
    ("03", 'exercise("03.1"'): "takes samples of rocprof-sys",
    ("05", "own_run"): "takes kernels of rocprof-compute",
    (
        "05",
        "MIOpenBatchNormFwdTrainSpatial",
    ): "chooses an operator and a kernel of a recording by their names",
    ("11", "crowded = play_requests"): "reads the allocator's snapshot, which has no ranges",
    ("11", 'exercise("11.4"'): "reads the allocator's snapshot, which has no ranges",
    ("12", "def graph_of"): "chooses calls of HIP by their names",
    ("12", "paged_attention"): "takes a number from the name of a range, and adds nothing up",
    ("12", "rpd-vllm-mytrace"): "reads rpd, which has no ranges on the device",
    (
        "14",
        "gloo:all_reduce",
    ): "gloo exchanges what is in the host's memory, so that no range is on a device",
    (
        "17",
        "def each_ms",
    ): "gloo exchanges what is in the host's memory, so that no range is on a device",
}
"""Number of the lesson and a piece of the cell -> why a cell that RANGES finds is not played
here.
"""

VARYING = re.compile(r"\b[\d,]+ events\b")
"""How many events a file has. That counts what is there, so the ranges on the device, too."""

Pair = tuple[Profile, Profile]

DATA = (pd.DataFrame, pd.Series, Intervals, str, int, float, list, dict)
"""What is compared of what a cell assigns."""


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


@pytest.fixture(scope="module")
def marked(paths: tuple[Path, Path]) -> Pair:
    """The trace without and with ranges on the device."""
    return read(paths)


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


def found(function: Callable[[Profile], Any], profile: Profile) -> Any:
    """What a function says of a profile, or why it refuses."""
    try:
        return plain(function(profile))
    except Exception as error:
        return type(error), plain(str(error))


def compare(function: Callable[[Profile], Any], pair: Pair) -> Any:
    said = found(function, pair[0])
    assert found(function, pair[1]) == said
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
    "operators by shape": lambda profile: analyses.operators(profile, by_shape=True),
    "stacks of calls": lambda profile: analyses.call_stacks(profile, "calls"),
    "a step": lambda profile: analyses.phases(analyses.of_steps(profile, 6)),
    "marks to try": marks_to_try,
    "triage": lambda profile: [str(value) for value in vars(tidyprof.triage(profile)).values()][
        :-1
    ],
    "timeline": plots.timeline,
    "timeline of a step": lambda profile: plots.timeline(profile, step=6),
    "vital signs": vital_signs,
}


@pytest.mark.parametrize(
    "name", [name for name, one in ANALYSES.items() if of_a_profile_alone(one)]
)
def test_no_analysis_counts_ranges_on_the_device(name: str, pair: Pair) -> None:
    compare(ANALYSES[name], pair)


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_nothing_counts_ranges_on_the_device(name: str, pair: Pair) -> None:
    compare(WITH_OPTIONS[name], pair)


def test_a_timeline_without_work_counts_events_of_the_host(pair: Pair) -> None:
    idle = {"start_ns": 1_745_000, "end_ns": 1_748_000}
    first = int(pair[0].events["start_ns"].min()) - STEP_NS
    idle = {name: first + time for name, time in idle.items()}
    words = [plots.timeline(profile, **idle).alternative_text for profile in pair]
    assert "without any device event" in words[0]
    assert words[0] == words[1]


def test_a_written_trace_keeps_the_ranges_apart(pair: Pair, tmp_path: Path) -> None:
    tidyprof.write_chrome_trace(pair[1], tmp_path / "written.json.gz")
    written = tidyprof.read_torch_trace(tmp_path / "written.json.gz", python_functions=True)
    assert on_device(written) == on_device(pair[1])
    assert plain(analyses.phases(written)) == plain(analyses.phases(pair[0]))


OF_EXERCISES = [
    pytest.param(function, id=f"{number}-{name}")
    for number in lessons()
    for name, function in vars(exercises_of(number)).items()
    if of_a_profile_alone(function) and function.__module__ == exercises_of(number).__name__
]


@pytest.mark.parametrize("function", OF_EXERCISES)
def test_no_exercise_counts_ranges_on_the_device(
    function: Callable[[Profile], Any], marked: Pair
) -> None:
    compare(function, marked)


def test_the_functions_of_exercises_are_found_and_run(marked: Pair) -> None:
    names = [one.id for one in OF_EXERCISES]
    assert "02-loading" in names
    assert compare(exercises_of("02").loading, marked)[0]


class AnyFile:
    """A folder in which each path is one file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __truediv__(self, name: str) -> AnyFile:
        return self

    def __fspath__(self) -> str:
        return str(self._path)

    def read_text(self) -> str:
        return gzip.decompress(self._path.read_bytes()).decode()


class Watched:
    """What torch.profiler has after a run on a GPU: rows of operators and ranges, perhaps those on
    the device too.
    """

    def __init__(self, mirrored: bool) -> None:
        host = [
            ("aten::conv2d", 300.0, False),
            ("aten::add_", 100.0, False),
            ("forward", 50.0, True),
        ]
        rows = [*host, *[("conv_forward", 70.0, True)] * mirrored]
        self._rows = [
            SimpleNamespace(key=key, self_cpu_time_total=time, count=3, is_user_annotation=is_range)
            for key, time, is_range in rows
        ]

    def key_averages(self) -> list[SimpleNamespace]:
        return self._rows


class Told(list):
    """What cells show, say and answer."""

    def __call__(self, *values: Any, **options: Any) -> None:
        self.append([plain(value) for value in values])

    def exercise(self, number: str, data: Any) -> SimpleNamespace:
        return SimpleNamespace(check=lambda answer: self(number, answer))


def known(path: Path, told: Told) -> dict[str, Any]:
    """What cells find when they begin: the trace under each name that lessons have for one."""
    profile = tidyprof.read_torch_trace(path, python_functions=True)
    folder = AnyFile(path)
    recorded = SimpleNamespace(path=path, origin=profile.origin, files=defaultdict(lambda: path))
    names = "trace mine live gpu run rank unseen"
    return {
        **dict.fromkeys(names.split(), profile),
        "runs": {0: profile, 2: profile},
        "pair": {"eager": profile, "compiled": profile},
        "modelled": {"eager": profile, "compiled": profile},
        "traces": {"fsdp": [profile]},
        "names": tidyprof.kernels(profile),
        "watched": {0: Watched(mirrored=on_device(profile) > 0)},
        "lesson": SimpleNamespace(folder=folder),
        "folder": folder,
        "facts": {"ranks": 1},
        "MODELLED": profile.origin,
        "HERE": profile.origin,
        "parameters": ALLOCATED // 3,
        "counters": 0,
        "proflab": SimpleNamespace(
            recording=lambda name: recorded, try_recording=lambda name: recorded
        ),
        "exercise": told.exercise,
        **dict.fromkeys(("show_table", "show_figure", "say", "print"), told),
    }


@cache
def cells_of(number: str) -> tuple[str, ...]:
    """The lesson's cells of Python, solved."""
    notebook = jupytext.reads(
        lessons()[number].source.read_text(encoding="utf-8"), fmt="py:percent"
    )
    code = (cell.source for cell in notebook.cells if cell.cell_type == "code")
    return tuple(solved_source(text) for text in code if not text.startswith("%%"))


def finds(cell: str) -> bool:
    """Whether the code of a cell, its comments aside, reads ranges."""
    return bool(RANGES.search(ast.unparse(ast.parse(cell))))


def reason(number: str, cell: str) -> str | None:
    """Why a cell is not played."""
    return next(
        (why for (lesson, piece), why in NOT_PLAYED.items() if lesson == number and piece in cell),
        None,
    )


def is_played(number: str, cell: str) -> bool:
    return finds(cell) and reason(number, cell) is None


def played(number: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Each found cell of a lesson, and what it showed and assigned. Of others the imports and
    functions are taken.
    """
    told = Told()
    names = known(path, told)
    given = set(names)
    for cell in cells_of(number):
        is_found = is_played(number, cell)
        tree = ast.parse(cell)
        if not is_found:
            tree.body = [
                node
                for node in tree.body
                if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef)
            ]
        before, told[:] = dict(names), []
        exec(compile(tree, f"lesson {number}", "exec"), names)
        if not is_found:
            names |= {name: before[name] for name in given}
            continue
        assigned = {
            name: value
            for name, value in names.items()
            if value is not before.get(name) and name[:2] != "__"
        }
        yield (
            cell,
            (
                list(told),
                {name: plain(value) for name, value in assigned.items() if isinstance(value, DATA)},
            ),
        )


@pytest.mark.parametrize("number", lessons())
def test_cells_say_the_same_with_ranges_on_the_device(
    number: str, paths: tuple[Path, Path]
) -> None:
    if not any(is_played(number, cell) for cell in cells_of(number)):
        return
    for (cell, said), (_, with_both) in zip(*(played(number, path) for path in paths), strict=True):
        assert with_both == said, cell


def test_the_cells_that_are_not_played_are_there() -> None:
    for number, piece in NOT_PLAYED:
        assert [piece in cell and finds(cell) for cell in cells_of(number)].count(True) == 1, (
            number,
            piece,
        )
    by_hand = [cell for cell in cells_of("02") if cell.startswith("mine = runs[0]")]
    assert [is_played("02", cell) for cell in by_hand] == [True]


SNIPPETS = sorted(
    path for path in (REPOSITORY / "snippets").glob("*.py") if "traceEvents" in path.read_text()
)
OF_ONE_RANK = ("02_step_budget.py",)
"""Snippets whose second argument is no file."""


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda path: path.name)
def test_snippets_say_the_same_with_ranges_on_the_device(
    snippet: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ranks = [write_both(tmp_path, rank=rank) for rank in range(2)]
    said = []
    for paths in zip(*ranks, strict=True):
        files = paths[:1] if snippet.name in OF_ONE_RANK else paths
        monkeypatch.setattr(sys, "argv", [snippet.name, *map(str, files)])
        runpy.run_path(str(snippet), run_name="__main__")
        said.append(plain(capsys.readouterr().out))
    assert said[0] == said[1]
    assert len(said[0].splitlines()) > 1
