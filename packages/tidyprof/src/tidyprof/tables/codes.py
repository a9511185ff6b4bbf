"""Numeric columns: codes for missing values, strings and event kinds, and the conversion of these
columns to pandas.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.names.cpp_symbols import parse
from tidyprof.names.short_names import plain_name

ABSENT = int(np.iinfo(np.int64).min)
"""Code for a missing value in int64 columns."""

NO_TEXT = -1
"""Code for a missing string in columns of int32 codes."""


class Codes(dict[Any, int]):
    """A dict that numbers values in order of first appearance.

    Looking up an unknown value adds it.
    """

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self)
        return code

    def of(self, values: Iterable[Any]) -> np.ndarray:
        """Return the codes of `values` as int32."""
        return np.fromiter(map(self.__getitem__, values), np.int32)


def counted(codes: np.ndarray, texts: Iterable[str]) -> Counter[str]:
    """Return how often each string occurs. Rows without a string aren't counted."""
    texts = list(texts)
    numbers = np.bincount(codes[codes >= 0], minlength=len(texts)).tolist()
    return Counter({text: number for text, number in zip(texts, numbers, strict=True) if number})


def mapped(values: np.ndarray, numbers: dict[int, int]) -> np.ndarray:
    """For each value, return its number in `numbers`, or `ABSENT` if the value has no number."""
    positions, unique = pd.factorize(values)
    found = [numbers.get(value, ABSENT) for value in unique.tolist()]
    return np.array([*found, ABSENT], np.int64)[positions]


def by_code(values: Iterable[Any], codes: np.ndarray, absent: Any, dtype: Any = None) -> np.ndarray:
    """For each code, return the value at this position, or `absent` for the code `NO_TEXT`."""
    # The code -1 selects the last element, so `absent` goes there.
    return np.array([*values, absent], dtype)[codes]


def shape_codes(axes: Sequence[np.ndarray], texts: Codes) -> np.ndarray:
    """Return int32 codes of strings `[x, y, z]` that contain the numbers of each row. If one of the
    numbers is missing, the code is `NO_TEXT`.
    """
    sizes = pd.DataFrame(dict(enumerate(axes)))
    number = sizes.groupby(list(sizes), sort=False).ngroup().to_numpy()
    codes = [
        NO_TEXT if ABSENT in shape else texts[f"[{', '.join(map(str, shape))}]"]
        for shape in sizes.drop_duplicates().to_numpy().tolist()
    ]
    return np.array(codes, np.int32)[number]


