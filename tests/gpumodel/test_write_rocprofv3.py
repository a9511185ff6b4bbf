"""CSV and JSON of rocprofv3: what is written is what is read, in the columns and members of real
files.
"""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pandas as pd
import pytest

from gpumodel import writers
from gpumodel.writers.common.device_work import gfx_target_version, truncated_name
from gpumodel.writers.rocprofv3.csv_files import decimal, percentage, statistics_rows
from tests.gpumodel.handmade import (
    COLLECTIVE_KERNEL,
    GEMM_KERNEL,
    TEMPLATE_KERNEL,
    device_events,
    lists,
    small_run,
)
from tidyprof import read_rocprofv3

FORMATS = ("rocprofv3-csv", "rocprofv3-json")
REAL_HEADERS = {
    "kernel": "rocprofv3-csv-docs/kernel_trace.csv",
    "memory_copy": "rocprofv3-csv-docs/memory_copy_trace.csv",
    "hip_api": "rocprofv3-csv-docs/hip_runtime_trace.csv",
    "marker_api": "rocprofv3-csv-docs/marker_api_trace.csv",
    "rccl_api": "rocprofv3-csv-docs/rccl_trace.csv",
}


def test_lds_is_stated_in_blocks_in_csv(tmp_path: Path) -> None:
    run = small_run()
    run.ranks[0].device_work.loc[1, "lds_bytes"] = 25_601
    writers.write("rocprofv3-csv", run, tmp_path, rank=0)
    events = device_events(read_rocprofv3(tmp_path), order="process").set_index("name")
    assert events.loc[GEMM_KERNEL, "lds_bytes"].iloc[0] == 51 * 512


@pytest.mark.parametrize("format_name", FORMATS)
def test_rccl_calls_stand_around_their_launches(tmp_path: Path, format_name: str) -> None:
    writers.write(format_name, small_run(), tmp_path, rank=0)
    events = read_rocprofv3(tmp_path).events
    times = {
        name: lists(events[events["name"] == name], "start_ns", "duration_ns", "thread")
        for name in ("ncclAllReduce", "hipExtLaunchKernel")
    }
    assert times["ncclAllReduce"] == times["hipExtLaunchKernel"]
    assert times["ncclAllReduce"][1:] == [[6_023] * 3, [4_205] * 3]


def test_columns_are_those_of_real_files(tmp_path: Path, recordings: Path) -> None:
    files = {
        file.name: file
        for file in writers.write("rocprofv3-csv", small_run(roctx=True), tmp_path, rank=0)
    }
    for what, real in REAL_HEADERS.items():
        ours = files[f"4200_{what}_trace.csv"].read_text(encoding="utf-8").splitlines()[0]
        assert ours == (recordings / real).read_text(encoding="utf-8").splitlines()[0]


def test_texts_are_quoted_and_numbers_are_not(tmp_path: Path) -> None:
    files = writers.write("rocprofv3-csv", small_run(), tmp_path, rank=0, traces=["kernel"])
    lines = (
        next(file for file in files if file.name.endswith("kernel_trace.csv"))
        .read_text()
        .splitlines()
    )
    assert (
        lines[1] == '"KERNEL_DISPATCH","Agent'
        f' 2",1,0,4200,2,1,"{GEMM_KERNEL}",102,1550151853130501,1550151853150502,'
        "25600,0,128,64,96,256,1,1,512,4,1"
    )


def test_agents_are_listed_with_the_cpus_first(tmp_path: Path) -> None:
    files = writers.write("rocprofv3-csv", small_run(), tmp_path, rank=0)
    with next(file for file in files if file.name.endswith("agent_info.csv")).open() as file:
        agents = list(csv.DictReader(file))
    assert [agent["Agent_Type"] for agent in agents] == ["CPU", "CPU", "GPU", "GPU"]
    gpu = agents[2]
    assert len(gpu) == 53
    assert (gpu["Node_Id"], gpu["Name"], gpu["Cu_Count"], gpu["Num_Xcc"]) == (
        "2",
        "gfx942",
        "304",
        "8",
    )
    assert gpu["Gfx_Target_Version"] == "90402"
    assert gfx_target_version("gfx90a") == 90_010


