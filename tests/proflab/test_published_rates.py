"""AMD's published lines against figures worked out by hand from the page."""

from __future__ import annotations

import pytest

from proflab.parts.published_rates import FITTING_RANKS, TRAINING_IMAGES, last_batch_images, published_rates


def test_both_listings_are_whole() -> None:
    one_gpu, parallel = published_rates("one GPU"), published_rates("parallel")
    assert (len(one_gpu), len(parallel)) == (21, 20)
    assert one_gpu["images_per_second"].iloc[[0, 4, 20]].tolist() == [564.89, 4789.11, 12677.30]
    assert parallel["images_per_second"].iloc[[0, 4, 19]].tolist() == [411.42, 3684.07, 3115.56]


def test_durations_and_medians_follow_from_the_rates() -> None:
    one_gpu, parallel = published_rates("one GPU"), published_rates("parallel")
    assert one_gpu["duration_ns"].iloc[0] == pytest.approx(453.2e6, rel=1e-3)
    steady = one_gpu[one_gpu["part"] == "steady"]
    assert steady["images_per_second"].median() == pytest.approx(12787, abs=1)
    assert steady["images_per_second"].mean() == pytest.approx(12603, abs=1)
    assert parallel["images_per_second"].iloc[5:19].median() == pytest.approx(8598, abs=1)


def test_the_origin_names_publisher_and_machine() -> None:
    origin = published_rates("parallel").attrs["origin"]
    assert origin.kind == "recorded"
    assert "MI300X" in origin.detail
    assert "published by AMD" in origin.detail


def test_only_eight_ranks_end_after_exactly_the_published_lines() -> None:
    lines = published_rates("parallel")
    fitting = [ranks for ranks in range(1, 33) if 0 < last_batch_images(lines, ranks) <= 256]
    assert fitting == [FITTING_RANKS]
    assert last_batch_images(lines, FITTING_RANKS) == 136
    assert TRAINING_IMAGES == 8 * (19 * 256 + 136)
