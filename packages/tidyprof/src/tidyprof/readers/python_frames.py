"""Python call stacks in files from PyTorch, and the type of their integers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""A 64-bit integer."""

_NO_LINE = (-1, 2**64 - 1)
"""Line numbers that mean "no line" in Python. torch writes -1 as a uint64."""

_PYTHON = re.compile(r"\.py$|^<|^/tmp/ipykernel")
_TORCH = re.compile(r"(^|/)torch/")


class Frame(msgspec.Struct, gc=False):
    """One function in a call stack."""

    filename: str
    name: str
    line: int = -1


def python_lines(frames: Iterable[Frame]) -> list[str]:
    """Return the Python call stack, starting with the innermost frame. Each frame has the form
    `file(line): name`, or `file: name` if there is no line number.
    """
    return [
        f"{frame.filename}{'' if frame.line in _NO_LINE else f'({frame.line})'}: {frame.name}"
        for frame in frames
        if _PYTHON.search(frame.filename)
    ]


def own_lines(lines: list[str]) -> list[str]:
    """Return the lines of a call stack outside torch."""
    return [line for line in lines if not _TORCH.search(line)]


def source_line(lines: list[str]) -> str | None:
    """Return the innermost line outside torch. If all lines are inside torch, return the innermost
    one. If the list is empty, return None.
    """
    return next(iter(own_lines(lines) or lines), None)
