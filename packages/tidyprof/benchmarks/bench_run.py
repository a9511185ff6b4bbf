"""What the hooks of `tidyprof run` cost a step outside of its trace: blocks of steps with and
without them, in pairs.

    python -m benchmarks.bench_run

Prints, for trainings from 0.5 to some 20 ms a step, the shortest step with hooks and the shortest
without: of blocks that take turns, since other work on the machine lengthens some of them by more
than the hooks cost.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from tidyprof.running.launch import HERE

PAIRS, BLOCK_S, SETTLING = 40, 0.1, 70


def hooks(folder: str) -> Any:
    """The hooks of a program that never comes to its timed steps."""
    inside = HERE / "inside"
    spec = importlib.util.spec_from_file_location(
        "tidyprof_inside", inside / "__init__.py", submodule_search_locations=[str(inside)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tidyprof_inside"] = module
    spec.loader.exec_module(module)
    made = importlib.import_module("tidyprof_inside.hooks").Hooks
    return made(
        torch,
        {
            "out": folder,
            "after": 3 * 10**9,
            "steps": 3,
            "stacks": False,
            "shapes": False,
            "mark": "",
        },
    )


def training(width: int, depth: int, batch: int) -> Callable[[], None]:
    """One step of a stack of layers, its batch by a DataLoader."""
    layers = [
        torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(depth)
    ]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(64 * batch, width))

    def batches() -> Iterator[torch.Tensor]:
        while True:
            for (one,) in DataLoader(data, batch_size=batch):
                yield one

    source = batches()

    def step() -> None:
        model(next(source)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def timed(step: Callable[[], None], steps: int) -> float:
    """Seconds of a step."""
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    return (time.perf_counter() - begin) / steps


def main() -> None:
    """Print a line for each training."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for width, depth, batch in ((32, 2, 4), (128, 20, 8), (512, 10, 32)):
            step = training(width, depth, batch)
            steps = max(5, int(BLOCK_S / timed(step, 20)))
            shortest = {True: float("inf"), False: float("inf")}
            made = hooks(folder)
            for turn in range(2 * PAIRS):
                with_hooks = turn % 2 == 0
                if with_hooks:
                    made.put_in()
                timed(
                    step, SETTLING if turn == 0 else 3
                )  # what a step is, is found out in the first ones
                shortest[with_hooks] = min(shortest[with_hooks], timed(step, steps))
                made.remove()
            alone, more = 1e3 * shortest[False], 1e6 * (shortest[True] - shortest[False])
            modules = 3 * depth + 1
            print(
                f"{modules} modules, {alone:.2f} ms a step: {more:.0f} µs more,"
                f" {more / alone / 10:.2f} %",
                flush=True,
            )


if __name__ == "__main__":
    main()
