"""Every known fault has the effect that its description states, by counts, ratios or order."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter

import pytest
import torch

from cifar_train import config, injected_faults
from cifar_train.hooks import Hook, Hooks
from cifar_train.loop import train
from cifar_train.models import build_model
from cifar_train.ranks import Launch
from cifar_train.train import run, set_up

CPU = torch.device("cpu")


def operators(result) -> Counter:
    """How often each operator and range was called in the recorded steps."""
    with gzip.open(result.folder / "trace_rank0_of_1.json.gz") as source:
        found = json.load(source)["traceEvents"]
    return Counter(
        event["name"] for event in found if event.get("cat") in ("cpu_op", "user_annotation")
    )


@pytest.fixture
def profiled(quick, tmp_path):
    """Two recorded steps with and without a pathology, as operator counts."""

    def make(name=None, **changes):
        folder = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
        return run(
            quick(max_steps=3, torch_profile=True, inject_fault=name, run_dir=folder, **changes)
        )

    return make


@pytest.mark.parametrize(
    "name", ["many-small-kernels", "wrong-layout", "unpinned-copies", "sync-every-step"]
)
@pytest.mark.parametrize("model", ["resnet", "vit", "swinv2"])
def test_slow_ways_to_the_same_result_keep_the_losses(quick, tmp_path, name, model):
    healthy = run(quick(model=model, run_dir=tmp_path / "healthy"))
    ill = run(quick(model=model, inject_fault=name, run_dir=tmp_path / "ill"))
    assert [r.loss for r in ill.records] == pytest.approx(
        [r.loss for r in healthy.records], rel=1e-3
    )


def test_slow_loader_turns_the_step_into_waiting_for_data(quick, tmp_path):
    seconds = time.monotonic()
    result = run(quick(max_steps=4, batch_size=8, inject_fault="slow-loader", num_workers=2))
    elapsed = time.monotonic() - seconds
    assert result.summaries[0].median_step_ns >= 8 * config.SECONDS_PER_SLOW_IMAGE * 1e9
    assert elapsed >= 4 * 8 * config.SECONDS_PER_SLOW_IMAGE
    assert json.loads((result.folder / "config.json").read_text())["num_workers"] == 0


def layers(model: torch.nn.Module, *kinds: str) -> int:
    """How many layers of the model have a class whose name contains one of these words."""
    return sum(any(kind in type(layer).__name__ for kind in kinds) for layer in model.modules())


@pytest.mark.parametrize(
    ("name", "model", "operator", "least"),
    [
        ("sync-every-step", "resnet", "_local_scalar_dense", lambda m: len([*m.parameters()])),
        ("unpinned-copies", "resnet", "_to_copy", lambda m: 4),
        ("wrong-layout", "resnet", "clone", lambda m: layers(m, "Conv2d", "Linear")),
        ("wrong-layout", "vit", "clone", lambda m: layers(m, "Linear")),
        ("many-small-kernels", "resnet", "sign", lambda m: layers(m, "ReLU")),
        ("many-small-kernels", "vit", "erf", lambda m: layers(m, "GELU")),
    ],
)
def test_more_operators_run_in_each_of_two_steps(profiled, name, model, operator, least):
    extra = operators(profiled(name, model=model)) - operators(profiled(model=model))
    assert extra[f"aten::{operator}"] >= 2 * least(build_model(model)) > 0


def test_tiny_batch_makes_as_many_calls_for_fewer_images(profiled):
    healthy, ill = profiled(batch_size=32), profiled("tiny-batch", batch_size=32)
    assert {record.images for record in ill.records} == {config.TINY_BATCH}
    assert operators(ill)["aten::convolution"] == operators(healthy)["aten::convolution"]


def test_recompile_compiles_again_in_every_step(quick, monkeypatch):
    compilations = []

    def count(graph, inputs):
        compilations.append(graph)
        return graph

    eager_compile = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: eager_compile(model, backend=count))
    torch._dynamo.reset()
    run(quick(max_steps=4, compile=True))
    healthy = len(compilations)
    compilations.clear()
    torch._dynamo.reset()
    run(quick(max_steps=4, compile=True, inject_fault="recompile"))
    assert len(compilations) >= healthy + 3


def test_rank_skew_delays_the_last_rank_alone(quick):
    assert len(run(quick(inject_fault="rank-skew")).notes) == 1
    for rank, late in ((0, False), (1, True)):
        trainer = set_up(quick(inject_fault="rank-skew"), Launch(rank=rank, world_size=2), CPU)
        assert bool(trainer.fault_hooks) == late
    slept = []
    original, injected_faults.time.sleep = injected_faults.time.sleep, slept.append
    try:
        trainer.fault_hooks[0].after_data(0)
    finally:
        injected_faults.time.sleep = original
    assert slept == [config.SKEW_SECONDS]


def test_no_warmup_counts_and_records_the_first_step(profiled):
    result = profiled("no-warmup")
    assert operators(result)["ProfilerStep#0"] == 1
    assert {record.part for record in result.records} == {"steady"}


def test_memory_growth_keeps_the_same_amount_every_step(quick):
    trainer = set_up(quick(max_steps=5, inject_fault="memory-growth"), Launch(), CPU)
    train(trainer, Hooks(trainer.fault_hooks))
    kept = trainer.fault_hooks[0].kept
    largest = max(parameter.numel() for parameter in trainer.raw_model.parameters())
    assert [tensor.numel() for tensor in kept] == [largest] * 5


@pytest.mark.parametrize("model", ["resnet", "vit", "swinv2"])
@pytest.mark.parametrize("name", [None, "broken-grad"])
def test_broken_grad_leaves_parameters_without_a_gradient(quick, model, name):
    class Missing(Hook):
        def after_backward(self, step):
            self.count = sum(weights.grad is None for weights in trainer.raw_model.parameters())

    trainer = set_up(quick(max_steps=1, model=model, inject_fault=name), Launch(), CPU)
    seen = Missing()
    train(trainer, seen)
    assert bool(seen.count) == (name is not None)
