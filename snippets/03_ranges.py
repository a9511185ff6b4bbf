"""Names for parts of your own training loop, for rocprofv3 --marker-trace, rocprof-sys and rpd
(ROCTX).

Copy this file beside your script as ranges.py, then:

    from ranges import marked

    for step, (images, labels) in enumerate(loader):
        with marked(f"step {step}"):
            with marked("forward"):
                loss = criterion(model(images), labels)
            with marked("backward"):
                loss.backward()

A range is the time of the host inside the block: kernels that it launches may run later. To wait
for them, which slows the training down, set RANGES_SYNCHRONIZE=1. Without ROCTX nothing is marked,
and that is said once.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch


@cache
def roctx() -> tuple[Callable, Callable] | None:
    """Push and pop of a range: of ROCm's own package (7.0 and later), else of a PyTorch that is
    built for ROCm.
    """
    try:
        from roctx import rangePop, rangePush

        return rangePush, rangePop
    except (ImportError, OSError, RuntimeError):
        pass
    if torch.version.hip:
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    print(
        "ranges: neither the package roctx nor a PyTorch for ROCm is here, so nothing is marked",
        file=sys.stderr,
    )
    return None


@contextmanager
def marked(name: str) -> Iterator[None]:
    """Mark what happens in the block, also if it ends with an error."""
    calls = roctx()
    if calls is None:
        yield
        return
    push, pop = calls
    push(name)
    try:
        yield
        if os.environ.get("RANGES_SYNCHRONIZE") == "1" and torch.cuda.is_available():
            torch.cuda.synchronize()
    finally:
        pop()
