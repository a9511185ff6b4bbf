"""The exercises of lesson 02 on the MI300X recording, on a trace made here, and on profiles checked by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tidyprof
from proflab.exercises import Outcome, exercises_of, find, selftest
from proflab.parts.modelled_rank import modelled_rank
from proflab.recordings import recording
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

lesson = exercises_of("02")

NAME = "torch-mi300x-resnet-ddp-rank0"
ON_OWN_RUN = ("02.1", "02.2")
ON_RECORDING = ("02.3", "02.4", "02.5", "02.6")


@pytest.fixture(scope="module")
def gpu(recordings: Path) -> Profile:
    return tidyprof.read(recordings / NAME / "resnet_act_checkpoint.json.gz")


@pytest.fixture(scope="module")
def truth(recordings: Path) -> dict:
    manifest = json.loads((recordings / "manifest.json").read_text())
    return next(entry["truth"] for entry in manifest if entry["name"] == NAME)


@pytest.fixture(scope="module")
def cpu_trace(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """Two steps of one convolution, recorded here with the ranges that the trainer writes."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    model = torch.nn.Conv2d(3, 8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with profile(activities=[ProfilerActivity.CPU]) as recorder:
        for step in range(2):
            with record_function(f"ProfilerStep#{step}"):
                with record_function("data"):
                    images = torch.randn(4, 3, 16, 16)
                with record_function("forward"):
                    output = model(images)
                with record_function("backward"):
                    output.square().mean().backward()
                with record_function("optimizer"):
                    optimizer.step()
    path = tmp_path_factory.mktemp("trace") / "trace_rank0_of_1.json"
    recorder.export_chrome_trace(str(path))
    return tidyprof.read(path)


def profile_of(*rows: tuple) -> Profile:
    """Rows of kind, name, start and end in ns; device events may add a stream and a launch time."""
    filled = []
    for kind, name, start, end, *more in rows:
        stream, launch = [*more, None, None][:2]
        on_device = kind in tidyprof.DEVICE_KINDS
        place = {"device": 0, "stream": stream or 0} if on_device else {"process": 1, "thread": 1}
        times = {"start_ns": start, "duration_ns": end - start, "launch_ns": launch}
        filled.append({"rank": 0, "kind": kind, "name": name, "short_name": name, **place, **times})
    events = pd.DataFrame(filled, columns=[*EVENT_DTYPES, "launch_ns"]).astype({**EVENT_DTYPES, "launch_ns": "Int64"})
    events = events.sort_values("start_ns", kind="stable").reset_index(drop=True)
    return Profile(events, meta={"origin": Origin("modelled", "by hand")})


@pytest.fixture
def own_run() -> Profile:
    """Two steps: in the first forward is longest, in the last backward; half of all self time is convolution."""
    return profile_of(
        ("annotation", "ProfilerStep#4", 0, 1000),
        ("annotation", "forward", 0, 700),
        ("annotation", "backward", 700, 900),
        ("annotation", "ProfilerStep#5", 1000, 2000),
        ("annotation", "data", 1000, 1050),
        ("annotation", "forward", 1050, 1350),
        ("annotation", "backward", 1350, 1850),
        ("operator", "aten::conv2d", 1050, 1250),
        ("operator", "aten::mkldnn_convolution", 1060, 1240),
        ("operator", "aten::add_", 1300, 1350),
        ("operator", "ConvolutionBackward0", 1400, 1500),
        ("operator", "aten::sum", 1500, 1750),
    )


def test_every_exercise_is_tested_here() -> None:
    assert tuple(exercise.id for exercise in lesson.EXERCISES) == ON_OWN_RUN + ON_RECORDING


@pytest.mark.parametrize("number", ON_RECORDING)
def test_right_and_wrong_answers_on_the_recording(number: str, gpu: Profile) -> None:
    selftest(number, gpu)


@pytest.mark.parametrize("number", ON_OWN_RUN)
def test_right_and_wrong_answers_on_a_run_checked_by_hand(number: str, own_run: Profile) -> None:
    selftest(number, own_run)


@pytest.mark.parametrize("number", ON_OWN_RUN)
def test_exercises_work_on_a_trace_made_here(number: str, cpu_trace: Profile) -> None:
    selftest(number, cpu_trace, mistakes=False)
    assert find(number).on(cpu_trace).evaluate("loss").outcome is Outcome.WRONG


@pytest.mark.parametrize("number", ON_OWN_RUN + ON_RECORDING)
def test_without_the_recording_nothing_is_judged(number: str) -> None:
    assert find(number).on(None).evaluate(1).outcome is Outcome.NOT_ATTEMPTED


def test_answers_by_hand(own_run: Profile) -> None:
    assert lesson.last_step_phases(own_run)["phase"].tolist() == ["backward", "forward", "data"]
    # Self times: conv2d 20, mkldnn 180, add 50, ConvolutionBackward0 100, sum 250.
    assert lesson.convolution_share(own_run) == pytest.approx(50)
    assert lesson.convolution_totals(own_run) == pytest.approx(100 * (200 + 180 + 100) / 600)
    assert lesson.largest_convolution(own_run) == pytest.approx(30)


