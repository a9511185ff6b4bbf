"""What events can be, and what kernels are that a profiler lists among all others."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tidyprof.tables.codes import used_codes

KINDS = (
    "kernel",
    "copy",
    "fill",
    "collective",
    "runtime",
    "operator",
    "annotation",
    "sample",
)
"""What an event can be. The first four run on a device, the rest on a host thread."""

DEVICE_KINDS = ("kernel", "copy", "fill", "collective")
"""Kinds that occupy a device; their union over time is what `busy` measures."""

KIND_CODE = {kind: code for code, kind in enumerate(KINDS)}
"""Place of every kind in KINDS."""

ON_DEVICE = np.isin(KINDS, DEVICE_KINDS)
"""For every place in KINDS, whether that kind occupies a device."""

_COLLECTIVE_KERNEL = re.compile(r"(void )?(nccl|rccl|msccl|oneccl|oneapi::ccl)", re.IGNORECASE)
_OWN_COLLECTIVE = re.compile(
    r"(multimem|one_shot|two_shot|push|pull)_(all_reduce|all_gather|reduce_scatter)|cross_device_reduce_\dstage"
    r"|reduce_scatter_cross_device|allreduce_prototype_(one|two)shot|allreduce_fusion_kernel"
)
"""All-reduces that engines bring along: symmetric memory of PyTorch (torch/csrc/distributed/c10d/symm_mem), custom
all-reduce and quick reduce of vLLM and SGLang (csrc/custom_all_reduce.cuh, csrc/quickreduce), and AITER's
(csrc/include/custom_all_reduce.cuh of https://github.com/ROCm/aiter)."""

_COPY_KERNEL = "__amd_rocclr_copyBuffer"
_FILL_KERNEL = "__amd_rocclr_fillBuffer"


def kind_of_kernel(name: str) -> str:
    """`kernel`, `collective`, `copy` or `fill` for what a profiler calls a kernel of this name.

    Kernels of the collective libraries are `collective`. The ROCm runtime copies and fills with kernels of its own,
    which some back ends list as kernels (https://github.com/pytorch/pytorch/pull/179815).
    """
    if _COLLECTIVE_KERNEL.match(name) or _OWN_COLLECTIVE.search(name):
        return "collective"
    if name.startswith(_COPY_KERNEL):
        return "copy"
    return "fill" if name.startswith(_FILL_KERNEL) else "kernel"


def refined(
    kind: np.ndarray, name: np.ndarray, texts: Iterable[str], has_collective: np.ndarray | None = None
) -> np.ndarray:
    """Kinds (places in KINDS) after a look at the names of kernels.

    name           -- codes of the names, whose texts are `texts`; NO_TEXT is none.
    has_collective -- mask of the events to which the file attached a collective operation: these are `collective`.
    """
    texts, is_kernel = list(texts), kind == KIND_CODE["kernel"]
    # Code -1 reads the last place.
    of_text = np.full(len(texts) + 1, KIND_CODE["kernel"], kind.dtype)
    for code in used_codes(name[is_kernel], len(texts)).tolist():
        of_text[code] = KIND_CODE[kind_of_kernel(texts[code])]
    result = np.where(is_kernel, of_text[name], kind)
    if has_collective is not None:
        result[is_kernel & has_collective & (result == KIND_CODE["kernel"])] = KIND_CODE["collective"]
    return result
