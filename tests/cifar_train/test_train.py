"""A run from its first step to its files: what it computes, counts, records and reports."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import tidyprof
from cifar_train import precision, profiling, report
from cifar_train.clock import StepClock
from cifar_train.hooks import PHASES, Hook, PhaseRanges, StepOutcome
from cifar_train.loop import train
from cifar_train.peaks import peak_flops
from cifar_train.ranks import Launch
from cifar_train.train import LOCK, run, set_up
from tests.conftest import require
from tidyprof.errors import UserError

CPU, GPU = torch.device("cpu"), torch.device("cuda")
MODELS = ("resnet", "vit", "swinv2")


def trainer_for(config):
    return set_up(config, Launch(), CPU)


class Losses(Hook):
    """Collects the losses of a run as exact numbers."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def step_end(self, outcome):
        self.values.append(outcome.loss.item())


def bare_losses(trainer) -> list[float]:
    """The same training run in the plainest way."""
    losses = []
    trainer.loaders.sampler.set_epoch(0)
    for _, (images, labels) in zip(
        range(trainer.planned_steps), trainer.loaders.train, strict=False
    ):
        loss = torch.nn.functional.cross_entropy(trainer.model(images).logits, labels)
        loss.backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("model", MODELS)
def test_loop_equals_the_same_training_in_the_plainest_way(quick, model):
    config = quick(model=model, max_steps=4)
    seen = Losses()
    train(trainer_for(config), seen)
    assert seen.values == bare_losses(trainer_for(config))


def test_the_loss_falls(quick):
    losses = [record.loss for record in run(quick(max_steps=60, batch_size=32)).records]
    assert sum(losses[-5:]) < 0.98 * sum(losses[:5])


def test_watching_a_run_changes_none_of_its_losses(quick, tmp_path):
    plain, watched = (
        run(quick(max_steps=5, run_dir=tmp_path / str(watch), torch_profile=watch))
        for watch in (False, True)
    )
    assert [r.loss for r in plain.records] == [r.loss for r in watched.records]


def test_epochs_reshuffle_and_the_short_last_batch_is_counted_as_it_is(quick, monkeypatch):
    trainer = trainer_for(quick(max_steps=7, max_epochs=3, batch_size=8))
    epochs: list[int] = []
    monkeypatch.setattr(trainer.loaders.sampler, "set_epoch", epochs.append)
    batches = [batch for batch, _ in zip(trainer.loaders.train, range(3), strict=False)]
    batches[-1] = tuple(part[:5] for part in batches[-1])
    trainer.loaders = replace(trainer.loaders, train=batches, steps_per_epoch=3)
    watch = StepClock(CPU)
    assert train(trainer, watch) == 7
    assert epochs == [0, 1, 2]
    assert [outcome.epoch for outcome in watch.outcomes] == [0, 0, 0, 1, 1, 1, 2]
    assert [outcome.images for outcome in watch.outcomes] == [8, 8, 5, 8, 8, 5, 8]


def test_phases_follow_one_another_without_gaps(quick):
    calls: list[str] = []
    train(trainer_for(quick(max_steps=2)), PhaseRanges(calls.append, lambda: calls.append("end")))
    assert calls == 2 * [call for phase in PHASES for call in (phase, "end")]


def test_the_clock_of_a_gpu_waits_for_the_device_only_after_the_run(monkeypatch):
    log: list[str] = []

    class Event:
        def __init__(self, enable_timing):
            self.at = 2.5 * len(log)

        def record(self):
            log.append("record")

        def elapsed_time(self, end):
            assert log[-1] == "synchronize"
            return end.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: log.append("synchronize"))
    clock = StepClock(GPU)
    for step in range(3):
        clock.step_begin(step)
        clock.step_end(StepOutcome(step, 0, 4, torch.tensor(1.0)))
    assert log == ["record"] * 6
    assert clock.durations_ns == [2_500_000] * 3


# Precision


@pytest.fixture(params=[True, False])
def native(request, monkeypatch) -> bool:
    monkeypatch.setattr(precision, "has_bfloat16", lambda: request.param)
    return request.param


@pytest.mark.parametrize("name", ["float32", "automixed", "bfloat16"])
def test_the_convolutions_of_a_run_have_the_type_that_it_reports(quick, native, name):
    trainer = trainer_for(quick(precision=name))
    seen = set()
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.register_forward_hook(lambda module, inputs, output: seen.add(output.dtype))
    result = run(quick(precision=name))
    with trainer.autocast():
        trainer.model(torch.zeros(2, 3, 32, 32, dtype=trainer.input_dtype))
    half = torch.bfloat16 if native else torch.float32
    assert seen == {half if name == "automixed" else getattr(torch, name)}
    assert seen == {getattr(torch, result.summaries[0].arithmetic)}
    assert not trainer.scaler.is_enabled()
    assert precision.arithmetic("automixed", GPU) is torch.float16


# Profiling


def trace(result) -> dict:
    with gzip.open(result.folder / "trace_rank0_of_1.json.gz") as source:
        return json.load(source)


