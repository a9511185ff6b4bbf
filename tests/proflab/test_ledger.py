"""The ledger and its gate: how much faster, how sure, and does the model still train?"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cifar_train.injected_faults import apply_to_model
from proflab import ledger
from proflab.correctness_gate import (
    REQUIRED,
    TOLERANCE,
    CorrectnessGate,
    Part,
    Trial,
    same_gradients,
    same_losses,
)
from proflab.errors import CourseError

GREEN = CorrectnessGate(tuple(Part(name, True, "looked at") for name in REQUIRED))
RED = CorrectnessGate((Part(REQUIRED[0], False, "2 of 10 parameters get none"), *GREEN.parts[1:]))
MODEL = "recorded: AMD; modeled: MI300X"
NEAR = [0.998, 0.999, 1.0, 1.001, 1.002]


@pytest.mark.parametrize(
    ("before", "after", "gate", "origin", "verdict", "speed_up"),
    [
        ([2.0] * 5, [1.0] * 5, GREEN, None, "faster", "2.00 times"),
        ([1.0] * 5, [2.0] * 5, GREEN, None, "slower", "0.50 times"),
        ([1.0] * 5, [1.0] * 5, GREEN, None, "inconclusive", "1.00 times"),
        ([2.0] * 5, [1.0] * 5, RED, None, "unproven", "2.00 times"),
        ([1.0] * 5, [2.0] * 5, None, None, "slower", "0.50 times"),
        (NEAR, [0.4] * 5, GREEN, MODEL, "faster in the model", "2.5 times"),
        (NEAR, [2.0] * 5, None, MODEL, "slower in the model", "0.50 times"),
        (NEAR, [0.96] * 5, GREEN, MODEL, "inconclusive", "1.0 times"),
    ],
)
def test_verdict(before, after, gate, origin, verdict: str, speed_up: str, capsys, bench: Path):
    found = ledger.add("an idea", before, after, gate, origin=origin)
    assert (found.verdict, found.interval.partition(" (")[0]) == (verdict, speed_up)
    assert ("interval" in found.interval) == (origin is None)
    out = capsys.readouterr().out
    assert verdict in out
    assert found.interval in " ".join(out.split())
    assert json.loads((bench / ledger.FILE).read_text())["verdict"] == verdict


def test_hand_worked_interval() -> None:
    # Of the 251 exchanges, the interval leaves out five at each end. Those are 8 for each of the
    # five 4s. The next one exchanges 8 and 9 for two 4s, so the interval begins at 17 / 8, and by
    # symmetry ends at 23 / 8.
    found = ledger.add("an idea", [8, 9, 10, 11, 12], [4] * 5).speed_up
    assert found[:3] == (2.5, 2.125, 2.875)


def test_each_attempt_is_counted() -> None:
    for change, attempt in (("a", 1), ("b", 1), ("a", 2)):
        assert ledger.add("h", NEAR, NEAR, change=change).attempt == attempt


@pytest.mark.parametrize(
    ("before", "after", "more"),
    [
        ([1.0] * 4, [1.0] * 5, {}),
        (1.0, [1.0] * 5, {}),
        ("12345", [1.0] * 5, {}),
        ([1.0, 1, 1, 1, 0], [1.0] * 5, {}),
        ([True] * 5, [1.0] * 5, {}),
        ([1.0] * 5, [1.0] * 5, {"per": "epoch"}),
    ],
)
def test_what_can_not_be_compared(before: Any, after: Any, more: dict, bench: Path) -> None:
    with pytest.raises(CourseError):
        ledger.add("an idea", before, after, GREEN, **more)
    assert not (bench / ledger.FILE).exists()


def test_the_trainer_is_asked_for_its_rate(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = (
        "--device cpu --data synthetic --batch-size 2 --max-steps 2 --warmup-steps 1"
        " --num-workers 0"
    )
    assert ledger.trainer(small)() > 0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CourseError):
        ledger.trainer("--no-such-option")()


def small_net() -> nn.Module:
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)]
    last = [nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)]
    return nn.Sequential(*layers, *last).double()


def trial(model: nn.Module, fused: bool = False, rate: float = 1e-2) -> Trial:
    """Four steps on one batch, as the lesson does them."""
    images = torch.rand(8, 3, 12, 12, generator=torch.Generator().manual_seed(2)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=fused)
    losses, gradients = [], None
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(images), torch.arange(8) % 4)
        loss.backward()
        gradients = gradients or [weights.grad for weights in model.parameters()]
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return Trial(losses, gradients, 32)


def test_cures_pass_and_a_missing_backward_pass_or_a_divergence_does_not() -> None:
    plain, wild = trial(small_net()), trial(small_net(), rate=50.0)
    assert CorrectnessGate.of(plain, trial(small_net(), fused=True)).green
    for fault in ("many-small-kernels", "wrong-layout"):
        assert CorrectnessGate.of(plain, trial(apply_to_model(fault, small_net()))).green
    # The last normalization cuts off itself and all before it: only the linear layer learns.
    broken = CorrectnessGate.of(plain, trial(apply_to_model("broken-grad", small_net())))
    assert [part.passed for part in broken.parts] == [False, False, True]
    assert not CorrectnessGate.of(wild, wild).green
    assert not CorrectnessGate.of(plain, Trial(plain.losses, plain.gradients, 31)).green


def test_green_needs_all_three_parts() -> None:
    assert (GREEN.green, RED.green) == (True, False)
    for place in range(3):
        assert not CorrectnessGate(GREEN.parts[:place] + GREEN.parts[place + 1 :]).green


def test_gradients_and_losses_by_hand() -> None:
    old = [torch.tensor([3.0, 4.0]).double(), torch.zeros(2).double()]
    moved = [old[0] + torch.tensor([0.0, 4e-6]).double(), old[1]]  # 4e-6 of 5
    assert same_gradients(old, old).passed
    assert same_gradients(old, moved).passed
    for other in (old[0] * (1 + 3 * TOLERANCE), old[0] * math.nan, None):
        assert not same_gradients(old, [other, old[1]]).passed
    assert not same_gradients(old, old[:1]).passed
    assert same_losses([4.0, 3.0], [4.0, 3.0]).passed
    for losses in ([4.0, 3.001], [4.0, math.nan], [4.0]):
        assert not same_losses([4.0, 3.0], losses).passed
    assert not same_losses([], []).passed
