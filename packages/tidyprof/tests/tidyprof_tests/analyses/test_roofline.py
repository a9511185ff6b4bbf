"""Roofline points, ceilings and plot, against rocprof-compute's own tables and by hand."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tidyprof import Origin, Profile
from tidyprof.analyses.common import COLUMNS
from tidyprof.analyses.roofline import (
    roofline_ceilings,
    roofline_points,
)
from tidyprof.readers.rocprof_compute.reader import read_rocprof_compute
from tidyprof_tests.compute_writer import (
    SYSINFO,
    Dispatch,
    long_rows,
    published_rows,
    write_folder,
)

COALESCED = "rocprof-compute-mi300x-coalescing/coalesced_profile"
UNCOALESCED = "rocprof-compute-mi300x-coalescing/uncoalesced_profile"
MONTE_CARLO = "rocprof-compute-mi308x-montecarlo"
ORIGIN = Origin("recorded", "published by AMD")


@pytest.fixture(scope="session")
def profile_of(recordings: Path):
    cache: dict[str, Profile] = {}

    def read(name: str) -> Profile:
        if name not in cache:
            cache[name] = read_rocprof_compute(recordings / name, origin=ORIGIN)
        return cache[name]

    return read


def published(profile: Profile, number: str, metric: str) -> float:
    rows = published_rows(profile, number)
    return next(row["Avg"] for row in rows if row["Metric"] == metric)


@pytest.mark.parametrize("name", [COALESCED, UNCOALESCED])
def test_operations_and_bytes_are_those_the_tool_published(name, profile_of):
    """The tool's tables are per wavefront, of one dispatch of 1024."""
    profile = profile_of(name)
    (point,) = roofline_points(profile).to_dict("records")
    waves = 1024
    assert point["flops"] == pytest.approx(waves * published(profile, "11.3", "FLOPs (Total)"))
    assert point["l2_bytes"] == pytest.approx(waves * published(profile, "16.3", "L1-L2 BW"))
    assert point["l1_bytes"] == pytest.approx(waves * published(profile, "16.3", "Cache BW"))
    fabric = published(profile, "17.2", "Read BW") + published(
        profile, "17.2", "Write and Atomic BW"
    )
    assert point["hbm_bytes"] == pytest.approx(waves * fabric, rel=1e-4)
    assert point["duration_ns"] == profile.events["duration_ns"].sum()
    rate = published(profile, "2.1", "VALU FLOPs") * 1e9
    assert point["flops_per_second"] == pytest.approx(rate, rel=1e-3, abs=1)


def test_uncoalesced_access_moves_more_for_the_same_copy(profile_of):
    good, bad = (roofline_points(profile_of(name)).iloc[0] for name in (COALESCED, UNCOALESCED))
    assert bad["l2_bytes"] / good["l2_bytes"] == 24
    assert bad["hbm_bytes"] / good["hbm_bytes"] == pytest.approx(9.9, abs=0.1)
    assert pd.isna(good["main_type"])
    assert bad["main_type"] == "vector fp32"


def test_kernels_are_in_order_with_distinct_names(profile_of):
    table = roofline_points(profile_of(MONTE_CARLO))
    assert table["duration_ns"].is_monotonic_decreasing
    assert not table["short_name"].duplicated().any()
    assert {column: str(dtype) for column, dtype in table.dtypes.items()} == COLUMNS[
        "roofline_points"
    ]


# By hand


FULL = {
    "SQ_INSTS_VALU_ADD_F32": 10,
    "SQ_INSTS_VALU_MUL_F32": 20,
    "SQ_INSTS_VALU_TRANS_F32": 1,
    "SQ_INSTS_VALU_FMA_F32": 100,
    "SQ_INSTS_VALU_MFMA_MOPS_F16": 1000,
    "SQ_INSTS_VALU_MFMA_MOPS_I8": 7,
    "TCC_EA0_RDREQ_sum": 100,
    "TCC_BUBBLE_sum": 40,
    "TCC_EA0_RDREQ_32B_sum": 10,
    "TCC_EA0_WRREQ_sum": 50,
    "TCC_EA0_WRREQ_64B_sum": 30,
    "TCP_TCC_READ_REQ_sum": 200,
    "TCP_TCC_WRITE_REQ_sum": 60,
    "TCP_TCC_ATOMIC_WITH_RET_REQ_sum": 1,
    "TCP_TCC_ATOMIC_WITHOUT_RET_REQ_sum": 2,
    "TCP_TOTAL_CACHE_ACCESSES_sum": 500,
    "SQ_LDS_IDX_ACTIVE": 90,
    "SQ_LDS_BANK_CONFLICT": 10,
}


def profile_with(
    tmp_path: Path, *dispatches: Dispatch, ceilings: str = "", **facts: str
) -> Profile:
    folder = write_folder(tmp_path, long_rows(dispatches), SYSINFO | facts)
    if ceilings:
        (folder / "roofline.csv").write_text(ceilings)
    return read_rocprof_compute(folder, origin=ORIGIN)


