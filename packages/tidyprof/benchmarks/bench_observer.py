"""What torch.profiler costs this processor: small programs without it and with it, in turns.

    python -m benchmarks.bench_observer

An operator's cost in gaps, from an operator's start to that of the first one in it, is what triage
takes for the cost on any processor (tidyprof.diagnosis.observer): OPERATOR_GAPS_ALONE, and
FUNCTION_GAPS for Python functions.

Two cores of an AMD EPYC, in November 2026: a gap of 0.2 to 0.6 µs, 0.9 to 2.2 gaps an operator
(median 1.6), and -0.5 to 2.1 a function (median 1.1).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule

import tidyprof
from tidyprof.analyses.common import plain_host_events
from tidyprof.diagnosis.observer import OPERATOR_GAPS_ALONE, gap_of

Step = Callable[[], None]
WARM_UP, PLAIN, TRACED, TURNS = 20, 60, 3, 3


def training(model: nn.Module, data: torch.Tensor, **options: object) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), **options)

    def step() -> None:
        optimizer.zero_grad()
        model(data).sum().backward()
        optimizer.step()

    return step


def layers(width: int) -> Step:
    return training(
        nn.Sequential(*[nn.Linear(width, width) for _ in range(20)]), torch.randn(4, width)
    )


def recurrent() -> Step:
    return training(_Last(nn.LSTM(16, 16, batch_first=True)), torch.randn(2, 30, 16), foreach=False)


class _Last(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        return self.inner(data)[0]


def attention() -> Step:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return training(nn.TransformerEncoder(layer, 6), torch.randn(2, 4, 16), foreach=False)


def convolutions() -> Step:
    blocks = [
        nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        for _ in range(12)
    ]
    return training(nn.Sequential(*blocks), torch.randn(1, 4, 8, 8), foreach=False)


def values() -> Step:
    data = torch.randn(400)
    return lambda: [value.item() for value in data]


def augmentation() -> Step:
    images = torch.randn(40, 3, 16, 16)
    return lambda: [
        functional.pad(image.flip(2), (1, 1, 1, 1))[:, 1:17].mul(2).clone() for image in images
    ]


PROGRAMS = {
    "layers of 8": lambda: layers(8),
    "layers of 64": lambda: layers(64),
    "recurrent": recurrent,
    "attention": attention,
    "convolutions": convolutions,
    "values": values,
    "augmentation": augmentation,
}


def measured(step: Step, stacks: bool) -> tuple[float, float, float, float, float]:
    """Untraced and traced step in µs, operators and Python functions a step, the gap in µs."""
    begin = time.perf_counter()
    for _ in range(PLAIN):
        step()
    plain = (time.perf_counter() - begin) / PLAIN
    when = schedule(wait=0, warmup=1, active=TRACED, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=when, with_stack=stacks) as watching:
        for _ in range(1 + TRACED):
            step()
            watching.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        watching.export_chrome_trace(str(path))
        trace = tidyprof.read(path, python_functions=True)
    operators = plain_host_events(trace, "operator")
    functions = (trace.events["source_category"] == "python_function").sum()
    traced = tidyprof.steps(trace)["duration_ns"].mean() / 1e3
    return 1e6 * plain, traced, len(operators) / TRACED, functions / TRACED, gap_of(operators) / 1e3


def main() -> None:
    """A line for each program, without and with Python functions."""
    torch.set_num_threads(1)
    print(
        "program        functions  untraced µs  traced µs  operators  gap µs  gaps an operator "
        " gaps a function"
    )
    for name, made in PROGRAMS.items():
        step = made()
        for _ in range(WARM_UP):
            step()
        for stacks in (False, True):
            turns = [measured(step, stacks) for _ in range(TURNS)]
            plain, traced, operators, functions, gap = (
                statistics.median(one) for one in zip(*turns, strict=True)
            )
            gaps = (traced - plain) / gap
            of_functions = (
                f"{(gaps - OPERATOR_GAPS_ALONE * operators) / functions:17.1f}" if functions else ""
            )
            print(
                f"{name:14} {functions:9,.0f} {plain:12,.0f} {traced:10,.0f} {operators:10,.0f}"
                f" {gap:7.2f} {gaps / operators:17.1f} {of_functions}"
            )


if __name__ == "__main__":
    main()