def first_equal(identifiers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each wanted identifier, return the first row of `identifiers` that contains it, or -1 if
    there is no such row.
    """
    if not len(identifiers):
        return np.full(len(wanted), -1, np.int64)
    # Most tables are already sorted by identifier.
    rows = None
    if (identifiers[1:] < identifiers[:-1]).any():
        rows = np.argsort(identifiers, kind="stable")
        identifiers = identifiers[rows]
    position = np.minimum(np.searchsorted(identifiers, wanted), len(identifiers) - 1)
    missing = identifiers[position] != wanted
    found = position if rows is None else rows[position]
    found[missing] = -1
    return found


def taken(values: np.ndarray, rows: np.ndarray, absent: int = ABSENT) -> np.ndarray:
    """Return `values[rows]`. If a row number is -1, the result is `absent`."""
    if not len(values):
        return np.full(len(rows), absent, values.dtype)
    result = values[rows]
    result[rows < 0] = absent
    return result


def categorical(codes: np.ndarray, texts: Sequence[str]) -> pd.Categorical:
    """Convert codes of `texts` to a categorical column.

    The categories are the strings in use, in sorted order. `NO_TEXT` becomes a missing value.
    """
    used = used_codes(codes, len(texts)).tolist()
    categories = sorted({texts[code] for code in used})
    position = {text: number for number, text in enumerate(categories)}
    translation = np.full(len(texts) + 1, -1, np.int8 if len(categories) < 2**7 else np.int32)
    for code in used:
        translation[code] = position[texts[code]]
    # The code -1 selects the last element of `translation`, which stays -1.
    dtype = category_type(tuple(categories), "str")
    return pd.Categorical.from_codes(translation[codes], dtype=dtype, validate=False)


@lru_cache(2**6)
def category_type(categories: tuple[str, ...], dtype: str) -> pd.CategoricalDtype:
    """Return the dtype of a categorical column with these categories. The categories are stored as
    `dtype`, which is `str` or `object`.

    The results are cached because the ranks of a job contain the same names. Creating the dtype
    takes longer than filling the column.
    """
    return pd.CategoricalDtype(pd.Index(categories, dtype=dtype))


def used_codes(codes: np.ndarray, texts: int) -> np.ndarray:
    """Return the distinct codes in order, without `NO_TEXT`.

    - texts: the number of strings.
    """
    is_used = np.zeros(texts + 1, bool)
    is_used[codes] = True
    return np.flatnonzero(is_used[:-1])


def nullable(values: np.ndarray, dtype: str) -> pd.arrays.IntegerArray:
    """Convert int64 values to a nullable dtype.

    `ABSENT` and numbers that don't fit into the dtype become `<NA>`. These numbers are overwritten
    in `values`.
    """
    target = np.dtype(dtype.lower())
    limits = np.iinfo(target)
    missing = values == ABSENT
    if target.itemsize < values.itemsize:
        missing |= (values < limits.min) | (values > limits.max)
    values[missing] = 1
    return pd.arrays.IntegerArray(values.astype(target, copy=False), missing)


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
"""Kinds of events. The first four kinds run on a device, and the other kinds run on a host
thread.
"""

DEVICE_KINDS = ("kernel", "copy", "fill", "collective")
"""Kinds that occupy a device. `busy` measures the time when at least one event of these kinds
ran.
"""

KIND_CODE = {kind: code for code, kind in enumerate(KINDS)}
"""Position of every kind in `KINDS`."""

ON_DEVICE = np.isin(KINDS, DEVICE_KINDS)
"""Mask of the `KINDS` that occupy a device."""

_COLLECTIVE_KERNEL = re.compile(
    r"(void )?(nccl|rccl|msccl|uccl|oneccl|oneapi::ccl|nvshmem|rocshmem)", re.IGNORECASE
)
_EXPERT_PARALLEL = re.compile(
    r"(\w+::)*(mori::|deep_ep::(?!layout::)|hybrid_ep::|Ep(Dispatch|Combine)[A-Z])"
)
"""Functions that send tokens to their experts and back. Their names come from
https://github.com/ROCm/mori (src/ops/dispatch_combine) and https://github.com/deepseek-ai/DeepEP
(csrc/kernels). DeepEP's `layout` functions aren't listed because they only count on one device.
"""

_OWN_COLLECTIVE = re.compile(
    r"(multimem|one_shot|two_shot|push|pull|persistent)_(all_reduce|all_gather|all_to_all"
    r"|reduce_scatter)"
    r"|(all_reduce|all_gather|all_to_all|reduce_scatter)_iris|cross_device_reduce_\dstage"
    r"|reduce_scatter_cross_device|allreduce_prototype_(one|two)shot|allreduce_fusion_kernel"
)
"""Names of all-reduce kernels in inference engines, from these sources:

- PyTorch's symmetric memory (torch/csrc/distributed/c10d/symm_mem).
- The custom all-reduce and quick reduce of vLLM and SGLang (csrc/custom_all_reduce.cuh,
  csrc/quickreduce).
- AITER (csrc/include/custom_all_reduce.cuh in https://github.com/ROCm/aiter).
- iris (iris/ccl in https://github.com/ROCm/iris).
"""

_LIKE_COMMUNICATION = re.compile(
    r"all_?(reduce|gather|to_?all|2_?all)|reduce_?scatter|dispatch|combine(?!d)",
    re.IGNORECASE,
)
_ON_ONE_DEVICE = re.compile(
    r"split_?k|attn|attention|fmha|flash|mla_|layout|block_?(all)?reduce", re.IGNORECASE
)
"""Words in the names of kernels that don't communicate. Such kernels combine the parts of a product
or of attention, or they count tokens for a later dispatch.
"""

_COPY_KERNEL = "__amd_rocclr_copyBuffer"
_FILL_KERNEL = "__amd_rocclr_fillBuffer"


@lru_cache(2**12)
def kind_of_kernel(name: str) -> str:
    """Return the kind of a kernel with this name, which is `kernel`, `collective`, `copy` or
    `fill`.

    Kernels of the collective libraries are `collective`. The ROCm runtime uses separate kernels for
    copies and fills, and some backends list these kernels as ordinary kernels
    (https://github.com/pytorch/pytorch/pull/179815).
    """
    function = _function_of(name)
    if any(
        _COLLECTIVE_KERNEL.match(text) or _EXPERT_PARALLEL.match(text) for text in (name, function)
    ):
        return "collective"
    if _OWN_COLLECTIVE.search(name):
        return "collective"
    if name.startswith(_COPY_KERNEL):
        return "copy"
    return "fill" if name.startswith(_FILL_KERNEL) else "kernel"


def _function_of(name: str) -> str:
    """Return only the function's name and its namespaces. Mangled names are also accepted."""
    symbol = parse(plain_name(name))
    return "::".join((*symbol.namespace, symbol.name)) if symbol else name


@lru_cache(2**12)
def is_like_communication(name: str) -> bool:
    """Return True if a kernel's name suggests communication with other ranks, although its library
    is unknown.
    """
    function = _function_of(name)
    return bool(_LIKE_COMMUNICATION.search(function)) and not _ON_ONE_DEVICE.search(function)


def refined(
    kind: np.ndarray,
    name: np.ndarray,
    texts: Iterable[str],
    has_collective: np.ndarray | None = None,
) -> np.ndarray:
    """Return the kinds as positions in `KINDS`, refined by the kernels' names.

    - name: the codes of the names in `texts`, with `NO_TEXT` for a missing name.
    - has_collective: a mask of the events for which the file states a collective operation. These
      events become `collective`.
    """
    texts, is_kernel = list(texts), kind == KIND_CODE["kernel"]
    # The last element is for kernels without a name (code -1).
    of_text = np.full(len(texts) + 1, KIND_CODE["kernel"], kind.dtype)
    for code in used_codes(name[is_kernel], len(texts)).tolist():
        of_text[code] = KIND_CODE[kind_of_kernel(texts[code])]
    result = np.where(is_kernel, of_text[name], kind)
    if has_collective is not None:
        result[is_kernel & has_collective & (result == KIND_CODE["kernel"])] = KIND_CODE[
            "collective"
        ]
    return result
