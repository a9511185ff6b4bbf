"""Lesson 15: what ships as recorded is what its program would record."""

from __future__ import annotations

import pytest

from proflab.lessons import lessons
from tidyprof import read_flight_recorder

FOLDER = lessons()["15"].folder
PROGRAM = (FOLDER / "hangs.py").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    "kind", ["late", "skipped", "fixed", "other_size", "other_order", "dead", "aborted"]
)
def test_the_lines_of_a_recording_are_calls_of_the_program(kind: str) -> None:
    calls = read_flight_recorder(FOLDER / "recorded" / kind)
    for call, line in zip(calls["call"], calls["line"].str.extract(r"\((\d+)\)")[0], strict=True):
        assert f"dist.{call.removeprefix('gloo:')}(" in PROGRAM[int(line) - 1]
