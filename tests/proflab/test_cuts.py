"""The cuts of public recordings that ship with the course: what lessons ask of them is what the
whole ones say.
"""

from __future__ import annotations

import gzip
import hashlib
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import tidyprof
from proflab.recordings import Recording, fetch, load_manifest, recording, shipped_folder
from tests.conftest import others_later
from tests.public_recordings import Mirror
from tools.cuts import make_cut, notice
from tools.cuts.recipes import RECIPES

CUTS = shipped_folder() / "cuts"
MAX_BYTES = 12 * 10**6
WITH_STACKS = "torch-mi300x-resnet-ddp-rank0"
LLAMA_CPP = "rocprofv3-csv-gfx1151-llamacpp-decode"
LARGE = ("torch-mi300-ddp-4ranks-fused", WITH_STACKS)
COMPUTE = [name for name in RECIPES if name.startswith("rocprof-compute-")]


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


def test_the_manifest_lists_the_cuts_and_they_are_small() -> None:
    cut = {name: entry for name, entry in load_manifest().items() if entry.cut}
    assert set(cut) == set(RECIPES)
    assert sum(path.stat().st_size for path in CUTS.rglob("*") if path.is_file()) < MAX_BYTES
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


def test_source_copyright_and_license_travel_with_the_cuts() -> None:
    cut = [entry for entry in load_manifest().values() if entry.cut]
    text = (CUTS / "NOTICE.md").read_text(encoding="utf-8")
    assert text == notice(cut)
    for entry in cut:
        assert f"https://github.com/{entry.source_repo}/tree/{entry.source_commit}" in text
        assert entry.copyright in text
        assert "WITHOUT WARRANT" in (CUTS / f"licenses/{entry.license}.txt").read_text().upper()


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
