"""The allocator's model, the map of memory and the exercises of lesson 11."""

from __future__ import annotations

from pathlib import Path

import pytest
from proflab.parts.snapshots import (
    MEBIBYTE,
    memory_map,
    play_requests,
)

from proflab.exercises import Outcome, find
from tidyprof import Profile, memory_blocks, plots

IN_LESSON = (
    [(round(6.6 * MEBIBYTE), place % 3 == 0) for place in range(94)],
    64 * MEBIBYTE,
    640 * MEBIBYTE,
)
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
    figure = memory_map(memory_blocks(crowded), "A map")
    assert "largest free block: 12 MiB" in plots.describe(figure)
    assert "3 segments of memory as bars. 70% of their bytes are free." in plots.describe(figure)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (304, "You reversed the order"),
        (277.2, "You counted the bytes in use"),
        (275.2, "what the tensors requested"),
        (220, "left out the last request"),
        (640, "the whole device"),
    ],
)
def test_another_order_and_other_bytes_do_not_pass(answer: float, words: str) -> None:
    result = find("11.4").on(IN_LESSON).evaluate(answer)
    assert result.outcome is Outcome.WRONG
    assert words in result.message
