"""Which kind of event the categories of torch.profiler stand for."""

from __future__ import annotations

import re

KIND_OF_CATEGORY = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "fill",
    "collective_comm": "collective",
    "cpu_op": "operator",
    "user_annotation": "annotation",
    "gpu_user_annotation": "annotation",
    "python_function": "annotation",
    "overhead": "runtime",
}
"""Kinds of the categories of Kineto (libkineto/src/ActivityType.cpp of https://github.com/pytorch/kineto).

Categories that end in _runtime, _driver or _sync are `runtime`; others are counted but not kept.
"""

_RUNTIME_CATEGORY = re.compile(r"_(runtime|driver|sync)$")


def kind_of_category(category: str | None) -> str | None:
    """The kind of complete events with this category, None if they are not kept."""
    kind = KIND_OF_CATEGORY.get(category or "")
    return "runtime" if kind is None and _RUNTIME_CATEGORY.search(category or "") else kind


def is_launching(category: str | None) -> bool:
    """Whether events of this category are calls that can start work on a device."""
    return (category or "").endswith(("_runtime", "_driver"))


def is_waiting(category: str | None) -> bool:
    """Whether events of this category are waits that CUPTI and XPU record on the device's row."""
    return (category or "").endswith("_sync")