def test_statistics_are_those_of_the_trace(tmp_path: Path) -> None:
    files = writers.write("rocprofv3-csv", small_run(), tmp_path, rank=0, stats=True, prefix="out")
    stats = read_rocprofv3(tmp_path).meta["stats"]
    kernel = stats["kernel"].set_index("name")
    # 3 all-reduces of 110,027 ns of 429,276 ns in all: 76.89 %.
    assert kernel.index[0] == COLLECTIVE_KERNEL
    assert (
        kernel.loc[COLLECTIVE_KERNEL, ["calls", "total_ns", "min_ns", "max_ns"]].tolist()
        == [3, 330_081] + [110_027] * 2
    )
    assert kernel.loc[COLLECTIVE_KERNEL, "percent"] == 76.89
    calls = stats["hip_api"].set_index("name")["calls"].to_dict()
    assert calls == {
        "hipStreamSynchronize": 3,
        "hipMemcpyWithStream": 7,
        "hipLaunchKernel": 6,
        "hipExtLaunchKernel": 3,
        "hipExtModuleLaunchKernel": 3,
        "hipMemsetAsync": 3,
    }
    assert set(stats["domain"]["name"]) == {"KERNEL_DISPATCH", "HIP_API", "MEMORY_COPY", "RCCL_API"}
    assert (tmp_path / "out_domain_stats.csv") in files


def test_statistics_are_worked_out_and_formatted_as_the_tool_does() -> None:
    names, durations = pd.Series(["a", "b", "a"]), pd.Series([10, 970, 20])
    assert statistics_rows(names, durations) == [
        ["b", "1", "970", "970.000000", "97.00", "970", "970", "0.00000000e+00"],
        # The sample deviation of 10 and 20 is sqrt(50).
        ["a", "2", "30", "15.000000", "3.00", "10", "20", "7.071068"],
    ]


def test_number_formats_are_those_in_real_statistics(recordings: Path) -> None:
    with (recordings / "rocprofv3-csv-docs/hip_api_stats.csv").open() as file:
        rows = list(csv.DictReader(file))
    total = sum(int(row["TotalDurationNs"]) for row in rows)
    for row in rows:
        assert percentage(100 * int(row["TotalDurationNs"]) / total) == row["Percentage"]
        assert decimal(int(row["TotalDurationNs"]) / int(row["Calls"])) == row["AverageNs"]
        assert decimal(float(row["StdDev"])) == row["StdDev"]


def test_only_what_is_asked_for_is_recorded(tmp_path: Path) -> None:
    files = writers.write(
        "rocprofv3-csv", small_run(), tmp_path, rank=1, traces=["kernel"], stats=True
    )
    names = [
        "agent_info.csv",
        "domain_stats.csv",
        "kernel_stats.csv",
        "kernel_trace.csv",
        "modelled.json",
    ]
    assert sorted(file.name for file in files) == [f"4210_{name}" for name in names]
    assert {file.parent for file in files} == {tmp_path / "modelled-node"}
    writers.write("rocprofv3-json", small_run(), tmp_path / "json", rank=1, traces=["hip"])
    assert set(read_rocprofv3(tmp_path / "json").events["kind"]) == {"runtime"}


def test_prefixes_keep_ranks_apart(tmp_path: Path) -> None:
    prefix = "%hostname%-rank%rank%_of_%size%_pid%p%"
    files = writers.write("rocprofv3-csv", small_run(), tmp_path, prefix=prefix, traces=["kernel"])
    assert files[0].name == "modelled-node-rank0_of_2_pid4200_agent_info.csv"
    assert read_rocprofv3(tmp_path).meta["ranks"] == [0, 1]


def test_kernel_names_can_be_truncated() -> None:
    assert truncated_name(TEMPLATE_KERNEL) == "vectorized_elementwise_kernel"
    assert truncated_name(GEMM_KERNEL) == GEMM_KERNEL
    assert truncated_name("void at::native::(anonymous namespace)::f<int (*)(float)>(char*)") == "f"
    assert truncated_name("(") == "("


def test_json_has_the_members_of_a_real_file(tmp_path: Path, recordings: Path) -> None:
    path, _ = writers.write("rocprofv3-json", small_run(), tmp_path)
    (ours,) = json.loads(path.read_text(encoding="utf-8"))["rocprofiler-sdk-tool"]
    real_file = recordings / "rocprofv3-json-mi350x-torch-training/908_results.json.gz"
    (real,) = json.loads(gzip.decompress(real_file.read_bytes()))["rocprofiler-sdk-tool"]
    assert list(ours) == list(real)
    assert list(ours["buffer_records"]) == list(real["buffer_records"])
    assert set(ours["metadata"]) - {"modelled"} == set(real["metadata"])
    for part in ("kernel_symbols", "code_objects", "agents"):
        assert set(ours[part][-1]) <= set(real[part][-1])
    dispatch, real_dispatch = (
        tool["buffer_records"]["kernel_dispatch"][0] for tool in (ours, real)
    )
    assert dispatch.keys() == real_dispatch.keys()
    assert dispatch["dispatch_info"].keys() == real_dispatch["dispatch_info"].keys()
