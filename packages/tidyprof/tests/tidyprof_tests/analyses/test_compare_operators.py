"""Two recordings side by side by operator: by hand, and on recordings against their raw JSON."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tidyprof import compare, read_torch_trace
from tidyprof_tests.analyses.test_modules import operator
from tidyprof_tests.chrome_writer import call, kernel, write_trace
from tidyprof_tests.conftest import REPOSITORY

MODELED = REPOSITORY / "recordings"


def trace(path: Path, *work: tuple[str, str, int]) -> Path:
    """Each operator on the host launches a kernel of this name and duration; the last kernel's
    launch is lost.
    """
    events = [kernel("lost", 900_000, 7, 99)]
    for place, (name, own, duration) in enumerate(work, start=1):
        at = place * 1_000_000
        events += [operator("aten::outer", at - 50, 500), operator(name, at, 300)]
        events += [call("launch", at + 100, 1, place), kernel(own, at + 5_000, duration, place)]
    return write_trace(path, events)


@pytest.fixture
def table(tmp_path):
    amd = trace(
        tmp_path / "amd.json",
        ("aten::miopen_convolution", "igemm", 500),
        ("aten::mm", "Cijk", 200),
        ("aten::mm", "Cijk", 200),
    )
    nvidia = trace(
        tmp_path / "nvidia.json",
        ("aten::cudnn_convolution", "implicit_gemm", 300),
        ("aten::add", "add", 9),
    )
    return compare(read_torch_trace(amd), read_torch_trace(nvidia), by="operator")


def test_by_hand(table):
    rows = {
        None if pd.isna(row[0]) else row[0]: tuple(row[1:6])
        for row in table.itertuples(index=False)
    }
    assert rows == {
        "aten::mm": (2, 0, 400, 0, -400),
        "aten::convolution": (1, 1, 500, 300, -200),
        "aten::add": (0, 1, 0, 9, 9),
        None: (0, 0, 7, 7, 0),
    }
    assert table["operator"].tolist()[:2] == ["aten::mm", "aten::convolution"], (
        "largest change first"
    )
    assert table["ratio"].tolist() == [0, 0.6, float("inf"), 1]


def test_formats_that_know_no_operators(tmp_path):
    known = read_torch_trace(trace(tmp_path / "a.json", ("aten::mm", "Cijk", 2)))
    unknown = read_torch_trace(write_trace(tmp_path / "b.json", [kernel("gemm", 5_000, 10, 1)]))
    with pytest.raises(
        ValueError,
        match=r"after.*ProfilerActivity\.CPU",
    ):
        compare(known, unknown, by="operator")
    with pytest.raises(ValueError, match="by must be kernel or operator, not 'module'"):
        compare(known, known, by="module")


def test_modeled_pair_agrees_with_the_table_of_kernels():
    runs = [
        read_torch_trace(MODELED / name / "torch")
        for name in ("modeled-resnet", "modeled-wrong-layout")
    ]
    sums = [
        compare(*runs, by=by)[["total_ns_before", "total_ns_after"]].sum().tolist()
        for by in ("kernel", "operator")
    ]
    assert sums[0] == sums[1]
    table = compare(*runs, by="operator")
    grown = table[table["difference_ns"] > 0]
    assert grown["operator"].tolist()[0] == "aten::copy_", (
        "the wrong layout has to be copied into the right one"
    )
