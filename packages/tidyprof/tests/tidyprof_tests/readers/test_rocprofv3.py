"""The rocprofv3 reader against real recordings with known figures, and against written outputs."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidyprof
from tidyprof import EVENT_DTYPES, ProfileReadError
from tidyprof.analyses import busy, kernels, launches
from tidyprof.readers.rocprofv3.reader import read_rocprofv3
from tidyprof_tests.rocprofv3_writer import (
    COUNTER_HEADER,
    KERNEL_HEADER,
    START_NS,
    Call,
    Copy,
    Kernel,
    call_csv,
    copy_csv,
    counter_row,
    csv_text,
    kernel_csv,
    results,
    small_run,
    statistics_csv,
    write_results,
    write_small_run,
)

DOCS = "rocprofv3-csv-docs"
DECODE = "rocprofv3-csv-gfx1151-llamacpp-decode"
TAYLOR = "rocprofv3-lumi-taylor"
TRAINING = "rocprofv3-json-mi350x-torch-training"
DOCUMENTED = [
    "counter_collection",
    "hip_api_stats",
    "hip_compile_trace",
    "hip_domain_stats",
    "hip_runtime_trace",
    "hip_trace",
    "hsa_api_trace",
    "hsa_core_api_trace",
    "kernel_names",
    "kernel_trace",
    "kernel_trace_truncated",
    "marker_api_trace",
    "memory_allocation_trace",
    "memory_copy_trace",
    "pc_sampling_host_trap",
    "pc_sampling_host_trap_debug",
    "pc_sampling_stochastic_debug",
    "python_bindings",
    "rccl_trace",
    "rocdecode_api_trace",
    "rocjpeg_api_trace",
    "rocpd-to-csv",
    "scratch_memory_trace",
]


@pytest.fixture(scope="session")
def truth(manifest: dict[str, dict]):
    return {name: entry["truth"] for name, entry in manifest.items()}


@pytest.fixture(scope="session")
def training(recordings: Path):
    return read_rocprofv3(recordings / TRAINING / "908_results.json.gz")


def of_domain(profile: tidyprof.Profile, domain: str) -> pd.DataFrame:
    return profile.events[profile.events["source_category"] == domain]


def rows_of(path: Path, time: str = "Start_Timestamp") -> list[dict[str, str]]:
    """Rows as the standard library reads them, in order of time."""
    with path.open(newline="") as file:
        return sorted(csv.DictReader(file), key=lambda row: int(row[time]))


def span_ns(events: pd.DataFrame) -> int:
    return int((events["start_ns"] + events["duration_ns"]).max() - events["start_ns"].min())


def top(events: pd.DataFrame) -> dict:
    table = (
        events.groupby("name", observed=True)["duration_ns"].agg(["size", "sum"]).sort_values("sum")
    )
    return {
        "name": table.index[-1],
        "calls": int(table["size"].iloc[-1]),
        "total_ns": int(table["sum"].iloc[-1]),
    }


# Recordings


def test_no_documented_file_is_left_out(recordings, truth):
    assert sorted(f"{name}.csv" for name in DOCUMENTED) == sorted(truth[DOCS])


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_files(recordings, truth, name):
    expected = truth[DOCS][f"{name}.csv"]
    profile = tidyprof.read(recordings / DOCS / f"{name}.csv")
    assert profile.meta["tool"] == "rocprofv3"
    if "calls" in expected:
        (table,) = profile.meta["stats"].values()
        assert len(table) == expected["rows"]
        assert table["calls"].sum() == expected["calls"]
        assert table["total_ns"].sum() == expected["total_ns"]
        return
    rows = profile.counters if len(profile.counters) else profile.events
    assert len(rows) == expected["rows"]
    total = int(rows["duration_ns"].sum())
    assert total == expected.get("total_ns", 0)
    assert profile.meta["repairs"] == {}


def test_every_cell_of_a_kernel_trace(recordings):
    path = recordings / DOCS / "kernel_trace.csv"
    rows = rows_of(path)
    events = read_rocprofv3(path).events
    whole = {
        "device": [int(row["Agent_Id"].removeprefix("Agent ")) for row in rows],
        "stream": [int(row["Stream_Id"]) for row in rows],
        "queue": [int(row["Queue_Id"]) for row in rows],
        "start_ns": [int(row["Start_Timestamp"]) for row in rows],
        "duration_ns": [int(row["End_Timestamp"]) - int(row["Start_Timestamp"]) for row in rows],
        "correlation_id": [int(row["Correlation_Id"]) for row in rows],
        "dispatch_id": [int(row["Dispatch_Id"]) for row in rows],
        "launch_thread": [int(row["Thread_Id"]) for row in rows],
        "lds_bytes": [int(row["LDS_Block_Size"]) for row in rows],
        "scratch_bytes": [int(row["Scratch_Size"]) for row in rows],
        "vgprs": [int(row["VGPR_Count"]) for row in rows],
        "accum_vgprs": [int(row["Accum_VGPR_Count"]) for row in rows],
        "sgprs": [int(row["SGPR_Count"]) for row in rows],
        "name": [row["Kernel_Name"] for row in rows],
        "grid": [
            f"[{row['Grid_Size_X']}, {row['Grid_Size_Y']}, {row['Grid_Size_Z']}]" for row in rows
        ],
        "block": [
            f"[{row['Workgroup_Size_X']}, {row['Workgroup_Size_Y']}, {row['Workgroup_Size_Z']}]"
            for row in rows
        ],
    }
    for column, values in whole.items():
        assert events[column].tolist() == values, column
    for column in ("rank", "process", "thread", "bytes", "launch_ns"):
        assert events[column].isna().all(), column


def test_every_call_of_a_hip_trace(recordings):
    path = recordings / DECODE / "decode_hip_api_trace.csv"
    rows = rows_of(path)
    events = read_rocprofv3(path).events
    for column, name in {
        "process": "Process_Id",
        "thread": "Thread_Id",
        "correlation_id": "Correlation_Id",
    }.items():
        assert events[column].tolist() == [int(row[name]) for row in rows]
    assert sorted(events["name"]) == sorted(row["Function"] for row in rows)
    assert events["short_name"].tolist() == events["name"].tolist()
    assert set(events["kind"]) == {"runtime"}


def test_decode_kernel_trace(recordings, truth):
    expected = truth[DECODE]["kernel_trace"]
    events = read_rocprofv3(recordings / DECODE / "decode_kernel_trace.csv").events
    assert len(events) == expected["rows"]
    assert events["duration_ns"].sum() == expected["total_ns"]
    assert events["name"].nunique() == expected["distinct_names"]
    assert span_ns(events) == expected["span_ns"]
    assert top(events) == expected["top"]


@pytest.mark.parametrize("name", ["fetch", "stall"])
def test_decode_counters(recordings, truth, name):
    expected = truth[DECODE][f"{name}_counter_collection"]
    profile = read_rocprofv3(recordings / DECODE / f"decode_{name}_counter_collection.csv")
    counters = profile.counters
    assert len(counters) == expected["rows"]
    assert counters["dispatch_id"].nunique() == expected["dispatches"]
    sums = counters.groupby("name", observed=True)["value"].agg(["size", "sum"])
    assert sums["size"].to_dict() == {
        counter: of["rows"] for counter, of in expected["counters"].items()
    }
    assert sums["sum"].to_dict() == pytest.approx(
        {counter: of["sum"] for counter, of in expected["counters"].items()}
    )
    assert len(profile.events) == 0


def test_decode_kernels_find_their_launches(recordings):
    folder = recordings / DECODE
    profile = read_rocprofv3(folder)
    calls = {row["Correlation_Id"]: row for row in rows_of(folder / "decode_hip_api_trace.csv")}
    dispatched = of_domain(profile, "KERNEL_DISPATCH")
    expected = [calls.get(str(identifier)) for identifier in dispatched["correlation_id"]]
    launched = [int(row["Start_Timestamp"]) if row else None for row in expected]
    assert [None if pd.isna(time) else time for time in dispatched["launch_ns"]] == launched
    assert profile.meta["device_events_without_launch"] == launched.count(None)
    assert (launches(profile)["delay_ns"] >= 0).all()


def test_taylor_kernel_trace(recordings, truth):
    expected = truth[TAYLOR]["kernel_trace.csv"]
    profile = read_rocprofv3(recordings / TAYLOR / "kernel_trace.csv")
    events = profile.events
    assert len(events) == expected["rows"]
    assert events["duration_ns"].sum() == expected["total_ns"]
    assert span_ns(events) == expected["span_ns"]
    assert events["name"].nunique() == expected["distinct_names"]
    assert top(events) == expected["top"]
    assert busy(profile)["busy_ns"].tolist() == [expected["busy_ns"]]
    assert events["stream"].isna().all()
    assert set(events["device"]) == {4}
    assert set(events["scratch_bytes"]) == {0, 1024}


def test_training_json(truth, training):
    expected = truth[TRAINING]
    dispatched = of_domain(training, "KERNEL_DISPATCH")
    assert len(dispatched) == len(training.events) == expected["kernel_dispatches"]
    assert dispatched["duration_ns"].sum() == expected["kernel_total_ns"]
    assert dispatched["name"].nunique() == expected["distinct_kernel_names"]
    assert dispatched["queue"].nunique() == expected["queues"]
    assert dispatched["stream"].nunique() == expected["streams"]
    assert dispatched["device"].nunique() == expected["agents_with_dispatches"]
    start, end = training.meta["record_window_ns"]
    assert end - start == expected["process_lifetime_ns"]
    assert (
        sum(agent["type"] == "GPU" for agent in training.meta["agents"]) == expected["gpu_agents"]
    )


def test_files_of_several_runs_are_not_one_run(recordings):
    with pytest.raises(ProfileReadError, match=r"\b9 different .*\b15 and 57\b"):
        read_rocprofv3(recordings / DOCS)


# The contract


def test_empty_tables_keep_their_types(tmp_path):
    (tmp_path / "1_kernel_stats.csv").write_text(statistics_csv([("a", [1, 2])]))
    profile = read_rocprofv3(tmp_path)
    assert {
        column: str(dtype)
        for column, dtype in profile.events.dtypes.items()
        if column in EVENT_DTYPES
    } == EVENT_DTYPES
    assert "name" in kernels(profile).columns
    assert len(kernels(profile)) == 0


# What becomes what


@pytest.mark.parametrize(
    ("direction", "device"),
    [("HOST_TO_DEVICE", 4), ("DEVICE_TO_HOST", 4), ("DEVICE_TO_DEVICE", 5), ("HOST_TO_HOST", None)],
)
def test_devices_of_copies(tmp_path, direction, device):
    path = tmp_path / "memory_copy_trace.csv"
    path.write_text(copy_csv([Copy(direction, 0, 10, 1)]))
    event = read_rocprofv3(path).events.iloc[0]
    assert (None if pd.isna(event["device"]) else event["device"]) == device
    assert pd.isna(event["bytes"])
    assert event["source_device"] != event["destination_device"]


@pytest.mark.parametrize(
    ("domain", "kind"),
    [
        ("HSA_CORE_API", "runtime"),
        ("HSA_AMD_EXT_API", "runtime"),
        ("RCCL_API", "runtime"),
        ("ROCDECODE_API_EXT", "runtime"),
        ("MARKER_CORE_API", "annotation"),
        ("MARKER_CORE_RANGE_API", "annotation"),
        ("MARKER_CONTROL_API", "runtime"),
    ],
)
def test_kinds_of_domains(tmp_path, domain, kind):
    path = tmp_path / "trace.csv"
    path.write_text(call_csv([Call("f", 0, 10, 1, domain=domain)]))
    event = read_rocprofv3(path).events.iloc[0]
    assert (event["kind"], event["source_category"], event["thread"]) == (kind, domain, 300)
    assert pd.isna(event["device"])


def test_unknown_domains_are_counted(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(call_csv([Call("f", 0, 10, 1), Call("g", 0, 10, 2, domain="NEW_THING")]))
    profile = read_rocprofv3(path)
    assert profile.events["name"].tolist() == ["f"]
    assert profile.meta["not_kept"] == {"NEW_THING": 1}
    assert any("'NEW_THING' 1 times" in warning for warning in profile.meta["warnings"])
    assert profile.meta["events_total"] == 2


def test_launches_are_found_within_a_process_only(tmp_path):
    profile = read_rocprofv3(write_small_run(tmp_path))
    launched = profile.device_events.set_index("name")["launch_ns"]
    assert launched["void gemm<float>(float*, int)"] == START_NS + 200
    assert launched["__amd_rocclr_fillBufferAligned"] == START_NS + 400
    assert launched["MEMORY_COPY_HOST_TO_DEVICE"] == START_NS + 100
    assert pd.isna(launched["MEMORY_COPY_DEVICE_TO_HOST"])
    (tmp_path / "301_kernel_trace.csv").write_text(
        kernel_csv([Kernel("other", 9_000, 1, 1, correlation=2)])
    )
    events = read_rocprofv3(tmp_path).events.set_index("name")
    assert pd.isna(events.loc["other", "launch_ns"])
    assert events.loc["other", "process"] == 301


def test_the_outermost_call_is_the_launch(tmp_path):
    calls = [
        Call("hsa_queue_add", 230, 5, 2, domain="HSA_CORE_API"),
        Call("hipLaunchKernel", 200, 40, 2),
        Call("hipInner", 200, 10, 2),
    ]
    (tmp_path / "1_hip_api_trace.csv").write_text(call_csv(calls))
    (tmp_path / "1_kernel_trace.csv").write_text(
        kernel_csv([Kernel("k", 500, 1, 1, correlation=2)])
    )
    profile = read_rocprofv3(tmp_path)
    assert profile.device_events["launch_ns"].tolist() == [START_NS + 200]
    assert profile.meta["shared_launch_records"] == 2


def test_memory_calls_state_their_agent_and_bytes(recordings):
    events = read_rocprofv3(recordings / DOCS / "memory_allocation_trace.csv").events
    assert set(events["kind"]) == {"runtime"}
    assert events["device"].isna().all()
    assert events["memory_device"].dropna().tolist() == [0, 0]
    assert events["bytes"].tolist() == [1024, 1024, 0, 0]


def test_samples(recordings):
    path = recordings / DOCS / "pc_sampling_stochastic_debug.csv"
    rows = rows_of(path, "Sample_Timestamp")
    events = read_rocprofv3(path).events
    assert set(events["kind"]) == {"sample"}
    assert set(events["source_category"]) == {"PC_SAMPLING_STOCHASTIC"}
    assert (events["duration_ns"] == 0).all()
    assert events["name"].tolist() == [row["Instruction"] for row in rows]
    assert events["source_line"].tolist() == [row["Instruction_Comment"] for row in rows]
    assert events["exec_mask"].tolist() == [int(row["Exec_Mask"]) for row in rows]
    assert events["stall_reason"].tolist() == [row["Stall_Reason"] for row in rows]
    assert events["wave_count"].tolist() == [int(row["Wave_Count"]) for row in rows]
    assert events["dispatch_id"].tolist() == [int(row["Dispatch_Id"]) for row in rows]


def test_graph_launches_are_no_kernels(tmp_path):
    header = [
        "Kind",
        "Agent_Id",
        "Queue_Id",
        "Correlation_Id",
        "Start_Timestamp",
        "End_Timestamp",
        "Duration",
    ]
    path = tmp_path / "graph_launch.csv"
    path.write_text(
        csv_text(header, [["Graph Launch", "Agent 4", 1, 5, START_NS, START_NS + 10, 10]])
    )
    event = read_rocprofv3(path).events.iloc[0]
    assert (event["kind"], event["name"], event["device"]) == ("annotation", "Graph Launch", 4)


# Headers and ways of writing


KERNEL = Kernel("void f<int, 2>(int*, char const*)", 5, 10, 1, correlation=3)


def changed_header(
    renamed: dict[str, str], dropped: tuple[str, ...] = (), added: dict[str, object] | None = None
) -> str:
    cells = dict(zip(KERNEL_HEADER, KERNEL.cells(), strict=True))
    kept = {renamed.get(name, name): cell for name, cell in cells.items() if name not in dropped}
    kept = {**(added or {}), **kept}
    return csv_text(list(kept), [list(kept.values())])


WAYS = {
    "ROCm 7": kernel_csv([KERNEL]),
    "every cell in quotes": csv_text(KERNEL_HEADER, [[str(cell) for cell in KERNEL.cells()]]),
    "no quotes in the header": kernel_csv([KERNEL]).replace('"', "", 2 * len(KERNEL_HEADER)),
    "numbers for agents": kernel_csv([KERNEL]).replace('"Agent 4"', "4"),
    "agents by type": kernel_csv([KERNEL]).replace("Agent 4", "GPU 4"),
    "carriage returns": kernel_csv([KERNEL]).replace("\n", "\r\n"),
    "a byte order mark": "\ufeff" + kernel_csv([KERNEL]),
    "no last line end": kernel_csv([KERNEL])[:-1],
    "empty lines at the end": kernel_csv([KERNEL]) + "\n\n",
    "rocpd's letter case": changed_header({name: name.title() for name in KERNEL_HEADER}),
    "rocpd's columns": changed_header({}, added={"Guid": "0000ddb5-8903", "Duration": 10}),
    "columns of a later release": changed_header({}, added={"Color": "red", "Weight": 1.5}),
    "ROCm 6.2": changed_header(
        {"LDS_Block_Size": "Group_Segment_Size", "Scratch_Size": "Private_Segment_Size"},
        ("Stream_Id", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count"),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_of_writing(tmp_path, way):
    path = tmp_path / "1_kernel_trace.csv"
    path.write_bytes(WAYS[way].encode())
    profile = read_rocprofv3(path)
    (event,) = profile.events.to_dict("records")
    known = {
        "kind": "kernel",
        "name": KERNEL.name,
        "start_ns": START_NS + 5,
        "duration_ns": 10,
        "device": 4,
        "queue": 1,
        "correlation_id": 3,
        "dispatch_id": 1,
        "grid": "[1024, 2, 1]",
        "block": "[256, 1, 1]",
        "launch_thread": 300,
        "lds_bytes": 512,
        "scratch_bytes": 16,
        "process": 1,
    }
    assert {name: event[name] for name in known} == known
    assert pd.isna(event["stream"]) == (way == "ROCm 6.2")
    assert bool(profile.meta["warnings"]) == (way == "no last line end")
    assert profile.meta["device_numbering"] == ("index" if way == "agents by type" else "agent")


@settings(max_examples=150)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\r\n"'), max_size=12),
        min_size=1,
        max_size=5,
    )
)
def test_any_names_are_kept(tmp_path_factory, names):
    path = tmp_path_factory.getbasetemp() / "names_marker_api_trace.csv"
    calls = [
        Call(text, place, 1, place, domain="MARKER_CORE_API") for place, text in enumerate(names)
    ]
    path.write_bytes(call_csv(calls).encode())
    assert read_rocprofv3(path).events["name"].tolist() == names


def test_odd_names_in_a_kernel_trace(tmp_path):
    # --kernel-rename puts the user's texts in the place of kernel names.
    path = tmp_path / "kernel_trace.csv"
    path.write_bytes(
        kernel_csv([Kernel("two\nlines", place, 1, place) for place in range(1, 5)]).encode()
    )
    assert read_rocprofv3(path).events["name"].tolist() == ["two\nlines"] * 4
    path.write_bytes(
        kernel_csv([Kernel('5" pipe', place, 1, place) for place in range(1, 5)]).encode()
    )
    with pytest.raises(ProfileReadError, match="--kernel-rename"):
        read_rocprofv3(path)
    path.write_bytes(
        kernel_csv([Kernel("a§", place, 1, place) for place in range(1, 5)]).encode("latin-1")
    )
    assert read_rocprofv3(path).events["name"].tolist() == ["a\ufffd"] * 4


# Several processes


def test_names_say_rank_and_process(tmp_path):
    names = {
        "rank0_pid41_kernels": (0, 41),
        "rank-1_kernels": (1, None),
        "42": (None, 42),
        "node3/43": (None, 43),
        "rank2/node3/44": (2, 44),
        "out_pid45": (None, 45),
        "frank7": (None, None),
    }
    for place, prefix in enumerate(names):
        path = tmp_path / f"{prefix}_kernel_trace.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(kernel_csv([Kernel(prefix, 10 * place, 100, 1)]))
    profile = read_rocprofv3(tmp_path)
    found = {
        event["name"]: tuple(
            None if pd.isna(event[key]) else event[key] for key in ("rank", "process")
        )
        for event in profile.events.to_dict("records")
    }
    assert found == names
    assert profile.meta["ranks"] == [0, 1, 2]


# JSON


def one_after_the_other(drawn):
    """Kernels of a stream that end before the next one begins: a reader cuts those that do not."""
    last = {}
    apart = []
    for kernel in sorted(drawn, key=lambda kernel: kernel.start, reverse=True):
        place = kernel.agent, kernel.stream
        room = last.get(place, kernel.start + kernel.duration) - kernel.start
        last[place] = kernel.start
        apart.append(Kernel(**{**vars(kernel), "duration": min(kernel.duration, room)}))
    return apart


kernel_lists = st.lists(
    st.builds(
        Kernel,
        name=st.sampled_from(["a", "b<int, 2>", "__amd_rocclr_copyBuffer", "ncclKernel"]),
        start=st.integers(0, 10**6),
        duration=st.integers(0, 10**5),
        dispatch=st.just(0),
        correlation=st.integers(0, 50),
        agent=st.sampled_from([4, 5]),
        stream=st.integers(0, 3),
        grid=st.tuples(*[st.integers(1, 2**32 - 1)] * 3),
        block=st.tuples(*[st.integers(1, 1024)] * 3),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda kernel: (kernel.start, kernel.agent, kernel.stream),
).map(one_after_the_other)


@settings(max_examples=60)
@given(kernel_lists)
def test_any_kernels_as_json_and_csv(tmp_path_factory, drawn):
    drawn = [Kernel(**{**vars(kernel), "dispatch": place}) for place, kernel in enumerate(drawn, 1)]
    folder = tmp_path_factory.getbasetemp()
    csv_path = folder / "any_kernel_trace.csv"
    csv_path.write_text(kernel_csv(drawn))
    first = read_rocprofv3(csv_path)
    second = read_rocprofv3(write_results(folder / "any_results.json", drawn))
    pd.testing.assert_frame_equal(
        first.events.drop(columns="process"), second.events.drop(columns="process")
    )
    ordered = sorted(drawn, key=lambda kernel: kernel.start)
    assert first.events["start_ns"].tolist() == [START_NS + kernel.start for kernel in ordered]
    assert first.events["duration_ns"].tolist() == [kernel.duration for kernel in ordered]
    assert first.events["grid"].tolist() == [str(list(kernel.grid)) for kernel in ordered]
    durations = [kernel.duration for kernel in drawn if kernel.name == "a"]
    table = kernels(first).set_index("name")
    if durations:
        row = table.loc["a"]
        assert (row["calls"], row["total_ns"]) == (len(durations), sum(durations))
        deviation = statistics.stdev(durations) if len(durations) > 1 else 0
        assert row["std_ns"] == pytest.approx(deviation, abs=1e-6)


def test_json_takes_the_place_of_csv(tmp_path):
    write_small_run(tmp_path)
    (tmp_path / "300_kernel_stats.csv").write_text(statistics_csv([("a", [1, 2, 3])]))
    write_results(tmp_path / "300_results.json", *small_run())
    profile = read_rocprofv3(tmp_path)
    assert len(profile.events) == 10
    assert len(profile.meta["ignored_files"]) == 4
    assert profile.meta["stats"]["kernel"]["calls"].tolist() == [3]
    assert sorted(Path(file).name for file in profile.meta["files"]) == [
        "300_kernel_stats.csv",
        "300_results.json",
    ]


def test_json_of_several_processes_and_of_one_without_list(tmp_path):
    both = {"rocprofiler-sdk-tool": []}
    for process in (1, 2):
        both["rocprofiler-sdk-tool"] += results(
            [Kernel(f"k{process}", process, 10, 1)], process=process
        )["rocprofiler-sdk-tool"]
    path = tmp_path / "results.json"
    path.write_text(json.dumps(both))
    events = read_rocprofv3(path).events
    assert events["process"].tolist() == [1, 2]
    path.write_text(json.dumps({"rocprofiler-sdk-tool": both["rocprofiler-sdk-tool"][0]}))
    assert read_rocprofv3(path).events["process"].tolist() == [1]


def test_json_counters_add_up_instances(tmp_path):
    kernel = Kernel("k", 3, 10, 1, correlation=8)
    path = write_results(
        tmp_path / "results.json", counters=[(kernel, {"SQ_WAVES": [1.0, 2.5], "X": [4.0]})]
    )
    profile = read_rocprofv3(path)
    assert dict(zip(profile.counters["name"], profile.counters["value"], strict=True)) == {
        "SQ_WAVES": 3.5,
        "X": 4.0,
    }
    assert set(profile.counters["kernel"]) == {"k"}
    assert set(profile.counters["work_items"]) == {2048}
    assert set(profile.counters["device"]) == {4}
    assert len(profile.events) == 0


def test_json_samples(tmp_path):
    sample = {
        "timestamp": START_NS,
        "exec_mask": 2**64 - 1,
        "dispatch_id": 4,
        "corr_id": {"internal": 9},
    }
    records = [
        {"record": sample, "inst_index": 1},
        {"record": sample | {"timestamp": START_NS + 5}, "inst_index": -1},
    ]
    path = write_results(tmp_path / "results.json", buffer_records={"pc_sample_host_trap": records})
    events = read_rocprofv3(path).events
    assert events["kind"].tolist() == ["sample"] * 2
    assert events["name"].iloc[0] == "v_add_f32"
    assert pd.isna(events["name"].iloc[1])
    assert events["source_line"].iloc[0] == "a.cpp:2"
    assert events["exec_mask"].iloc[0] == 2**64 - 1


def test_json_records_that_are_no_events_are_counted(tmp_path):
    path = write_results(
        tmp_path / "results.json",
        buffer_records={
            "kernel_dispatch": [KERNEL.json(7)],
            "kfd": [{"kind": 5, "operation": 0, "timestamp": 5}],
        },
        kernel_symbols=[{"kernel_id": 7, "formatted_kernel_name": "k"}],
    )
    profile = read_rocprofv3(path)
    assert profile.events["name"].tolist() == ["k"]
    assert profile.meta["not_kept"] == {"KFD_QUEUE": 1}


# Counters, statistics, agents


def test_counters_are_rows_per_dispatch_and_counter(tmp_path):
    rows = [counter_row(KERNEL, "SQ_WAVES", 16.0), counter_row(KERNEL, "FETCH_SIZE", 1.25e-1)]
    path = tmp_path / "1_counter_collection.csv"
    path.write_text(csv_text(COUNTER_HEADER, rows))
    counters = read_rocprofv3(path).counters
    assert list(counters.columns[:5]) == list(tidyprof.COUNTER_DTYPES)
    for column, dtype in tidyprof.COUNTER_DTYPES.items():
        assert counters[column].dtype == dtype, column
    assert counters["name"].tolist() == ["SQ_WAVES", "FETCH_SIZE"]
    assert counters["value"].tolist() == [16.0, 0.125]
    assert counters["unit"].isna().all()
    first = counters.iloc[0]
    assert (first["time_ns"], first["duration_ns"], first["dispatch_id"]) == (START_NS + 5, 10, 1)
    assert (first["work_items"], first["workgroup_size"], first["vgprs"], first["kernel"]) == (
        2048,
        256,
        32,
        KERNEL.name,
    )


def test_counters_without_times(recordings):
    profile = read_rocprofv3(recordings / DOCS / "kernel_names.csv")
    assert (profile.counters["time_ns"] == 0).all()
    assert profile.counters["duration_ns"].isna().all()
    assert "time_ns is 0" in profile.meta["warnings"][0]


def test_statistics_have_one_set_of_columns(tmp_path):
    durations = {"b, with a comma": [5, 7, 9], "a": [100]}
    for rank in range(2):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        (folder / f"{rank}_kernel_stats.csv").write_text(statistics_csv(durations.items()))
        (folder / f"{rank}_domain_stats.csv").write_text(
            statistics_csv([("KERNEL_DISPATCH", [5, 7, 9, 100])])
        )
    stats = read_rocprofv3(tmp_path).meta["stats"]
    assert sorted(stats) == ["domain", "kernel"]
    table = stats["kernel"]
    assert list(table.columns) == [
        "rank",
        "process",
        "name",
        "calls",
        "total_ns",
        "mean_ns",
        "min_ns",
        "max_ns",
        "std_ns",
        "percent",
    ]
    assert table["rank"].tolist() == [0, 0, 1, 1]
    assert table["process"].tolist() == [0, 0, 1, 1]
    row = table.iloc[0]
    assert (row["name"], row["calls"], row["total_ns"], row["min_ns"], row["max_ns"]) == (
        "b, with a comma",
        3,
        21,
        5,
        9,
    )
    assert row["std_ns"] == 2
    assert row["percent"] == pytest.approx(100 * 21 / 121)


def test_statistics_of_instants(tmp_path):
    path = tmp_path / "marker_api_stats.csv"
    path.write_text(statistics_csv([("a", [5])]).replace("100.0", "-nan").replace(",5", ",0"))
    table = read_rocprofv3(path).meta["stats"]["marker_api"]
    assert table["total_ns"].tolist() == [0]
    assert np.isnan(table["percent"].iloc[0])
