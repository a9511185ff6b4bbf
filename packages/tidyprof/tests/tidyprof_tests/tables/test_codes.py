"""Columns of numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.tables.codes import ABSENT, nullable


def test_numbers_that_a_type_cannot_hold_are_missing():
    found = nullable(np.array([1, 2**31, ABSENT, -1]), "Int32")
    assert [None if pd.isna(number) else number for number in found] == [1, None, None, -1]
