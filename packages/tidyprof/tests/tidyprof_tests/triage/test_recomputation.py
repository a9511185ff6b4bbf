"""Gradient checkpointing is told from any other backward, in traces that torch records here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint

from tidyprof_tests.triage.traces import Step, diagnosed, facts, triaged


class Block(torch.nn.Module):
    """Normalization, two linear layers, and what is between them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.first, self.second = (
            torch.nn.LayerNorm(8),
            torch.nn.Linear(8, 16),
            torch.nn.Linear(16, 8),
        )

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return batch + self.second(
            functional.dropout(functional.gelu(self.first(self.norm(batch))))
        )


class OwnLinear(torch.autograd.Function):
    """A backward that somebody wrote, which calls the operator of a forward."""

    @staticmethod
    def forward(ctx, batch, weight):
        ctx.save_for_backward(batch, weight)
        return functional.linear(batch, weight)

    @staticmethod
    def backward(ctx, gradient):
        batch, weight = ctx.saved_tensors
        return functional.linear(gradient, weight.t()), functional.linear(gradient.t(), batch.t())


BLOCK, CONVOLUTIONS = (
    Block(),
    torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3),
        torch.nn.BatchNorm2d(2),
        torch.nn.ReLU(inplace=True),
        torch.nn.Conv2d(2, 1, 3),
    ),
)


def plain(batch: torch.Tensor) -> torch.Tensor:
    return BLOCK(batch).square().mean()


def penalty(batch: torch.Tensor) -> torch.Tensor:
    """With the gradient of a gradient, whose backward is recorded as a forward is."""
    loss = CONVOLUTIONS(torch.tanh(BLOCK(batch)).reshape(1, 1, 8, 8)).mean()
    (gradient,) = torch.autograd.grad(loss, batch, create_graph=True)
    return loss + functional.silu(gradient).norm()


def own(batch: torch.Tensor) -> torch.Tensor:
    return OwnLinear.apply(batch, BLOCK.first.weight).mean()


def kept(batch: torch.Tensor) -> torch.Tensor:
    """A checkpoint whose backward is never run."""
    return checkpoint(BLOCK, batch, use_reentrant=False).detach().mean() + BLOCK(batch).mean()


def checkpointed(
    module: torch.nn.Module, shape: tuple[int, ...], reentrant: bool
) -> Callable[..., torch.Tensor]:
    def loss(batch: torch.Tensor) -> torch.Tensor:
        return checkpoint(module, batch.reshape(shape), use_reentrant=reentrant).mean()

    return loss


def recorded(path: Path, loss: Callable[[torch.Tensor], torch.Tensor], stacks: bool) -> Path:
    """A trace of three steps on a processor."""
    plan = schedule(wait=0, warmup=1, active=3, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, with_stack=stacks) as profiler:
        for _ in range(4):
            loss(torch.randn(8, 8, requires_grad=True)).backward()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return path


def seen(path: Path) -> bool:
    """Return True if triage sees it, however short it was next to what other programs took."""
    return facts(diagnosed(path)).get("recomputed_share", 0) > 0


@pytest.mark.parametrize("stacks", [False, True], ids=["operators", "stacks"])
@pytest.mark.parametrize("reentrant", [False, True], ids=["hooks", "reentrant"])
@pytest.mark.parametrize(
    ("module", "shape"),
    [(BLOCK, (8, 8)), (CONVOLUTIONS, (1, 1, 8, 8))],
    ids=["transformer", "convolutions"],
)
def test_a_checkpoint_is_told(
    module: torch.nn.Module, shape: tuple[int, ...], reentrant: bool, stacks: bool, tmp_path: Path
) -> None:
    assert seen(recorded(tmp_path / "trace.json", checkpointed(module, shape, reentrant), stacks))


@pytest.mark.parametrize("stacks", [False, True], ids=["operators", "stacks"])
@pytest.mark.parametrize("loss", [plain, penalty, own, kept], ids=lambda loss: loss.__name__)
def test_any_other_backward_is_no_checkpoint(
    loss: Callable[[torch.Tensor], torch.Tensor], stacks: bool, tmp_path: Path
) -> None:
    assert not seen(recorded(tmp_path / "trace.json", loss, stacks))


def test_on_a_gpu_it_is_a_share_of_the_device_s_work(tmp_path: Path) -> None:
    """3 of 10 ms of kernels, launched by the operators of a forward within a node of backward."""

    def fill(step: Step) -> None:
        step.operator("autograd::engine::evaluate_function: ReluBackward0", 5, 9)
        work = (("conv2d", 0, 4), ("conv2d", 5, 2), ("relu", 8, 1), ("mm", 12, 3))
        for name, at, length in work:
            step.operator(f"aten::{name}", at + 0.01, 0.05)
            step.launch(at + 0.01, length, name)

    assert facts(triaged(tmp_path, 20, fill))["recomputed_share"] == pytest.approx(0.3)
