"""What lesson 11 keeps outside of its cells: played requests by hand, the map of memory, and its exercises' sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from proflab.exercises import exercises_of
from proflab.parts.memory_map import MEBIBYTE, memory_map
from proflab.parts.snapshots import modelled_snapshot, phases_of, play_requests, trainer_parameters
from tidyprof import Profile, memory_blocks, plots

lesson = exercises_of("11")
REQUESTS = [(6 * MEBIBYTE, place % 3 == 2) for place in range(9)]


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path))


@pytest.fixture
def crowded() -> Profile:
    """Three segments of 20 MiB with three tensors each, of which one stays."""
    return play_requests(REQUESTS, 30 * MEBIBYTE, 64 * MEBIBYTE)


def test_memory_runs_out_although_two_thirds_are_free(crowded: Profile) -> None:
    blocks = memory_blocks(crowded)
    assert crowded.events["name"].iloc[-1] == "oom"
    assert blocks.query("state == 'inactive'")["bytes"].sum() == 3 * (20 - 6) * MEBIBYTE
    assert crowded.counters.query("name == 'free memory'")["value"].tolist() == [4 * MEBIBYTE]


def test_the_map_says_how_much_is_free(crowded: Profile) -> None:
    text = plots.describe(memory_map(memory_blocks(crowded), "A map"))
    assert "Bars of 3 segments of memory. 70 % of them is free." in text


def test_phases_of_the_modelled_trainer_come_from_its_lines() -> None:
    snapshot = modelled_snapshot("healthy")
    phases = phases_of(snapshot)
    assert phases["name"].tolist() == ["model", *["data", "forward", "backward", "optimizer"] * 3]
    end_ns = phases["start_ns"] + phases["duration_ns"]
    assert end_ns[:-1].tolist() == phases["start_ns"][1:].tolist()
    assert end_ns.iloc[-1] > snapshot.events["start_ns"].max()


def test_the_trainers_parameters_are_those_of_resnet_50() -> None:
    assert sum(trainer_parameters()) == 4 * 23_712_932  # ResNet-50 with 100 classes
