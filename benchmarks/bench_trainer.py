"""Overhead of the trainer compared with a bare hand-written loop.

Both use the same model, batch and data. Claims: the trainer reaches at least 0.98 of the bare
loop's steps per second, the null hook takes under 0.5% of a step, and --help takes under half a
second. Machines are noisy, so each pair is measured alternately within one run, and the ratio of
medians counts (`extra_info`).
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from cifar_train.config import TrainConfig
from cifar_train.hooks import Hook, Hooks, StepOutcome
from cifar_train.loop import Trainer, train
from cifar_train.ranks import Launch
from cifar_train.train import set_up

STEPS = 6
ROUNDS = 5


class ReadyBatches:
    """The same batch repeated forever, so that loading isn't measured."""

    def __init__(self, batch):
        self.batch = batch

    def __iter__(self):
        while True:
            yield self.batch


@pytest.fixture(scope="module", params=["resnet", "vit", "swinv2"])
def trainer(request) -> Trainer:
    from dataclasses import replace

    import torch

    config = TrainConfig(
        model=request.param,
        batch_size=32,
        max_steps=STEPS,
        data="synthetic",
        num_workers=0,
        precision="float32",
    )
    trainer = set_up(config, Launch(), torch.device("cpu"))
    batch = next(iter(trainer.loaders.train))
    trainer.loaders = replace(trainer.loaders, train=ReadyBatches(batch), steps_per_epoch=STEPS)
    return trainer


def bare_loop(trainer: Trainer) -> None:
    """Run the simplest training loop that does the same work."""
    import torch

    batches = iter(trainer.loaders.train)
    for _ in range(STEPS):
        images, labels = next(batches)
        loss = torch.nn.functional.cross_entropy(trainer.model(images).logits, labels)
        loss.backward()
        trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)


def paired_ratios(first: Callable[[], None], second: Callable[[], None]) -> list[float]:
    """Return the ratios of `first` time to `second` time, measured alternately."""
    first()
    second()
    ratios = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        first()
        middle = time.perf_counter()
        second()
        ratios.append((middle - begin) / (time.perf_counter() - middle))
    return ratios


def test_loop_against_bare_loop(benchmark, trainer):
    ratios = paired_ratios(lambda: bare_loop(trainer), lambda: train(trainer))
    benchmark.extra_info["speed_against_bare_loop_median"] = round(statistics.median(ratios), 4)
    benchmark.extra_info["speed_against_bare_loop_all"] = [round(ratio, 4) for ratio in ratios]
    benchmark.pedantic(train, args=(trainer,), rounds=2)


def test_null_hooks_of_one_step(benchmark, trainer):
    """Compare all six hook points of eight null hooks with the time of a step."""
    hooks = Hooks([Hook() for _ in range(8)])
    outcome = StepOutcome(0, 0, 32, None)

    def points() -> None:
        hooks.step_begin(0)
        hooks.after_data(0)
        hooks.after_forward(0)
        hooks.after_loss(0)
        hooks.after_backward(0)
        hooks.step_end(outcome)

    benchmark(points)
    begin = time.perf_counter()
    train(trainer)
    step_seconds = (time.perf_counter() - begin) / STEPS
    benchmark.extra_info["percent_of_a_step"] = round(
        100 * benchmark.stats.stats.median / step_seconds, 5
    )


def test_help(benchmark):
    command = [sys.executable, "-m", "cifar_train", "--help"]
    benchmark.pedantic(
        subprocess.run, args=(command,), kwargs={"capture_output": True, "check": True}, rounds=7
    )
