"""Lesson 12: what of it runs on a GPU alone, its queue, and its exercises on each origin of their data."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import tidyprof
from proflab.exercises.registry import selftest
from proflab.lessons import lessons
from proflab.recordings import fetch, recording


def test_a_graph_is_recorded_after_what_its_stream_has_to_wait_for() -> None:
    done: list[str] = []

    def stream(name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, wait_stream=lambda other: done.append(f"{name} waits for {other.name}"))

    @contextmanager
    def entered(what: str, where: SimpleNamespace):
        done.append(f"{what} {where.name}")
        yield

    cuda = SimpleNamespace(
        Stream=lambda: stream("side"),
        current_stream=lambda: stream("main"),
        stream=lambda where: entered("in", where),
        CUDAGraph=lambda: "graph",
        graph=lambda graph, stream: entered("record in", stream),
    )
    record = function_of_lesson("recorded", torch=SimpleNamespace(cuda=cuda))
    assert record(lambda: done.append("work") or "answer") == ("graph", "answer")
    warm_up = ["side waits for main", "in side", "work", "work", "work", "main waits for side"]
    assert done == [*warm_up, "record in side", "work"]


def function_of_lesson(name: str, **known: object) -> Callable:
    """A function of the lesson's, with what it uses of the lesson."""
    source = ast.parse(lessons()["12"].source.read_text(encoding="utf-8"))
    source.body = [node for node in source.body if getattr(node, "name", "") == name]
    exec(compile(source, "lesson 12", "exec"), known)
    return known[name]


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_the_queue_waits_as_long_as_the_formula_says(load: float) -> None:
    # Pollaczek and Khinchine, for equal requests that arrive at random: load * work / (2 * (1 - load)) on average.
    waits = function_of_lesson("waits_s", np=np)(load, 2.0, requests=200_000)
    assert waits.mean() == pytest.approx(load * 2.0 / (2 * (1 - load)), rel=0.1)


def test_noise_in_one_time_is_enough_to_tell_nothing() -> None:
    can_tell = function_of_lesson("can_tell")
    assert can_tell({"sum": (1.0, 1.2, 1.4), "decode": (10, 11, 12)})
    assert not can_tell({"sum": (1.0, 1.2, 1.5), "decode": (10, 11, 12)})


def test_the_shipped_table_is_what_the_recording_holds(recordings: Path) -> None:
    table = pd.read_csv(lessons()["12"].folder / "owlv2_kernels.csv", comment="#")
    whole = tidyprof.kernels(tidyprof.read(next((recordings / "torch-mi300x-owlv2").glob("*.json.gz"))))
    assert (table["calls"].sum(), table["total_ns"].sum()) == (whole["calls"].sum(), whole["total_ns"].sum())
    softmax = whole.loc[whole["name"].str.contains("cunn_SoftMaxForwardReg"), "total_ns"].sum()
    assert softmax == table.loc[table["operator"] == "aten::_softmax", "total_ns"].max()


@pytest.mark.parametrize("whole", [False, True])
def test_mistakes_are_told_apart_on_cuts_and_on_whole_recordings(
    whole: bool, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if whole:
        monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings))
    names = ("torch-mi300x-compile-triton", "torch-mi300x-sglang-decode", "rpd-vllm-mytrace")
    read = fetch if whole else recording
    block, sglang, served = (tidyprof.read(read(name).path) for name in names)
    owlv2 = pd.read_csv(lessons()["12"].folder / "owlv2_kernels.csv", comment="#")
    tables = {"OWLv2": owlv2, "compiled block": tidyprof.kernels(block)}
    selftest("12.3", sglang)
    selftest("12.5", served)
    selftest("12.7", tables | {"SGLang": tidyprof.kernels(sglang), "vLLM, FP8": tidyprof.kernels(served)})
