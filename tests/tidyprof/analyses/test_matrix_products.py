"""Speeds of matrix products: by hand, and on recordings against their raw JSON."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest

from tests.tidyprof.analyses.test_modules import operator
from tests.tidyprof.chrome_writer import call, kernel, small_step, write_trace
from tidyprof import Profile, matrix_products, read_torch_trace

RECORDINGS = (
    "torch-mi300x-compile-triton/trace.json.gz",
    "torch-mi300x-resnet18-train/train_resnet18.json.gz",
)


def product(
    name: str, shapes: list, kernels: tuple[int, ...] = (1_000,), at: int = 1_000_000
) -> list:
    """An operator that launches kernels of these durations in ns."""
    events = [operator(name, at, 1_000, shapes)]
    for place, duration in enumerate(kernels):
        events.append(call("hipLaunchKernel", at + 100 + place, 1, at + place))
        events.append(kernel("gemm", at + 5_000 + 5_000 * place, duration, at + place))
    return events


def read(path: Path, *products: list) -> Profile:
    return read_torch_trace(
        write_trace(path / "trace.json", [event for events in products for event in events])
    )


SIZES = {
    "aten::mm": ([[3, 4], [4, 5]], (1, 3, 5, 4)),
    "aten::addmm": ([[5], [3, 4], [4, 5], [], []], (1, 3, 5, 4)),
    "aten::bmm": ([[2, 3, 4], [2, 4, 5]], (2, 3, 5, 4)),
    "aten::baddbmm": ([[2, 3, 5], [2, 3, 4], [2, 4, 5]], (2, 3, 5, 4)),
    "aten::_scaled_mm": ([[3, 4], [4, 5], [1], [1], [], [], [], []], (1, 3, 5, 4)),
    "aten::linear": ([[7, 3, 4], [5, 4], [5]], (1, 21, 5, 4)),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_by_hand(name, tmp_path):
    shapes, (batch, m, n, k) = SIZES[name]
    (row,) = matrix_products(read(tmp_path, product(name, shapes, (1_500, 500)))).itertuples(
        index=False
    )
    flops = 2 * m * n * k * batch
    assert row[:6] == (name, "float", batch, m, n, k)
    assert row[6:9] == (1, 1, 2_000)
    assert row[9:] == (flops, flops / 2_000e-9)


def test_one_row_for_each_size_and_the_slowest_first(tmp_path):
    mm = [[3, 4], [4, 5]]
    table = matrix_products(
        read(
            tmp_path,
            product("aten::mm", mm, (100,)),
            product("aten::mm", [[8, 8], [8, 8]], (900,), at=2_000_000),
            product("aten::mm", mm, (300,), at=3_000_000),
            product("aten::relu", [[3, 5]], (9_000,), at=4_000_000),
        )
    )
    assert table["m"].tolist() == [8, 3]
    assert table["device_ns"].tolist() == [900, 400]
    assert table["flops_per_second"].tolist() == pytest.approx(
        [2 * 8**3 / 900e-9, 2 * 2 * 60 / 400e-9]
    )


def test_of_nested_products_the_inner_one_counts(tmp_path):
    inner = product("aten::addmm", [[5], [3, 4], [4, 5]])
    outer = operator("aten::linear", 999_000, 5_000, [[3, 4], [5, 4], [5]])
    table = matrix_products(read(tmp_path, [outer], inner))
    assert table["operator"].tolist() == ["aten::addmm"]


def test_calls_whose_work_is_not_there_give_no_speed(tmp_path):
    mm = [[3, 4], [4, 5]]
    (row,) = matrix_products(
        read(tmp_path, product("aten::mm", mm, (100,)), product("aten::mm", mm, (), at=2_000_000))
    ).itertuples()
    assert (row.calls, row.launched, row.flops) == (2, 1, 240)
    assert row.flops_per_second == pytest.approx(120 / 100e-9)


def test_without_any_work_and_with_odd_shapes(tmp_path):
    table = matrix_products(
        read(
            tmp_path,
            product("aten::mm", [[3, 4], [4, 5]], ()),
            product("aten::mm", [[], []], (), at=2_000_000),
        )
    )
    assert table["calls"].tolist() == [1, 1]
    assert table["flops_per_second"].isna().all()
    assert sorted(table["flops"].fillna(0)) == [0, 120]
    assert table["m"].isna().sum() == 1


def test_a_trace_without_shapes(tmp_path):
    with pytest.raises(ValueError, match=r"no shapes of inputs .* record_shapes=True"):
        matrix_products(read(tmp_path, small_step()))


@pytest.mark.parametrize("recording", RECORDINGS)
def test_against_the_raw_file(recordings: Path, recording: str):
    """Kernels are given to operators by External id, which the analysis does not look at."""
    events = json.loads(gzip.decompress((recordings / recording).read_bytes()), strict=False)[
        "traceEvents"
    ]
    left_of = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1}
    keys, calls, times = {}, defaultdict(int), defaultdict(float)
    for event in events:
        if event.get("cat") == "cpu_op" and event["name"] in left_of:
            left, right = event["args"]["Input Dims"][left_of[event["name"]] :][:2]
            batch = left[0] if len(left) == 3 else 1
            key = (event["name"], batch, left[-2], right[-1], left[-1])
            keys[event["args"]["External id"]] = key
            calls[key] += 1
    for event in events:
        if (
            event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
            and event["args"].get("External id") in keys
        ):
            times[keys[event["args"]["External id"]]] += event["dur"] / 1e6
    table = matrix_products(read_torch_trace(recordings / recording))
    assert len(table) == len(calls) > 2
    for row in table.itertuples():
        key = (row.operator, row.batch, row.m, row.n, row.k)
        flops = 2 * row.m * row.n * row.k * row.batch * calls[key]
        assert (row.calls, row.launched, row.flops) == (calls[key], calls[key], flops)
        assert row.dtype == "c10::BFloat16"
        assert row.flops_per_second == pytest.approx(flops / times[key])


def test_a_cpu_has_sizes_and_no_speed():
    recording = Path(__file__).parents[3] / "recordings" / "torch-cpu-vit"
    table = matrix_products(read_torch_trace(recording))
    assert len(table) > 4
    assert table["flops"].notna().all()
    assert pd.isna(table["flops_per_second"]).all()
