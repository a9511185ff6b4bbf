"""The 90 minutes: right and wrong answers to the rounds that a busy machine shows."""

from __future__ import annotations

from pathlib import Path

from proflab.parts.rounds import rounds_to_judge

from proflab.exercises.registry import selftest


def test_right_and_wrong_answers_to_the_recorded_rounds(tmp_path: Path) -> None:
    rounds, origin = rounds_to_judge(tmp_path)
    assert origin.kind == "recorded"
    selftest("90.2", rounds)
