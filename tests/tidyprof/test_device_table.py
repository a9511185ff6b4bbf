"""Columns from polars frames, against the plain way of saying the same row by row."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidyprof.io.csv_files import coded, counted, mapped
from tidyprof.tables.device_table import _shapes, nullable_integers

TEXTS = st.lists(st.none() | st.sampled_from(["a", "b", "", "None", "kernel<int>"]), max_size=12)
SIZES = st.none() | st.sampled_from([0, 1, 256, 70_000, 2**31, 2**32 - 1]) | st.integers(0, 2**32 - 1)


def in_pieces(values: list, dtype: pl.DataType, pieces: int) -> pl.Series:
    """The values as a column that polars keeps in several pieces."""
    cuts = [len(values) * piece // pieces for piece in range(pieces + 1)]
    parts = [pl.Series("x", values[begin:end], dtype=dtype) for begin, end in itertools.pairwise(cuts)]
    return pl.concat(parts, rechunk=False)


class TestTexts:
    @given(TEXTS, st.integers(1, 3))
    def test_codes_lead_to_the_texts(self, texts, pieces):
        codes, distinct = coded(in_pieces(texts, pl.Categorical, pieces))
        assert [None if code < 0 else distinct[code] for code in codes.tolist()] == texts
        assert sorted(distinct) == sorted({text for text in texts if text is not None})

    @given(TEXTS, st.integers(1, 3))
    def test_counts(self, texts, pieces):
        found = counted(in_pieces(texts, pl.Categorical, pieces))
        assert found == {text: [str(one) for one in texts].count(text) for text in map(str, texts)}

    @given(TEXTS, st.sampled_from([len, lambda text: None, lambda text: len(text) or None]))
    def test_a_function_of_each_text(self, texts, function):
        found = mapped(in_pieces(texts, pl.Categorical, 2), function, pl.Int64)
        assert found.to_list() == [None if text is None else function(text) for text in texts]


class TestIntegers:
    @pytest.mark.parametrize("source", [pl.Int64, pl.UInt64, pl.UInt32, pl.Int32])
    @pytest.mark.parametrize("dtype", ["Int32", "Int64", "UInt64"])
    @given(st.lists(st.none() | st.integers(0, 2**31 - 1) | st.sampled_from([2**31, 2**32 - 1, 2**63, -1])))
    def test_what_a_type_cannot_hold_is_missing(self, source, dtype, numbers):
        held = np.iinfo(str(source).lower())
        numbers = [None if n is None or not held.min <= n <= held.max else n for n in numbers]
        found = nullable_integers(in_pieces(numbers, source, 2), dtype)
        limits = np.iinfo(dtype.lower())
        wanted = [pd.NA if n is None or not limits.min <= n <= limits.max else n for n in numbers]
        pd.testing.assert_extension_array_equal(found, pd.array(wanted, dtype=dtype))

    def test_the_column_can_be_written(self):
        values = pl.Series([1, 2, 3])
        column = nullable_integers(values, "Int64")
        column[0] = 9
        assert (column.tolist(), values.to_list()) == ([9, 2, 3], [1, 2, 3])


class TestShapes:
    @given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=12))
    def test_rows_with_all_three_sizes_have_a_shape(self, rows):
        columns = zip(("grid_x", "grid_y", "grid_z"), zip(*rows, strict=True), strict=True)
        found = _shapes(pl.DataFrame({name: pl.Series(sizes, dtype=pl.UInt32) for name, sizes in columns}), "grid")
        wanted = [None if None in row else f"[{row[0]}, {row[1]}, {row[2]}]" for row in rows]
        assert [None if pd.isna(shape) else shape for shape in found] == wanted

    def test_a_size_beyond_32_bits_is_no_size(self):
        found = _shapes(pl.DataFrame({"block_x": pl.Series([256, 2**32], dtype=pl.Int64)}), "block")
        assert (found[0], pd.isna(found[1])) == ("[256]", True)
