"""Lesson 15: what ships as recorded is what its program would record."""

from __future__ import annotations

import pytest

from proflab.exercises import exercises_of
from proflab.lessons import lessons
from tidyprof import read_flight_recorder

FOLDER = lessons()["15"].folder
PROGRAM = (FOLDER / "hangs.py").read_text(encoding="utf-8").splitlines()
lesson = exercises_of("15")


@pytest.mark.parametrize("kind", ["late", "skipped", "cured", "other_size", "other_order", "dead"])
def test_the_lines_of_a_recording_are_calls_of_the_program(kind: str) -> None:
    calls = read_flight_recorder(FOLDER / "recorded" / kind)
    for call, line in zip(calls["call"], calls["line"].str.extract(r"\((\d+)\)")[0], strict=True):
        assert f"dist.{call.removeprefix('gloo:')}(" in PROGRAM[int(line) - 1]


def test_the_line_that_was_left_out_stands_in_the_branch() -> None:
    skipped = FOLDER / "recorded" / "skipped"
    number = lesson.line_of(skipped, lesson.parted(skipped), lesson.others(skipped))
    assert PROGRAM[number - 2].strip() == "if rank != 1:"


def test_nothing_of_the_machine_that_recorded_is_shipped() -> None:
    for file in FOLDER.glob("recorded/*/rank_*"):
        assert not [
            word
            for word in (b"/home", b"/work", b"/tmp", b"site-packages")
            if word in file.read_bytes()
        ]
