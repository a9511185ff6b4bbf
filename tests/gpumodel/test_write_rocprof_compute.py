"""Workload folders of rocprof-compute: published formulas over the counters lead back to the
model.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpumodel import devices, writers
from gpumodel.run import DEVICE_WORK, Run
from gpumodel.writers.common.device_work import dispatches_and_copies
from gpumodel.writers.rocprof_compute.counters import (
    BLOCKS,
    SETS,
    chosen,
    counters_of,
    fabric_requests,
    launched,
    resident_waves,
    runs_of,
)
from tests.gpumodel.handmade import GEMM_KERNEL, TEMPLATE_KERNEL, RankBuilder, run_of, small_run
from tidyprof import read
from tidyprof.analyses.counter_formulas import fabric_reads, fabric_writes
from tidyprof.analyses.gpu_peaks import ARCHITECTURES
from tidyprof.analyses.roofline import roofline_ceilings, roofline_points
from tidyprof.analyses.speed_of_light import speed_of_light
from tidyprof.errors import UserError

MI300X = devices.device("MI300X")


def kernel(**columns: object) -> pd.DataFrame:
    """One row of device work: 256 waves of 1 us, unless the arguments say otherwise."""
    row = dict.fromkeys(DEVICE_WORK, 0) | {
        "kind": "kernel",
        "name": "k",
        "phase": "",
        "data_type": "float32",
    }
    row |= {
        "grid_x": 16_384,
        "grid_y": 1,
        "grid_z": 1,
        "workgroup_x": 256,
        "workgroup_y": 1,
        "workgroup_z": 1,
    }
    row |= {
        "duration_ns": 1_000,
        "matrix_cores": False,
        "collective": "",
        "copy_direction": "",
        "bound_by": "memory",
    }
    return pd.DataFrame([row | columns]).astype(DEVICE_WORK)


def one_kernel(**columns: object) -> Run:
    builder = RankBuilder(0, 1)
    call = builder.call("hipLaunchKernel", 10, 100)
    shape = {
        "grid_x": 16_384,
        "grid_y": 1,
        "grid_z": 1,
        "workgroup_x": 256,
        "workgroup_y": 1,
        "workgroup_z": 1,
    }
    builder.work("kernel", "k", call, 200, columns.pop("duration", 1_000), **(shape | columns))
    return run_of(small_run().workload, (builder.finish(),), 10**9)


def values_of(run: Run, folder, **options: object) -> pd.Series:
    """Speed-of-Light values by metric."""
    writers.write("rocprof-compute", run, folder, **options)
    return speed_of_light(read(folder / "workloads")).set_index("metric")["value"]


def test_files_are_those_of_the_layout(tmp_path):
    run = small_run()
    folder = tmp_path / "workloads" / "cifar" / "MI300X_A1"
    written = writers.write("rocprof-compute", run, tmp_path, name="cifar")
    assert {path.name for path in folder.iterdir()} == {
        "sysinfo.csv",
        "roofline.csv",
        "pmc_perf.csv",
        "perfmon",
        "log.txt",
        "profiling_config.yaml",
        "modelled.json",
    }
    assert all(path.is_file() and path.is_relative_to(folder) for path in written)
    wide = tmp_path / "wide"
    names = {
        path.name for path in writers.write("rocprof-compute", run, wide, layout="wide", roof=False)
    }
    assert {"pmc_dispatch_info.csv", "timestamps.csv", "SQ_LEVEL_WAVES.txt"} <= names
    assert "roofline.csv" not in names


@pytest.mark.parametrize("layout", ["long", "wide"])
def test_dispatches_come_back_word_by_word(tmp_path, layout):
    run = small_run()
    writers.write("rocprof-compute", run, tmp_path, layout=layout)
    profile = read(tmp_path / "workloads")
    work = run.ranks[0].device_work
    kernels = work[~((work["kind"] == "copy") & (work["copy_direction"] != "DeviceToDevice"))]
    events = profile.events
    assert events["dispatch_id"].tolist() == kernels["dispatch_id"].tolist()
    later = set((events["start_ns"].to_numpy() - kernels["start_ns"].to_numpy()).tolist())
    assert (
        len(later) == 1
    )  # each run of the program has times of its own, and the reader takes one of them
    assert min(later) >= 0
    assert events["duration_ns"].tolist() == kernels["duration_ns"].tolist()
    assert set(events["device"]) == {run.ranks[0].agent}
    gemm = events[events["name"] == GEMM_KERNEL].iloc[0]
    assert (gemm["grid"], gemm["block"], gemm["lds_bytes"]) == ("[2048]", "[256]", 25_600)
    assert gemm[["vgprs", "accum_vgprs", "sgprs"]].tolist() == [128, 64, 96]
    assert profile.meta["layout"] == layout
    assert profile.meta["warnings"] == []
    assert profile.meta["repairs"] == {}
    assert profile.meta["sysinfo"]["gpu_model"] == "MI300X_A1"


def test_both_layouts_hold_the_same_counters(tmp_path):
    tables = []
    for layout in ("long", "wide"):
        writers.write("rocprof-compute", small_run(), tmp_path / layout, layout=layout)
        counters = read(tmp_path / layout / "workloads").counters.astype({"name": str})
        tables.append(
            counters.sort_values(["dispatch_id", "name"])[
                ["dispatch_id", "name", "value"]
            ].reset_index(drop=True)
        )
    pd.testing.assert_frame_equal(*tables)


def test_a_matrix_product_has_its_rate_its_share_of_the_peak_and_its_waves(tmp_path):
    # 512 x 1000 operations in 1 us are 512 GFLOP/s; the peak of float16 is 1307.4 TFLOP/s.
    run = one_kernel(
        flops=512_000.0,
        data_type="float16",
        matrix_cores=True,
        bytes_read=1_280.0,
        bytes_written=640.0,
    )
    values = values_of(run, tmp_path)
    assert values["MFMA FLOPs (F16)"] == 512.0
    assert values[["MFMA FLOPs (BF16)", "MFMA FLOPs (F32)", "VALU FLOPs"]].tolist() == [0, 0, 0]
    assert values["MFMA Utilization"] == pytest.approx(100 * 512e9 / 1307.4e12, rel=1e-3)
    assert values["L2-Fabric Read BW"] == 1.28
    assert values["L2-Fabric Write BW"] == 0.64
    # 64 workgroups of 4 waves fit at once.
    assert values["Wavefront Occupancy"] == 256
    assert values["CU Utilization"] == pytest.approx(100 * 64 / 304)


def test_vector_arithmetic_is_in_multiply_adds_only_where_it_takes_the_time():
    dense = counters_of(kernel(flops=128_000.0, bound_by="compute"), MI300X).iloc[0]
    assert (dense["SQ_INSTS_VALU_FMA_F32"], dense["SQ_INSTS_VALU_ADD_F32"]) == (1_000, 0)
    # 128000 operations are 2000 instructions of 64 lanes.
    plain = counters_of(kernel(flops=128_000.0), MI300X).iloc[0]
    assert [plain[f"SQ_INSTS_VALU_{kind}_F32"] for kind in ("ADD", "MUL", "FMA")] == [
        1_000,
        1_000,
        0,
    ]
    wide = counters_of(kernel(flops=640.0, data_type="bfloat16"), MI300X).iloc[0]
    assert wide["SQ_INSTS_VALU_ADD_F32"] + wide["SQ_INSTS_VALU_MUL_F32"] == 10


def test_instructions_of_a_plain_kernel_are_those_recorded_of_a_copy():
    """The recording of memcpy_coalesced: 1024 waves, each work-item of which reads and writes 4
    bytes.
    """
    found = counters_of(
        kernel(grid_x=65_536, bytes_read=262_144.0, bytes_written=262_144.0), MI300X
    ).iloc[0]
    recorded = {
        "SQ_WAVES": 1_024,
        "SQ_INSTS_SALU": 3_072,
        "SQ_INSTS_SMEM": 3_072,
        "SQ_INSTS_VMEM": 2_048,
        "SQ_INSTS_BRANCH": 1_024,
        "SQ_INSTS_VALU_INT32": 3_072,
        "SQ_INSTS_VALU_INT64": 2_048,
        "SPI_CSN_NUM_THREADGROUPS": 256,
        "SQ_ITEMS": 65_536,
        "TCC_BUBBLE_sum": 2_048,
        "TCC_EA0_WRREQ_sum": 4_096,
        "TCC_EA0_WRREQ_64B_sum": 4_096,
    }
    assert {name: found[name] for name in recorded} == recorded
    # The model has one vector instruction a wave less: 6144 there.
    assert found["SQ_INSTS"] == 19_456 - 1_024


@given(
    flops=st.floats(0, 1e15),
    data_type=st.sampled_from(["float16", "bfloat16", "float32", "float64", "int64"]),
    matrix=st.booleans(),
    bound=st.sampled_from(["compute", "memory"]),
    duration=st.integers(1, 10**9),
)
@settings(max_examples=40)
def test_kinds_of_instructions_add_up_and_operations_come_back(
    flops, data_type, matrix, bound, duration
):
    work = kernel(
        flops=flops, data_type=data_type, matrix_cores=matrix, bound_by=bound, duration_ns=duration
    )
    found = counters_of(work, MI300X).iloc[0]
    assert (found >= 0).all()
    matrix_flops = 512 * sum(value for name, value in found.items() if "_MOPS_" in name)
    vector_flops = sum(
        (128 if "FMA" in name else 64) * value
        for name, value in found.items()
        if name.startswith("SQ_INSTS_VALU_")
        and name.split("_")[3] in ("ADD", "MUL", "FMA", "TRANS")
    )
    if data_type == "int64":
        assert matrix_flops == vector_flops == 0
        assert found["SQ_INSTS_VALU_INT32"] == 3 * 256 + round(flops / 64)
    elif matrix:
        assert vector_flops == 0
        assert abs(matrix_flops - flops) <= 256 * (1 + 1e-9)
    else:
        assert matrix_flops == 0
        assert abs(vector_flops - flops) <= 32 + 1e-9 * flops
    kinds = ("VALU", "VMEM", "SALU", "SMEM", "BRANCH", "SENDMSG")
    assert (
        found["SQ_INSTS"]
        == sum(found[f"SQ_INSTS_{kind}"] for kind in kinds) + 3 * found["SQ_WAVES"]
    )


@pytest.mark.parametrize("gfx", list(ARCHITECTURES))
@given(read_bytes=st.floats(0, 1e12), written=st.floats(0, 1e12))
@settings(max_examples=15)
def test_bytes_to_memory_come_back_to_16_bytes(gfx, read_bytes, written):
    counted = fabric_requests(
        pd.Series([read_bytes]).to_numpy(), pd.Series([written]).to_numpy(), gfx
    )
    for weights, expected in (
        (fabric_reads(ARCHITECTURES[gfx]), read_bytes),
        (fabric_writes(ARCHITECTURES[gfx]), written),
    ):
        assert (
            abs(sum(weight * counted[name][0] for name, weight in weights.items()) - expected) <= 16
        )


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"grid_x": 64 * 256}, 64 * 4),
        # More workgroups than fit: 32 waves a compute unit with few registers.
        ({"grid_x": 10**7}, 304 * 32),
        # 128 registers leave 512 / 128 = 4 waves a SIMD, 16 a compute unit; accumulation registers
        # count too.
        ({"grid_x": 10**7, "vector_registers": 64, "accumulation_registers": 64}, 304 * 16),
        # 125 registers take as much as 128.
        ({"grid_x": 10**7, "vector_registers": 125}, 304 * 16),
        # 25600 bytes of 65536 leave room for two workgroups of 4 waves.
        ({"grid_x": 10**7, "lds_bytes": 25_600}, 304 * 8),
        # Of 512 registers one workgroup runs, whatever it takes.
        ({"grid_x": 10**7, "vector_registers": 512, "workgroup_x": 1_024}, 304 * 16),
        # 48 work-items take a whole wave.
        ({"grid_x": 480, "workgroup_x": 48}, 10),
        ({"grid_x": 0, "workgroup_x": 0}, 1),
    ],
)
def test_waves_at_once_are_limited_by_registers_local_memory_and_slots(columns, expected):
    assert resident_waves(kernel(**columns), MI300X).tolist() == [expected]


def test_waves_and_workgroups_are_rounded_up():
    groups, waves = launched(kernel(grid_x=1_000, grid_y=3, workgroup_x=96, workgroup_y=2))
    # 1000 / 96 = 10.4 and 3 / 2 = 1.5: 11 x 2 workgroups of 192 work-items, which are 3 waves.
    assert (groups.tolist(), waves.tolist()) == ([22], [66])


def test_roofline_points_lie_where_the_model_put_them(tmp_path):
    run = one_kernel(
        flops=2.0**30,
        data_type="bfloat16",
        matrix_cores=True,
        bytes_read=2.0**22,
        bytes_written=2.0**20,
        duration=50_000,
    )
    writers.write("rocprof-compute", run, tmp_path)
    point = roofline_points(read(tmp_path / "workloads")).iloc[0]
    assert point["flops"] == point["matrix_bf16_flops"] == 2**30
    assert point["hbm_bytes"] == 5 * 2**20
    assert point["hbm_intensity"] == pytest.approx(2**30 / (5 * 2**20))
    assert point["flops_per_second"] == pytest.approx(2**30 / 50e-6)
    assert point["main_type"] == "matrix bf16"
    # What the model does not know is missing, not zero.
    assert point[["l2_bytes", "l1_bytes", "lds_bytes"]].isna().all()


def test_ceilings_are_the_models_peaks(tmp_path):
    writers.write("rocprof-compute", small_run(), tmp_path)
    ceilings = roofline_ceilings(read(tmp_path / "workloads")).set_index("name")["value"]
    assert ceilings["HBM"] == 5324.8e9
    assert ceilings["matrix fp16"] == pytest.approx(1307.4e12)
    assert ceilings["L1"] == pytest.approx(81_715.2e9)
    assert ceilings["L2"] == pytest.approx(34_406.4e9)
    # Without a benchmark the published peaks are the same.
    writers.write("rocprof-compute", small_run(), tmp_path / "bare", roof=False)
    published = roofline_ceilings(read(tmp_path / "bare" / "workloads")).set_index("name")["value"]
    for name in ("HBM", "L1", "L2", "LDS", "matrix fp16", "matrix bf16", "vector fp32"):
        assert ceilings[name] == pytest.approx(published[name], rel=1e-3), name


def test_filters_leave_what_they_name(tmp_path):
    run = small_run()
    for place, kernels in (("k", ["Cijk_", "vectorized"]), ("r", ["^Cij.*_", "vector[a-z]+"])):
        writers.write("rocprof-compute", run, tmp_path / place, kernels=kernels)
        assert set(read(tmp_path / place / "workloads").events["name"]) == {
            GEMM_KERNEL,
            TEMPLATE_KERNEL,
        }
    writers.write("rocprof-compute", run, tmp_path / "d", dispatches=[2, 3])
    launches = dispatches_and_copies(run.ranks[0].device_work)[0].sort_values("dispatch_id")
    second = launches[launches.groupby("name").cumcount().isin([1, 2])]
    assert (
        read(tmp_path / "d" / "workloads").events["dispatch_id"].tolist()
        == second["dispatch_id"].tolist()
        != []
    )
    with pytest.raises(UserError, match=r"-k \*gemm is no regular expression: nothing to repeat"):
        writers.write("rocprof-compute", run, tmp_path / "none", kernels=["*gemm"])
    with pytest.raises(UserError, match="no kernel is left of 18 dispatches by the filters"):
        writers.write("rocprof-compute", run, tmp_path / "none", kernels=["winograd"])


def test_hardware_blocks_leave_the_counters_that_begin_with_their_name(tmp_path):
    writers.write("rocprof-compute", small_run(), tmp_path, blocks=["TCC"])
    names = set(read(tmp_path / "workloads").counters["name"])
    assert {name.split("_")[0] for name in names} == {
        "TCC",
        "GRBM",
        "SQ",
    }  # SQ_BUSY_CYCLES is always counted
    assert {name for name in names if name.startswith("SQ_")} == {"SQ_BUSY_CYCLES"}


def test_blocks_and_sets_leave_their_counters(tmp_path):
    writers.write("rocprof-compute", small_run(), tmp_path / "b", blocks=["17.1"])
    names = set(read(tmp_path / "b" / "workloads").counters["name"])
    assert "TCC_EA0_RDREQ_sum" in names
    assert not any(name.startswith("SQ_INSTS") for name in names)
    values = values_of(small_run(), tmp_path / "s", metric_set="compute_thruput_flops")
    assert not values[["MFMA FLOPs (F32)", "VALU FLOPs"]].isna().any()
    assert pd.isna(values["Wavefront Occupancy"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": ["16"]}, "report block '16' is not modelled"),
        ({"blocks": ["lds"]}, "report block 'lds' is not modelled"),
        ({"metric_set": "all"}, "no set 'all' of metrics"),
        ({"blocks": ["2"], "metric_set": "launch_stats"}, "exclude each other"),
        ({"layout": "tall"}, "no layout 'tall'"),
    ],
)
def test_what_the_tool_or_the_model_cannot_do_is_refused(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        writers.write("rocprof-compute", small_run(), tmp_path, **options)


def test_a_device_that_the_tool_does_not_know_is_refused(tmp_path):
    run = small_run()
    other = replace(run.device, name="A100", gfx="")
    with pytest.raises(UserError, match="rocprof-compute knows no A100"):
        writers.write("rocprof-compute", replace(run, device=other), tmp_path)


def test_only_the_roofline_is_written_if_nothing_else_is_asked_for(tmp_path):
    paths = writers.write("rocprof-compute", small_run(), tmp_path, roof_only=True)
    assert [path.name for path in paths] == ["sysinfo.csv", "roofline.csv", "modelled.json"]


def test_runs_of_the_program_count_no_more_than_the_hardware_can_and_are_planned_in_perfmon(
    tmp_path,
):
    counters = list(counters_of(kernel(), MI300X).columns)
    runs = runs_of(counters)
    assert sorted(name for run in runs.values() for name in run) == sorted(counters)
    assert all(sum(name.startswith("SQ_") for name in run) <= 8 for run in runs.values())
    assert all(sum(name.startswith("TCC_") for name in run) <= 4 for run in runs.values())
    writers.write("rocprof-compute", small_run(), tmp_path)
    assert read(tmp_path / "workloads").meta["replay_passes"] == len(runs)


def test_every_block_and_set_has_counters():
    counters = list(counters_of(kernel(), MI300X).columns)
    always = len(chosen(counters, ["17"], None)) - sum(name.startswith("TCC_") for name in counters)
    for number in BLOCKS:
        assert len(chosen(counters, [str(number)], None)) > always
    for name in SETS:
        assert len(chosen(counters, [], name)) > always


def test_a_device_of_an_older_generation_has_its_own_counters():
    older = SimpleNamespace(**(vars(MI300X) | {"gfx": "gfx90a"}))
    columns = counters_of(kernel(bytes_read=128.0), older)
    assert columns["TCC_EA_RDREQ_sum"].tolist() == [2]
    assert "TCC_BUBBLE_sum" not in columns
