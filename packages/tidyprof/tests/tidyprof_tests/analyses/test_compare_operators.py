"""Two recordings side by side by operator, by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from tidyprof import Profile, compare
from tidyprof_tests.analyses.test_analyses import event, profile_of


def launched(*work: tuple[str | None, int]) -> Profile:
    """Kernels that these operators launched, with their durations, and one of no operator."""
    names, lengths = zip(*work, (None, 7), strict=True)
    profile = profile_of(*(event("kernel", "gemm", 0, length) for length in lengths))
    return Profile(profile.events.assign(operator=names), meta=profile.meta)


def test_by_hand():
    amd = launched(("aten::miopen_convolution", 500), ("aten::mm", 200), ("aten::mm", 200))
    nvidia = launched(("aten::cudnn_convolution", 300), ("aten::add", 9))
    table = compare(amd, nvidia, by="operator")
    assert [None if pd.isna(row[0]) else row[:6] for row in table.itertuples(index=False)] == [
        ("aten::mm", 2, 0, 400, 0, -400),
        ("aten::convolution", 1, 1, 500, 300, -200),
        ("aten::add", 0, 1, 0, 9, 9),
        None,
    ]
    assert table["ratio"].tolist() == [0, 0.6, float("inf"), 1]


def test_formats_that_know_no_operators():
    known = launched(("aten::mm", 2))
    with pytest.raises(ValueError, match=r"ProfilerActivity\.CPU"):
        compare(known, launched(), by="operator")
    with pytest.raises(ValueError, match="by must be kernel or operator, not 'module'"):
        compare(known, known, by="module")
