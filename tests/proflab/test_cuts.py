"""The cuts of public recordings that ship with the course: what lessons ask of them is what the whole ones say."""

from __future__ import annotations

import gzip
import hashlib
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from proflab.lessons import lessons
from proflab.manifest import load_manifest, shipped_folder
from proflab.recordings import Recording, fetch, recording
from tools.cuts import make_cut, notice
from tools.cuts.recipes import RECIPES

CUTS = shipped_folder() / "cuts"
MOST_BYTES = 12 * 10**6
WITH_STACKS = "torch-mi300x-resnet-ddp-rank0"
COMPUTE = [name for name in RECIPES if name.startswith("rocprof-compute-")]
_CALLED = re.compile(r'recording\("([\w-]+)"')
_TEXT = re.compile(r'"((?:torch|rocprof|rpd|smi|modelled)[\w-]+)"')


@pytest.fixture
def both(recordings: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[Recording]:
    """The cut of a recording, as a machine without anything else has it, and the whole one."""
    cut = recording(request.param)
    assert cut.source == "cut"
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings))
    return [cut, fetch(request.param)]


def test_every_recording_that_a_lesson_names_is_here_without_network() -> None:
    named = set()
    for lesson in lessons().values():
        text = lesson.source.read_text(encoding="utf-8")
        named |= {*_CALLED.findall(text), *(name for name in _TEXT.findall(text) if name in load_manifest())}
    assert named >= {"torch-nvidia-a100-alexnet", "rpd-vllm-mytrace", "modelled-resnet"}
    assert {name: recording(name).source for name in named if recording(name).source not in ("shipped", "cut")} == {}
    assert set(RECIPES) <= named


def test_the_manifest_lists_the_cuts_and_they_are_small() -> None:
    cut = {name: entry for name, entry in load_manifest().items() if entry.cut}
    assert set(cut) == set(RECIPES)
    assert sum(path.stat().st_size for path in CUTS.rglob("*") if path.is_file()) < MOST_BYTES
    for name, entry in cut.items():
        assert {file.path for file in entry.cut.files} == {f"{name}/{path}" for path in RECIPES[name].files}


def test_no_published_file_is_copied() -> None:
    published = {file.sha256: file for entry in load_manifest().values() for file in entry.files if file.url}
    shipped = [path for path in shipped_folder().rglob("*") if path.is_file()]
    assert [path for path in shipped if hashlib.sha256(path.read_bytes()).hexdigest() in published] == []
    sizes = {file.path: file.bytes for file in published.values()}
    assert all(file.bytes < sizes[file.path] for entry in load_manifest().values() if entry.cut for file in entry.cut.files)


def test_source_copyright_and_licence_travel_with_the_cuts() -> None:
    cut = [entry for entry in load_manifest().values() if entry.cut]
    text = (CUTS / "NOTICE.md").read_text(encoding="utf-8")
    assert text == notice(cut)
    for entry in cut:
        assert f"https://github.com/{entry.source_repo}/tree/{entry.source_commit}" in text
        assert entry.copyright in text
        assert "WITHOUT WARRANT" in (CUTS / f"licences/{entry.licence}.txt").read_text().upper()


@pytest.mark.parametrize("both", [name for name in RECIPES if name not in COMPUTE], indirect=True, ids=str)
def test_readers_say_of_a_cut_what_they_say_of_the_whole(both: list[Recording]) -> None:
    stacks = {"python_functions": True} if both[0].name == WITH_STACKS else {}
    cut, whole = (tidyprof.read(one.path, **stacks) for one in both)
    if both[0].name.startswith("rocprofv3-csv"):  # of the kernels alone, and not their shapes
        kept = [name for name in cut.events if cut.events[name].notna().any()]
        whole = tidyprof.read(both[1].files["decode_kernel_trace.csv"])
        pd.testing.assert_frame_equal(cut.events[kept], whole.events[kept])
        return
    pd.testing.assert_frame_equal(cut.events, whole.events)
    asked = whole.counters[whole.counters["name"].isin(cut.counters["name"])]
    pd.testing.assert_frame_equal(cut.counters, asked, check_index=False) if len(asked) else None
