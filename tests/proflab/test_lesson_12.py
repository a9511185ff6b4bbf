"""What the exercises of lesson 12 compute, by hand: a model's bound, and graphs in a small profile."""

from __future__ import annotations

import pandas as pd
import pytest

from proflab.exercises import exercises_of, find, selftest
from tests.proflab.test_lesson_02 import profile_of
from tidyprof import Profile

lesson = exercises_of("12")

# 1232 weights, and 2 layers * 2 rows * 4 numbers * 2 bytes = 32 bytes of cache for each token.
MODEL = {"layers": 2, "width": 8, "heads": 2, "kv_heads": 1, "head_size": 4, "inner": 16, "words": 10}


def two_steps() -> Profile:
    """Prefill of 50, then two graphs of 40 and 60 that are 80 apart, with 40 idle from the first kernel to the last."""
    profile = profile_of(
        ("kernel", "prefill", 0, 50),
        ("runtime", "hipGraphLaunch", 60, 65),
        ("kernel", "a", 70, 90),
        ("kernel", "b", 100, 120),
        ("runtime", "hipGraphLaunch", 140, 145),
        ("kernel", "a", 150, 180),
        ("kernel", "b", 180, 210),
    )
    return Profile(profile.events.assign(correlation_id=[1, 2, 2, 2, 3, 3, 3]), meta=profile.meta)


def test_a_step_reads_the_weights_once_and_each_cache() -> None:
    asked = {"model": MODEL, "batch": 5, "context": 10, "bandwidth": 2464 + 5 * 320, "peak": 1e6}
    assert lesson.most_tokens(asked, lesson.token_bytes(MODEL)) == 5
    selftest("12.1", asked)


def test_a_further_request_reads_as_long_as_it_computes() -> None:
    # A token takes 2464 operations, so 2 s, in which 640 bytes are read: 20 tokens of cache.
    asked = {"model": MODEL, "batch": 1, "context": 1, "bandwidth": 320, "peak": 1232}
    assert lesson.longest_text(asked) == 20
    selftest("12.2", asked)


def test_graphs_by_hand() -> None:
    profile = two_steps()
    assert lesson.idle_percent(lesson.graph_events(profile)) == pytest.approx(100 * 40 / 140)
    assert lesson.longest_gap_ns(lesson.graph_events(profile)) == 30
    assert lesson.graph_share(profile) == pytest.approx(100 * 50 / 80)
    assert lesson.graph_share(profile, "device") == pytest.approx(100 * 100 / 150)
    selftest("12.5", profile)


def test_without_a_graph_nothing_is_judged() -> None:
    result = find("12.3").on(profile_of(("kernel", "a", 0, 10))).evaluate(3)
    assert "no graph was launched" in result.message


def test_kernels_of_a_graph_share_their_launch() -> None:
    selftest("12.6", pd.DataFrame({"Correlation_Id": [1, 7, 7, 7, 2, 9, 9, 8, 8]}))
