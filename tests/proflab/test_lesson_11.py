"""What lesson 11 keeps outside of its cells: played requests by hand, the map of memory, and its exercises' sums."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from proflab.exercises import exercises_of, selftest
from proflab.parts.memory_map import MEBIBYTE, memory_map
from proflab.parts.snapshots import play_requests, trainer_parameters
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


def test_the_order_is_the_cure() -> None:
    data = (REQUESTS, 30 * MEBIBYTE, 64 * MEBIBYTE)
    # What stays fills one segment; the other two are empty and go back before the last request.
    assert lesson.reserved_mib(data, first=True) == 20 + 30
    assert lesson.reserved_mib(data, first=None) == 60
    selftest("11.6", data)


def test_the_map_says_how_much_is_free(crowded: Profile) -> None:
    text = plots.describe(memory_map(memory_blocks(crowded), "A map"))
    assert "Bars of 3 segments of memory. 70 % of them is free." in text


def test_sums_by_hand() -> None:
    assert lesson.training_mib([4 * MEBIBYTE], 12) == 12
    measured = pd.DataFrame({"batch": [1, 3], "peak_bytes": [110.0, 130.0]})
    assert lesson.line_through(measured) == (10, 100)
    selftest("11.3", (measured, 1000))
    assert sum(trainer_parameters()) == 4 * 23_712_932  # ResNet-50 with 100 classes