def test_busy_fractions_agree_with_the_truth(gpu: Profile, truth: dict) -> None:
    span = truth["gpu_span_us"]
    assert lesson.busy_fraction(gpu, tidyprof.DEVICE_KINDS) == pytest.approx(truth["gpu_busy_fraction"], abs=1e-5)
    assert lesson.busy_fraction(gpu, column="sum_ns") == pytest.approx(truth["kernel_total_us"] / span, abs=1e-5)
    kernels = gpu.events[gpu.events["kind"].isin(lesson.KERNELS)]
    start = kernels["start_ns"].to_numpy()
    end = np.maximum.accumulate(start + kernels["duration_ns"].to_numpy())
    gaps = np.maximum(start[1:] - end[:-1], 0).sum()
    assert lesson.busy_fraction(gpu) == pytest.approx((end[-1] - start[0] - gaps) / (1000 * span), abs=1e-5)


@pytest.mark.parametrize(("factor", "words"), [(100, "percent"), (1000, "a thousand times too big"), (1e-3, "units")])
def test_units_are_recognised(factor: float, words: str, gpu: Profile) -> None:
    result = find("02.3").on(gpu).evaluate(factor * lesson.busy_fraction(gpu))
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_exposed_share_as_a_fraction_gets_a_hint(gpu: Profile) -> None:
    result = find("02.4").on(gpu).evaluate(lesson.exposed_share(gpu) / 100)
    assert "looks like fraction; percent is asked" in result.message


def test_kernels_belong_to_the_step_that_launched_them() -> None:
    # Three kernels are launched in the second step (100-200), of which none runs in it; two older ones do.
    profile = profile_of(
        ("annotation", "ProfilerStep#0", 0, 100),
        ("annotation", "ProfilerStep#1", 100, 200),
        ("kernel", "old", 110, 120, 0, 50),
        ("kernel", "lost", 120, 130),
        *(("kernel", "new", 210 + 10 * place, 215 + 10 * place, 0, 150 + place) for place in range(3)),
        ("copy", "Memcpy DtoD", 250, 260, 0, 199),
        *(("kernel", "next", 270, 280, 0, 200),) * 2,
    )
    assert lesson.launched_in_second_step(profile) == 3
    assert lesson.launched_in_second_step(profile, column="start_ns") == 2
    selftest("02.5", profile)


def test_budget_accepts_any_division_that_adds_up(gpu: Profile) -> None:
    parts = lesson.second_step_parts(gpu)
    question = find("02.6").on(gpu)
    assert question.evaluate(pd.Series(parts)).outcome is Outcome.PASSED
    half, other = parts["idle"] // 2, parts["idle"] - parts["idle"] // 2
    assert question.evaluate({**parts, "idle": half, "rest": other}).outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda parts: sum(parts.values()), "A dictionary of parts"),
        (lambda parts: {**parts, "idle": -1, "more": parts["idle"] + 1}, "A part is negative"),
        (lambda parts: {**parts, "compute": 0, "idle": parts["idle"] + parts["compute"]}, "`compute` is not"),
        (lambda parts: {"kernels": 1, "copies": 2, "idle": 3}, "call one of them `compute`"),
    ],
)
def test_budget_names_what_is_wrong(change, words: str, gpu: Profile) -> None:
    result = find("02.6").on(gpu).evaluate(change(lesson.second_step_parts(gpu)))
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_a_recording_of_one_step_cannot_be_judged() -> None:
    profile = profile_of(("annotation", "ProfilerStep#0", 0, 100), ("kernel", "k", 10, 20, 0, 5))
    assert "fewer than two steps" in find("02.5").on(profile).evaluate(1).message


def test_the_modelled_rank_shows_what_the_recording_shows(monkeypatch, tmp_path: Path) -> None:
    """What the lesson says of the recording must hold where the model stands in for it."""
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path))
    rank = modelled_rank()
    assert rank.origin.kind == "modelled"
    assert len(tidyprof.steps(rank)) == 3
    busy, parts = tidyprof.busy(rank, ["kernel", "collective"]).iloc[0], tidyprof.overlap(rank).iloc[0]
    assert busy["sum_percent"] > 100 > busy["union_percent"] > 90
    assert parts["exposed_communication_ns"] > parts["computation_ns"] > 10 * parts["idle_ns"]
    launches = tidyprof.launches(rank)
    assert launches["delay_ns"].median() > 1e6
    assert rank.meta["device_events_without_launch"] > 0
    for number in ON_RECORDING:
        selftest(number, rank, mistakes=False)


def test_what_compiling_does_to_the_vision_transformer() -> None:
    eager, compiled = (
        tidyprof.operators(tidyprof.read(recording(name).path)).set_index("name")["calls"]
        for name in ("torch-cpu-vit", "torch-cpu-vit-compiled")
    )
    for kept in ("aten::addmm", "aten::mm", "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::lerp_"):
        assert eager[kept] == compiled[kept] > 0
    for merged in ("aten::gelu", "aten::native_layer_norm"):
        assert eager[merged] > 0
        assert merged not in compiled
    assert compiled["CompiledFunction"] == 2
    assert compiled.sum() < eager.sum()
