"""Mark parts of your training loop with ROCTX for rocprofv3 --marker-trace, rocprof-sys
and rpd.

Copy this file next to your script as ranges.py, then add these lines to the script:

    from ranges import marked

    for step, (images, labels) in enumerate(loader):
        with marked(f"step {step}"):
            with marked("forward"):
                loss = criterion(model(images), labels)
            with marked("backward"):
                loss.backward()

A range covers the CPU time in its block. Kernels launched in the block may run after
the range ends. To wait for these kernels, set RANGES_SYNCHRONIZE=1, which slows down
training. If ROCTX isn't installed, this file prints one line and doesn't mark anything.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch


@cache
def roctx() -> tuple[Callable, Callable] | None:
    """Return the functions that push and pop a range, or None if neither package is
    installed.

    The functions come from ROCm's package (7.0 and newer) or from PyTorch for ROCm.
    """
    try:
        from roctx import rangePop, rangePush

        return rangePush, rangePop
    except (ImportError, OSError, RuntimeError):
        pass
    if torch.version.hip:
        return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
    print(
        "ranges: no ranges are marked because neither roctx nor PyTorch for ROCm is "
        "installed",
        file=sys.stderr,
    )
    return None


@contextmanager
def marked(name: str) -> Iterator[None]:
    """Mark the block with a range, which also ends if the block raises an error."""
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
