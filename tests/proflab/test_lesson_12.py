"""Lesson 12: when its times are in doubt, and its exercises on each origin of their data."""

from __future__ import annotations

import pytest

import tidyprof
from proflab.exercises import Outcome, find, selftest
from proflab.recordings import fetch, recording
from tests.public_recordings import Mirror


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
