"""The cuts of public recordings that ship with the course: what lessons ask of them is what the
whole ones say.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tidyprof
from proflab.lessons import lessons
from proflab.recordings import Recording, fetch, load_manifest, recording, shipped_folder
from tests.conftest import REPOSITORY, others_later
from tests.public_recordings import Mirror
from tools.cuts import make_cut, notice
from tools.cuts.recipes import RECIPES

CUTS = shipped_folder() / "cuts"
MOST_BYTES = 12 * 10**6
WITH_STACKS = "torch-mi300x-resnet-ddp-rank0"
LLAMA_CPP = "rocprofv3-csv-gfx1151-llamacpp-decode"
TRACES = [name for name in RECIPES if name.startswith("torch-")]
ANALYSES = (
    *(
        tidyprof.kernels,
        tidyprof.operators,
        tidyprof.steps,
        tidyprof.step_budget,
        tidyprof.busy,
        tidyprof.gaps,
    ),
    *(tidyprof.overlap, tidyprof.launches, tidyprof.blocked_calls),
)
FACTS = (
    "gpu",
    "rocm",
    "backend",
    "distributed",
    "world_size",
    "options",
    "record_window_ns",
    "warnings",
)
LARGE = ("torch-mi300-ddp-4ranks-fused", WITH_STACKS)
COMPUTE = [name for name in RECIPES if name.startswith("rocprof-compute-")]
_CALLED = re.compile(r'recording\("([\w-]+)"')
_TEXT = re.compile(r'"((?:torch|rocprof|rpd|smi|modelled)[\w-]+)"')


def large_ones_later(names: Iterable[str]) -> list[Any]:
    """Names of recordings, of which those that take ten seconds are for a long run."""
    names = [*names]
    return others_later(names, {*names}.difference(LARGE))


@pytest.fixture
def both(
    recordings: Mirror, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> list[Recording]:
    """The cut of a recording, as a machine without anything else has it, and the whole one."""
    cut = recording(request.param)
    assert cut.source == "cut"
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings.whole()))
    return [cut, fetch(request.param)]


def test_every_recording_that_a_lesson_names_is_here_without_network() -> None:
    named = set()
    for lesson in lessons().values():
        text = lesson.source.read_text(encoding="utf-8")
        named |= {
            *_CALLED.findall(text),
            *(name for name in _TEXT.findall(text) if name in load_manifest()),
        }
    assert named >= {"torch-mi300x-resnet-ddp-rank0", "torch-h200-case-plain", "modelled-resnet"}
    assert {
        name: recording(name).source
        for name in named
        if recording(name).source not in ("shipped", "cut")
    } == {}
    in_tests = "".join(
        path.read_text(encoding="utf-8")
        for tests in ("tests", "packages/tidyprof/tests")
        for path in (REPOSITORY / tests).rglob("test_*.py")
    )
    assert {name for name in RECIPES if name not in named and name not in in_tests} == set()


def test_the_manifest_lists_the_cuts_and_they_are_small() -> None:
    cut = {name: entry for name, entry in load_manifest().items() if entry.cut}
    assert set(cut) == set(RECIPES)
    assert sum(path.stat().st_size for path in CUTS.rglob("*") if path.is_file()) < MOST_BYTES
    for name, entry in cut.items():
        assert {file.path for file in entry.cut.files} == {
            f"{name}/{path}" for path in RECIPES[name].files
        }


def test_no_published_file_is_copied() -> None:
    published = {
        file.sha256: file for entry in load_manifest().values() for file in entry.files if file.url
    }
    shipped = [path for path in shipped_folder().rglob("*") if path.is_file()]
    assert [
        path for path in shipped if hashlib.sha256(path.read_bytes()).hexdigest() in published
    ] == []
    sizes = {file.path: file.bytes for entry in load_manifest().values() for file in entry.files}
    assert all(
        file.bytes < sizes[file.path]
        for entry in load_manifest().values()
        if entry.cut
        for file in entry.cut.files
    )


def test_source_copyright_and_licence_travel_with_the_cuts() -> None:
    cut = [entry for entry in load_manifest().values() if entry.cut]
    text = (CUTS / "NOTICE.md").read_text(encoding="utf-8")
    assert text == notice(cut)
    for entry in cut:
        assert f"https://github.com/{entry.source_repo}/tree/{entry.source_commit}" in text
        assert entry.copyright in text
        assert "WITHOUT WARRANT" in (CUTS / f"licences/{entry.licence}.txt").read_text().upper()


def read_all(found: Recording) -> list[tidyprof.Profile]:
    """What tidyprof reads of a recording: of each workload of rocprof-compute, or of all."""
    folders = [found.path]
    if found.name in COMPUTE:
        folders = [
            path.parent for name, path in found.files.items() if name.endswith("pmc_perf.csv")
        ]
    return [
        tidyprof.read(folder, **({"python_functions": True} if found.name == WITH_STACKS else {}))
        for folder in folders
    ]


@pytest.mark.parametrize("both", large_ones_later(sorted({*RECIPES} - {LLAMA_CPP})), indirect=True)
def test_events_and_counters_are_those_of_the_whole(both: list[Recording]) -> None:
    for cut, whole in zip(*map(read_all, both), strict=True):
        pd.testing.assert_frame_equal(cut.events, whole.events)
        asked = whole.counters["name"].isin(cut.counters["name"])
        left, right = (
            counters.astype({"name": str, "unit": str}).reset_index(drop=True)
            for counters in (cut.counters, whole.counters[asked])
        )
        pd.testing.assert_frame_equal(left, right)


@pytest.mark.parametrize("both", large_ones_later(TRACES), indirect=True)
def test_analyses_of_a_cut_trace_are_those_of_the_whole(both: list[Recording]) -> None:
    cut, whole = (tidyprof.read(one.path) for one in both)
    for analyse in ANALYSES:
        pd.testing.assert_frame_equal(analyse(cut), analyse(whole))
    assert {name: cut.meta.get(name) for name in FACTS} == {
        name: whole.meta.get(name) for name in FACTS
    }


@pytest.mark.parametrize("both", others_later(COMPUTE, COMPUTE[:1]), indirect=True)
def test_a_cut_workload_has_its_roofline_and_its_speed_of_light(both: list[Recording]) -> None:
    for cut, whole in zip(*map(read_all, both), strict=True):
        for analyse in (
            tidyprof.roofline_points,
            tidyprof.roofline_ceilings,
            tidyprof.speed_of_light,
        ):
            pd.testing.assert_frame_equal(analyse(cut), analyse(whole))


@pytest.mark.parametrize("both", sorted(RECIPES), indirect=True)
def test_a_cut_table_holds_nothing_that_the_whole_one_does_not(both: list[Recording]) -> None:
    cut, whole = (one.files for one in both)
    for name in (name for name in cut if name.endswith(".csv")):
        left, right = (pd.read_csv(files[name], dtype=str) for files in (cut, whole))
        rows = (
            right.iloc[:, 0].isin(left.iloc[:, 0])
            if name.endswith("2.1_Speed-of-Light.csv")
            else slice(None)
        )
        pd.testing.assert_frame_equal(left, right.loc[rows, list(left)].reset_index(drop=True))


@pytest.mark.parametrize("both", [LLAMA_CPP], indirect=True)
def test_kernels_of_the_trace_in_csv_files(both: list[Recording]) -> None:
    cut, whole = (tidyprof.read(one.files["decode_kernel_trace.csv"]) for one in both)
    pd.testing.assert_frame_equal(tidyprof.kernels(cut), tidyprof.kernels(whole))
    pd.testing.assert_frame_equal(tidyprof.busy(cut), tidyprof.busy(whole))


@pytest.mark.parametrize("both", ["rpd-mi200-matmul", "rpd-vllm-mytrace"], indirect=True)
def test_views_of_a_cut_database_answer_as_those_of_the_whole(
    both: list[Recording], tmp_path: Path
) -> None:
    answers = []
    for one in both:
        with closing(sqlite3.connect(unpacked_to(tmp_path / one.source, one.path))) as connection:
            tables = [
                f"SELECT * FROM {name}"
                for name in ("api", "op", "busy", "ktop", "top", "kernel", "copy", "copyop")
            ]
            answers.append([sorted(connection.execute(question).fetchall()) for question in tables])
    assert answers[0] == answers[1]
    assert all(answers[0])


@pytest.mark.parametrize(
    "name", ["torch-mi300x-compile-triton", "rpd-mi200-matmul", "rocprof-compute-mi200-vcopy"]
)
def test_cutting_again_changes_nothing(name: str, recordings: Mirror, tmp_path: Path) -> None:
    entry = load_manifest()[name]
    made = make_cut(entry, recordings, tmp_path)
    assert [file.path for file in made.files] == [file.path for file in entry.cut.files]
    for file in made.files:
        assert unpacked(tmp_path / file.path) == unpacked(CUTS / file.path), file.path


def unpacked(path: Path) -> bytes:
    """The content, for libraries of another machine may pack it otherwise, and note another version
    in a database.
    """
    content = path.read_bytes()
    if path.suffix == ".rpd":
        with closing(sqlite3.connect(path)) as connection:
            return "\n".join(connection.iterdump()).encode()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def unpacked_to(target: Path, path: Path) -> Path:
    """A database as SQLite opens it."""
    target.write_bytes(
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    )
    return target
