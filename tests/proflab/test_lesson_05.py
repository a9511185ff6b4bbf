"""What the exercises of lesson 05 compute, and which answers they refuse."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from proflab.exercises import exercises_of, find, selftest
from proflab.lessons import lessons_folder

lesson = exercises_of("05")


def test_a_convolution_counted_by_hand() -> None:
    # 16 outputs of 3 channels; each needs 2 channels x 9 weights, a multiplication and an addition:
    # 16 x 3 x 18 x 2 operations. 32 numbers in, 54 weights, 48 out, 2 bytes each.
    small = {"images": 1, "channels": 2, "filters": 3, "size": 4, "filter_width": 3}
    assert lesson.intensity(small) == pytest.approx(1728 / 268)
    # AMD prints 542.1 FLOP per byte for this one.
    published = {"images": 256, "channels": 256, "filters": 256, "size": 2, "filter_width": 3}
    assert lesson.intensity(published) == pytest.approx(542.1, abs=0.05)


def test_what_is_forgotten_in_a_convolution_is_named() -> None:
    layer = {"images": 1024, "channels": 128, "filters": 128, "size": 4, "filter_width": 3}
    selftest("05.1", layer)
    question = find("05.1").on(layer)
    # Numbers of four bytes give the same value as one operation instead of two.
    assert "four bytes" in question.evaluate(lesson.intensity(layer, operations=1)).message
    assert "`size**2`" in question.evaluate(lesson.intensity(layer, squared=(1, 2))).message


HOMES = {"coalesced": "coalesced_profile", "stride": "uncoalesced_profile"}


@pytest.mark.parametrize("origin", ["whole", "cut"])
def test_every_mistake_is_refused_on_the_whole_recordings_and_on_their_cuts(
    recordings: Path, origin: str
) -> None:
    root = recordings if origin == "whole" else lessons_folder().parent / "recordings" / "cuts"
    homes = {
        name: root / "rocprof-compute-mi300x-coalescing" / part / "MI300X_A1"
        for name, part in HOMES.items()
    }
    raw = (
        pd.concat({name: pd.read_csv(home / "pmc_perf.csv") for name, home in homes.items()})
        .droplevel(1)
        .copy()
    )
    selftest("05.3", raw)
    assert lesson.moved_per_needed(raw) == pytest.approx(10.1, abs=0.05)
