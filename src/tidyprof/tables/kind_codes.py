"""Which kind of event the categories and names of torch.profiler stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tidyprof.tables.kinds import DEVICE_KINDS, KINDS

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

ON_DEVICE = np.isin(KINDS, DEVICE_KINDS)
"""For every place in KINDS, whether that kind occupies a device."""

KIND_CODE = {kind: code for code, kind in enumerate(KINDS)}
"""Place of every kind in KINDS."""

_RUNTIME_CATEGORY = re.compile(r"_(runtime|driver|sync)$")
_COLLECTIVE_KERNEL = re.compile(r"(void )?(nccl|rccl|msccl|oneccl|oneapi::ccl)", re.IGNORECASE)
_COPY_KERNEL = "__amd_rocclr_copyBuffer"
_FILL_KERNEL = "__amd_rocclr_fillBuffer"


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


def refined(kind: np.ndarray, name: np.ndarray, names: Iterable[str], has_collective: np.ndarray) -> np.ndarray:
    """Kinds after a look at what the profiler calls a kernel.

    kind, name     -- codes of the events; names are the texts of the name codes.
    has_collective -- mask of the events that carry the name of a collective operation.

    Kernels of the collective libraries, and kernels that carry a collective's name, are `collective`.
    The ROCm runtime copies and fills with kernels of its own, which some back ends list as kernels
    (https://github.com/pytorch/pytorch/pull/179815); they are `copy` and `fill` here as elsewhere.
    """
    texts = list(names)
    is_kernel = kind == KIND_CODE["kernel"]
    refined_kind = kind.copy()
    refined_kind[is_kernel & has_collective] = KIND_CODE["collective"]
    for target, matches in (
        ("collective", lambda text: bool(_COLLECTIVE_KERNEL.match(text))),
        ("copy", lambda text: text.startswith(_COPY_KERNEL)),
        ("fill", lambda text: text.startswith(_FILL_KERNEL)),
    ):
        matching = np.array([matches(text) for text in texts], bool)
        if matching.any():
            refined_kind[is_kernel & matching[name]] = KIND_CODE[target]
    return refined_kind


def kind_of_kernel(name: str) -> str:
    """`kernel`, `collective`, `copy` or `fill`, by the rules of `refined` for a kernel that a profiler calls so."""
    kind = refined(np.array([KIND_CODE["kernel"]], np.int8), np.array([0]), [name], np.array([False]))
    return KINDS[int(kind[0])]