def test_one_kernel_by_hand(tmp_path):
    table = roofline_points(
        profile_with(tmp_path, Dispatch(1, "k", 0, 1000, FULL), Dispatch(2, "k", 5000, 3000, FULL))
    )
    (point,) = table.to_dict("records")
    vector, matrix = 64 * (10 + 20 + 1 + 2 * 100), 512 * 1000
    assert point["vector_fp32_flops"] == 2 * vector
    assert point["matrix_fp16_flops"] == 2 * matrix
    assert point["matrix_int8_ops"] == 2 * 512 * 7
    assert point["flops"] == 2 * (vector + matrix)
    assert point["main_type"] == "matrix fp16"
    assert point["hbm_bytes"] == 2 * (128 * 40 + 32 * 10 + 64 * 50 + 64 * 30 + 32 * 20)
    assert point["l2_bytes"] == 2 * (128 * 200 + 64 * 63)
    assert point["l1_bytes"] == 2 * 128 * 500
    assert point["lds_bytes"] == 2 * 4 * 32 * 80
    assert point["hbm_intensity"] == pytest.approx(point["flops"] / point["hbm_bytes"])
    assert (point["calls"], point["duration_ns"]) == (2, 4000)
    assert point["flops_per_second"] == pytest.approx(point["flops"] / 4000 * 1e9)
    assert "SQ_INSTS_VALU_MFMA_MOPS_F8" in point["missing"]


def test_without_bytes_there_is_no_intensity(tmp_path):
    counters = {name: value for name, value in FULL.items() if "EA0" not in name}
    point = roofline_points(profile_with(tmp_path, Dispatch(1, "k", 0, 1000, counters))).iloc[0]
    assert point["flops"] > 0
    assert pd.isna(point["hbm_bytes"])
    assert pd.isna(point["hbm_intensity"])
    assert "TCC_EA0_RDREQ_sum" in point["missing"]


def test_without_operations_there_is_no_rate(tmp_path):
    counters = {name: value for name, value in FULL.items() if not name.startswith("SQ_INSTS")}
    point = roofline_points(profile_with(tmp_path, Dispatch(1, "k", 0, 1000, counters))).iloc[0]
    assert pd.isna(point["flops"])
    assert pd.isna(point["flops_per_second"])
    assert point["hbm_bytes"] > 0


def test_a_kernel_without_a_complete_dispatch_keeps_its_row(tmp_path):
    """Counters that were rotated: no dispatch of k has all, while one of j does."""
    vector = {name: value for name, value in FULL.items() if name.endswith("_F32")}
    rest = {name: value for name, value in FULL.items() if name not in vector}
    dispatches = [Dispatch(1, "k", 0, 1000, vector), Dispatch(2, "k", 2000, 3000, rest)]
    dispatches += [Dispatch(3, "j", 9000, 500, FULL), Dispatch(4, "j", 9900, 500, rest)]
    table = roofline_points(profile_with(tmp_path, *dispatches))
    assert table[["name", "calls", "duration_ns"]].to_numpy().tolist() == [
        ["k", 2, 4000],
        ["j", 1, 500],
    ]
    assert table["flops"].isna().tolist() == [True, False]
    assert table["l1_bytes"].isna().tolist() == [True, False]
    for name in ("SQ_INSTS_VALU_FMA_F32", "TCP_TOTAL_CACHE_ACCESSES_sum"):
        assert [name in text for text in table["missing"]] == [True, False]


MEASURED = (
    "device,HBMBw,HBMBwLow,MALLBw,L2Bw,L1Bw,LDSBw,FP32Flops,MFMAF16Flops,MFMABF16Flops,"
    "MFMAI8Ops,I32Ops\n"
    "0,4000,3900,6000,25000,33000,61000,129000,925000,0,985000,70000\n"
    "1,4100,3900,6000,25000,33000,61000,129000,925000,0,985000,70000\n"
    "2,4300,3900,6000,25000,33000,61000,129000,925000,0,985000,70000\n"
)


def test_measured_ceilings_are_medians_and_what_was_not_measured_is_left_out(tmp_path):
    table = roofline_ceilings(
        profile_with(tmp_path, Dispatch(1, "k", 0, 1000, FULL), ceilings=MEASURED)
    )
    values = table.set_index("name")["value"].to_dict()
    assert values["HBM"] == 4.1e12
    assert values["Infinity Cache"] == 6e12
    assert values["matrix fp16"] == 925e12
    assert "matrix bf16" not in values
    assert table.set_index("name")["unit"].to_dict()["matrix int8"] == "OP/s"
    assert values["vector int32"] == 70e12
    assert "median of 3 devices" in table.attrs["ceilings"]
    assert {column: str(dtype) for column, dtype in table.dtypes.items()} == COLUMNS[
        "roofline_ceilings"
    ]


def test_published_ceilings_say_so(tmp_path):
    table = roofline_ceilings(profile_with(tmp_path, Dispatch(1, "k", 0, 1000, FULL)))
    values = table.set_index("name")["value"].to_dict()
    assert "not measured" in table.attrs["ceilings"]
    assert values["HBM"] == pytest.approx(5324.8e9)
    assert values["matrix fp16"] == pytest.approx(1307.4e12, rel=1e-4)
    assert values["vector fp32"] == pytest.approx(163.4e12, rel=1e-3), (
        "AMD's figure, with packed instructions"
    )
    assert values["L2"] == pytest.approx(34_406.4e9)


@pytest.mark.parametrize(
    ("facts", "memory"),
    [
        ({"gpu_model": "MI325X"}, 6000e9),
        ({"gpu_model": "MI300X_A1"}, 5324.8e9),
        ({"gpu_arch": "gfx90a", "cu_per_gpu": "104", "gpu_model": "MI200"}, 1638.4e9),
        ({"cu_per_gpu": "80", "gpu_model": "MI308X"}, None),
        ({"gpu_model": "unknown"}, None),
    ],
)
def test_published_memory_bandwidth_follows_the_product(tmp_path, facts, memory):
    table = roofline_ceilings(
        profile_with(tmp_path, Dispatch(1, "k", 0, 1000, FULL), max_mclk="", **facts)
    )
    assert table.set_index("name")["value"].get("HBM") == memory
