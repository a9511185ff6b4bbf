"""Columns of numbers made of columns of Arrow, against the plain way of saying the same row by
row.
"""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidyprof.io.csv_files import TEXT, coded, text_codes, whole_numbers
from tidyprof.tables.codes import Codes, nullable

TEXTS = st.lists(st.none() | st.sampled_from(["a", "b", "", "None", "kernel<int>"]), max_size=12)


def in_pieces(values: list, dtype: pa.DataType, pieces: int) -> pa.ChunkedArray:
    """The values as a column in several pieces, each of which has a list of texts of its own."""
    cuts = [len(values) * piece // pieces for piece in range(pieces + 1)]
    return pa.chunked_array(
        [pa.array(values[begin:end], dtype) for begin, end in itertools.pairwise(cuts)], dtype
    )


class TestTexts:
    @given(TEXTS, st.integers(1, 3))
    def test_codes_lead_to_the_texts(self, texts, pieces):
        codes, distinct = coded(in_pieces(texts, TEXT, pieces))
        assert [None if code < 0 else distinct[code] for code in codes.tolist()] == texts
        assert sorted(distinct) == sorted({text for text in texts if text is not None})

    @given(TEXTS, st.integers(1, 3))
    def test_codes_among_others_lead_to_the_texts(self, texts, pieces):
        known = Codes(other=0)
        codes = text_codes(in_pieces(texts, TEXT, pieces), known)
        assert [None if code < 0 else [*known][code] for code in codes.tolist()] == texts


class TestIntegers:
    @pytest.mark.parametrize("source", [pa.int64(), pa.uint32(), pa.int32()])
    @pytest.mark.parametrize("dtype", ["Int32", "Int64"])
    @given(
        st.lists(
            st.none() | st.integers(0, 2**31 - 1) | st.sampled_from([2**31, 2**32 - 1, 2**63, -1])
        )
    )
    def test_what_a_type_cannot_hold_is_missing(self, source, dtype, numbers):
        held = np.iinfo(str(source))
        numbers = [None if n is None or not held.min <= n <= held.max else n for n in numbers]
        found = nullable(whole_numbers(in_pieces(numbers, source, 2)), dtype)
        limits = np.iinfo(dtype.lower())
        wanted = [pd.NA if n is None or not limits.min <= n <= limits.max else n for n in numbers]
        pd.testing.assert_extension_array_equal(found, pd.array(wanted, dtype=dtype))

    def test_bits_beyond_63_stay(self):
        assert nullable(whole_numbers(pa.array([2**64 - 1], pa.uint64())), "UInt64").tolist() == [
            2**64 - 1
        ]
