"""Lesson 12: its exercises on shipped and whole traces, and facts that its text states."""

from __future__ import annotations

import pytest

import tidyprof
from proflab.exercises import Outcome, find, selftest
from proflab.recordings import fetch, recording
from tests.public_recordings import Mirror


def test_slips_about_graphs_are_named() -> None:
    """Answers are rounded. The file is idle for nearly as long as the graph is busy."""
    idle = find("12.2").on(tidyprof.read(recording("torch-mi300x-sglang-decode").path))
    assert idle.evaluate(2.8).outcome is Outcome.PASSED
    assert "remaining" in idle.evaluate(97.2).message
    assert idle.evaluate(97.9).message.startswith("You used all events in the file")
    share = find("12.3").on(tidyprof.read(recording("rpd-vllm-mytrace").path))
    assert share.evaluate(7.784).message.startswith("You used the time that the host")


@pytest.mark.parametrize("whole", [False, True])
def test_mistakes_are_told_apart_on_cuts_and_on_whole_recordings(
    whole: bool, recordings: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    if whole:
        monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings.whole()))
    read = fetch if whole else recording
    for number, name in {"12.2": "torch-mi300x-sglang-decode", "12.3": "rpd-vllm-mytrace"}.items():
        selftest(number, tidyprof.read(read(name).path))


def test_the_traces_are_of_the_models_that_the_lesson_names() -> None:
    """One attention kernel per layer of Qwen3-8B, and the wait of the first work by hand."""
    for name in ("torch-mi300x-sglang-decode", "torch-mi300x-vllm-decode-hipgraph"):
        run = tidyprof.read(recording(name).path)
        first = run.device_events.sort_values("start_ns").drop_duplicates("stream")
        waited = (first["start_ns"] - first["launch_ns"]).max()
        assert waited == pytest.approx(tidyprof.step_budget(run)["other_ns"].iloc[0], rel=0.1)
    sglang = tidyprof.read(recording("torch-mi300x-sglang-decode").path)
    names = sglang.device_events["name"].astype(str)
    assert names.str.contains("paged_attention_ll4mi_QKV").sum() == 36
