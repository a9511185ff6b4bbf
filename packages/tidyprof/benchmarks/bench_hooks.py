"""Measure what the hooks of `tidyprof run` cost.

    python -m benchmarks.bench_hooks

Training steps of models with 3 to 1,000 modules run in one process, in blocks that alternate
between with and without hooks. The cost is the median difference of neighbors, in CPU time of the
thread, so that other programs matter little.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from typing import Any

import torch
from torch import nn

from tidyprof.running.launch import HERE

STEPS, PAIRS = 20, 60


def hooked(folder: str) -> tuple[Any, list[tuple[Any, str, Any, Any]]]:
    """Return hooks that time steps for ever, and what they replaced: owner, name, original, new."""
    sys.path.insert(0, str(HERE / "first"))
    import sitecustomize

    inside = sitecustomize.load_hooks()
    from tidyprof_inside import hooks as module  # type: ignore[import-not-found]
    from tidyprof_inside import recorder

    del inside
    recorder.TIMED = 10**9
    asked = {"out": folder, "after": 10**9, "steps": 3, "stacks": False, "shapes": False}
    hooks = module.Hooks(torch, {**asked, "mark": ""})
    replaced = []
    wrap = hooks.wrap

    def noting(owner: Any, name: str, *rest: Any, **named: Any) -> None:
        original = getattr(owner, name)
        wrap(owner, name, *rest, **named)
        replaced.append((owner, name, original, getattr(owner, name)))

    hooks.wrap = noting
    call = nn.Module.__call__
    hooks.install()
    replaced.append((nn.Module, "__call__", call, nn.Module.__call__))
    optimizers = sys.modules["torch.optim.optimizer"]
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        replaced.append((optimizers, name, {}, getattr(optimizers, name)))
    return hooks, replaced


def block(model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Return the CPU time of a step in ns."""
    began = time.thread_time_ns()
    for _ in range(STEPS):
        optimizer.zero_grad()
        batch, target = torch.randn(8, 8), torch.randint(0, 10, (8,))
        nn.functional.cross_entropy(model(batch), target).backward()
        optimizer.step()
    return (time.thread_time_ns() - began) / STEPS


def main() -> None:
    """Print a row per number of modules."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        hooks, replaced = hooked(folder)
        print("modules  step, us  measured, us      %")
        for count in (3, 30, 100, 300, 1000):
            torch.manual_seed(0)
            width = 90 if count == 100 else 8  # so that a step of 100 modules takes some 5 ms
            layers = [nn.Linear(width, width) for _ in range(count - 2)]
            model = nn.Sequential(nn.Linear(8, width), *layers, nn.Linear(width, 10))
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
            alone, differences = [], []
            for pair in range(1 + (PAIRS if count <= 100 else PAIRS // 4)):
                for side in (0, 1) if pair % 2 else (1, 0):
                    for owner, name, original, new in replaced:
                        setattr(owner, name, new if side else original)
                    if side:
                        hooks.recorder.stage = "warm-up"
                        hooks.recorder.files or block(model, optimizer)
                        hooks.recorder._begin_timing("before")
                        with_hooks = block(model, optimizer)
                    else:
                        without = block(model, optimizer)
                if pair:
                    alone.append(without)
                    differences.append(with_hooks - without)
            step, measured = map(statistics.median, (alone, differences))
            print(
                f"{count:7} {step / 1e3:9.0f} {measured / 1e3:13.1f} {100 * measured / step:6.2f}"
            )


if __name__ == "__main__":
    main()