def test_default_run_records_steps_9_to_11_with_all_phases_and_times_the_steps_before(quick):
    result = run(quick(max_steps=20, torch_profile=True))
    found = trace(result)
    names = [
        event["name"] for event in found["traceEvents"] if event.get("cat") == "user_annotation"
    ]
    steps = sorted(name for name in names if name.startswith("ProfilerStep"))
    assert steps == ["ProfilerStep#10", "ProfilerStep#11", "ProfilerStep#9"]
    assert [names.count(phase) for phase in PHASES] == [3] * len(PHASES)
    assert [record.step for record in result.records if record.profiled] == [8, 9, 10, 11]
    assert result.summaries[0].steady_steps == 20 - 5 - 4
    untraced = found[profiling.UNTRACED_KEY]
    plain = [record.duration_ns for record in result.records if 4 <= record.step < 8]
    assert untraced["steps"] == len(plain)
    assert sum(plain) <= len(plain) * untraced["step_ns"]
    assert 0 < untraced["parts_ns"]["data"] < untraced["step_ns"]


def test_a_short_recording_is_read_by_tidyprof_and_has_shapes_if_asked(quick, tmp_path):
    for shapes in (False, True):
        result = run(
            quick(
                max_steps=3,
                torch_profile=True,
                record_shapes=shapes,
                run_dir=tmp_path / str(shapes),
            )
        )
        events = trace(result)["traceEvents"]
        assert any("Input Dims" in event.get("args", {}) for event in events) == shapes
        assert len(tidyprof.steps(tidyprof.read(result.files[1]))) == 2
        assert (result.folder / "key_averages_rank0_of_1.txt").stat().st_size > 1000
        assert profiling.UNTRACED_KEY not in trace(result)


def test_a_sigterm_keeps_what_is_recorded_so_far(quick):
    class Cancels(Losses):
        def step_end(self, outcome):
            if outcome.step == 10:
                signal.raise_signal(signal.SIGTERM)

    config = quick(max_steps=20, torch_profile=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiling, "record_function_ranges", Cancels)
        result = run(config)
    assert result.stop_reason == "SIGTERM"
    assert len(result.records) == 10
    assert trace(result)["traceEvents"]


def test_roctx_ranges_are_pushed_in_order_or_refused(quick, monkeypatch):
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", calls.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop"))
    run(quick(max_steps=1, roctx=True))
    assert calls[2:] == [call for phase in PHASES for call in (phase, "pop")]

    def missing(name):
        raise RuntimeError("NVTX functions not installed")

    monkeypatch.setattr(torch.cuda.nvtx, "range_push", missing)
    with pytest.raises(UserError):
        run(quick(max_steps=1, roctx=True))


# Results


def test_a_run_leaves_its_settings_steps_and_summary(quick):
    result = run(quick(max_steps=4, batched_transforms=True, channels_last=True))
    lines = (result.folder / "metrics_rank0_of_1.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert [record["record"] for record in found] == ["run", *["step"] * 4, "summary"]
    assert found[0]["config"] == json.loads((result.folder / "config.json").read_text())
    assert [record["part"] for record in found[1:-1]] == ["warmup", *["steady"] * 3]
    assert [record["loss"] for record in found[1:-1]] == [r.loss for r in result.records]
    last = found[-1]
    durations = sorted(record["duration_ns"] for record in found[2:-1])
    assert last["median_step_ns"] == durations[1]
    assert last["images_per_second"] == pytest.approx(3 * 4 / sum(durations) * 1e9)
    assert {path.name for path in result.folder.iterdir()} == {
        "config.json",
        "metrics_rank0_of_1.jsonl",
        LOCK,
    }


HOLD = """
import sys
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_folder_in_use_is_refused_and_the_default_ones_differ(quick, tmp_path, monkeypatch):
    command = [sys.executable, "-c", HOLD, str(tmp_path / LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UserError):
            run(quick(run_dir=tmp_path))
        other.stdin.close()
    run(quick(run_dir=tmp_path))
    monkeypatch.chdir(tmp_path)
    assert len({run(quick(run_dir=None, max_steps=1)).folder for _ in range(2)}) == 2


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("AMD Instinct MI300X", "automixed", 1307.4e12),
        ("AMD Instinct MI300X", "float32", 163.4e12),
        ("AMD Instinct MI250X / MI250", "bfloat16", 191.5e12),
        ("AMD EPYC 9654", "float32", None),
    ],
)
def test_mfu_where_the_peak_is_known(quick, monkeypatch, name, kind, expected):
    assert peak_flops(name, kind) == expected
    monkeypatch.setattr(report, "device_name", lambda device: name)
    monkeypatch.setattr(report, "training_flops_per_image", lambda model: 10**9)
    summary = run(quick(precision=kind)).summaries[0]
    share = expected and pytest.approx(summary.images_per_second * 1e9 / expected)
    assert summary.mfu == share


@pytest.mark.long
def test_compile_is_timed_apart_and_keeps_the_losses(quick, tmp_path):
    require(shutil.which("g++") is not None, "a C++ compiler (Debian package g++)")
    eager, compiled = (
        run(quick(max_steps=4, compile=compile, run_dir=tmp_path / str(compile))).summaries[0]
        for compile in (False, True)
    )
    assert eager.compile_ns is None
    assert compiled.compile_ns > compiled.first_step_ns
    assert compiled.last_loss == pytest.approx(eager.last_loss, rel=1e-3)


def test_a_failing_compiler_is_a_user_error(quick, monkeypatch):
    def fails(graph, inputs):
        raise torch._dynamo.exc.TorchDynamoException("no compiler")

    eager_compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: eager_compile(model, backend=fails))
    torch._dynamo.reset()
    with pytest.raises(UserError):
        run(quick(compile=True))
