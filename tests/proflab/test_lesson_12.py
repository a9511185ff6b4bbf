"""Lesson 12: when its times are in doubt, and its exercises on each origin of their data."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, find, selftest
from proflab.lessons import lessons
from proflab.recordings import fetch, recording
from tests.public_recordings import Mirror


def function_of_lesson(name: str, **known: object) -> Callable:
    """A function of the lesson's, with what it uses of the lesson."""
    source = ast.parse(lessons()["12"].source.read_text(encoding="utf-8"))
    source.body = [node for node in source.body if getattr(node, "name", "") == name]
    exec(compile(source, "lesson 12", "exec"), known)
    return known[name]


def times_of(
    quarter: float = 10, three_quarters: float = 12, processor_percent: float = 99
) -> pd.DataFrame:
    calm = {"quarter": 1.0, "three_quarters": 1.4, "processor_percent": 100.0}
    other = {
        "quarter": quarter,
        "three_quarters": three_quarters,
        "processor_percent": processor_percent,
    }
    return pd.DataFrame([calm, other])


def test_noise_in_one_time_is_doubt() -> None:
    disturbed = function_of_lesson("disturbed")
    assert disturbed(times_of(), has_gpu=False) == ""
    assert disturbed(times_of(three_quarters=15), has_gpu=True) == "the times scatter"


def test_a_load_that_never_changes_is_doubt_where_the_processor_does_the_work() -> None:
    disturbed = function_of_lesson("disturbed")
    shared = times_of(processor_percent=50)
    assert (
        disturbed(shared, has_gpu=False)
        == "other programs had the processor for a part of the time"
    )
    assert disturbed(shared, has_gpu=True) == ""  # the thread may sleep while the device works


def test_slips_about_graphs_are_named() -> None:
    """Rounded as somebody types them; the rest of the file is idle for nearly as long as the graph
    is busy.
    """
    idle = find("12.2").on(tidyprof.read(recording("torch-mi300x-sglang-decode").path))
    assert idle.evaluate(2.8).outcome is Outcome.PASSED
    assert idle.evaluate(97.2).message.startswith("That is how long it is busy")
    assert idle.evaluate(97.9).message.startswith("You took all events of the file")
    share = find("12.3").on(tidyprof.read(recording("rpd-vllm-mytrace").path))
    assert share.evaluate(7.8).message.startswith("That is the host's time in the call")


@pytest.mark.parametrize("whole", [False, True])
def test_mistakes_are_told_apart_on_cuts_and_on_whole_recordings(
    whole: bool, recordings: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    if whole:
        monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings.whole()))
    read = fetch if whole else recording
    for number, name in {"12.2": "torch-mi300x-sglang-decode", "12.3": "rpd-vllm-mytrace"}.items():
        selftest(number, tidyprof.read(read(name).path))
