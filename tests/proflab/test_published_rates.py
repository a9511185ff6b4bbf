"""AMD's published lines as steps, against figures worked out by hand from the page."""

from __future__ import annotations

import pytest

from proflab.parts.averages import averages
from proflab.parts.published_rates import published_rates


def test_durations_and_medians_follow_from_the_rates() -> None:
    one_gpu, parallel = published_rates("one GPU"), published_rates("parallel")
    assert (len(one_gpu), len(parallel)) == (21, 20)
    assert one_gpu["duration_ns"].iloc[0] == pytest.approx(453.2e6, rel=1e-3)
    steady = one_gpu[one_gpu["part"] == "steady"]
    assert steady["images_per_second"].median() == pytest.approx(12787, abs=1)
    assert parallel["images_per_second"].iloc[5:19].median() == pytest.approx(8598, abs=1)
    assert averages(one_gpu)["step_ns"].iloc[2] == steady["duration_ns"].median()


def test_the_origin_names_publisher_and_machine() -> None:
    origin = published_rates("parallel").attrs["origin"]
    assert origin.kind == "recorded"
    assert "MI300X" in origin.detail
    assert "published by AMD" in origin.detail
