"""Columns of numbers: what stands for nothing, what stands for texts, and how pandas gets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

ABSENT = int(np.iinfo(np.int64).min)
"""Stands in int64 columns where the file says nothing."""

NO_TEXT = -1
"""Stands in int32 columns of codes where there is no text."""


class Codes(dict[Any, int]):
    """Numbers values in the order of their first appearance; looking up an unknown value adds it."""

    def __missing__(self, value: Any) -> int:
        self[value] = code = len(self)
        return code

    def of(self, values: Iterable[Any]) -> np.ndarray:
        """The codes of `values`, int32."""
        return np.fromiter(map(self.__getitem__, values), np.int32)


def counted(codes: np.ndarray, texts: Iterable[str]) -> Counter[str]:
    """How often each text occurs; rows without a text are not counted."""
    texts = list(texts)
    numbers = np.bincount(codes[codes >= 0], minlength=len(texts)).tolist()
    return Counter({text: number for text, number in zip(texts, numbers, strict=True) if number})


def mapped(values: np.ndarray, numbers: dict[int, int]) -> np.ndarray:
    """What `numbers` has for each value, ABSENT where it has nothing."""
    places, unique = pd.factorize(values)
    found = [numbers.get(value, ABSENT) for value in unique.tolist()]
    return np.array([*found, ABSENT], np.int64)[places]


def shape_codes(axes: Sequence[np.ndarray], texts: Codes) -> np.ndarray:
    """Codes of `[x, y, z]` as text for the numbers of each row, int32; NO_TEXT where one is missing."""
    key = np.zeros(len(axes[0]), np.int64)
    for axis in axes:
        place, unique = pd.factorize(axis)
        key = pd.factorize(key * max(1, len(unique)) + place)[0]
    _, first = np.unique(key, return_index=True)
    sides = np.stack([axis[first] for axis in axes], axis=1).tolist()
    codes = [NO_TEXT if ABSENT in shape else texts[f"[{', '.join(map(str, shape))}]"] for shape in sides]
    return np.array(codes, np.int32)[key]


def first_equal(identifiers: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """For each wanted identifier the row of `identifiers` that has it (one of them), -1 where there is none."""
    if not len(identifiers):
        return np.full(len(wanted), -1, np.int64)
    rows = None
    if (identifiers[1:] < identifiers[:-1]).any():
        rows = np.argsort(identifiers, kind="stable")
        identifiers = identifiers[rows]
    place = np.minimum(np.searchsorted(identifiers, wanted), len(identifiers) - 1)
    missing = identifiers[place] != wanted
    found = place if rows is None else rows[place]
    found[missing] = -1
    return found


def taken(values: np.ndarray, rows: np.ndarray, absent: int = ABSENT) -> np.ndarray:
    """values[rows], `absent` where a row is -1."""
    if not len(values):
        return np.full(len(rows), absent, values.dtype)
    result = values[rows]
    result[rows < 0] = absent
    return result


def categorical(codes: np.ndarray, texts: Sequence[str]) -> pd.Categorical:
    """Places in `texts` as a column whose categories are the texts in use, sorted; NO_TEXT is missing."""
    used = used_codes(codes, len(texts)).tolist()
    categories = sorted({texts[code] for code in used})
    position = {text: place for place, text in enumerate(categories)}
    translation = np.full(len(texts) + 1, -1, np.int8 if len(categories) < 2**7 else np.int32)
    for code in used:
        translation[code] = position[texts[code]]
    # Code -1 reads the last place of `translation`, which stays -1.
    return pd.Categorical.from_codes(translation[codes], pd.Index(categories, dtype="str"))


def used_codes(codes: np.ndarray, texts: int) -> np.ndarray:
    """Which of so many places occur among the codes, in order; NO_TEXT is none."""
    is_used = np.zeros(texts + 1, bool)
    is_used[codes] = True
    return np.flatnonzero(is_used[:-1])


def nullable(values: np.ndarray, dtype: str) -> pd.arrays.IntegerArray:
    """int64 as a nullable type: <NA> for ABSENT and for what the type cannot hold. Overwrites `values` there."""
    target = np.dtype(dtype.lower())
    limits = np.iinfo(target)
    missing = values == ABSENT
    if target.itemsize < values.itemsize:
        missing |= (values < limits.min) | (values > limits.max)
    values[missing] = 1
    return pd.arrays.IntegerArray(values.astype(target, copy=False), missing)
