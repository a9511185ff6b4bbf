"""What the exercises of lesson 12 compute, by hand: a model's bound, and graphs in a small profile."""

from __future__ import annotations

from proflab.exercises import exercises_of, find
from tests.proflab.test_lesson_02 import profile_of

lesson = exercises_of("12")


def test_without_a_graph_nothing_is_judged() -> None:
    result = find("12.3").on(profile_of(("kernel", "a", 0, 10))).evaluate(3)
    assert "no graph was launched" in result.message
