"""The rocprofv3 reader against real recordings with known figures, and what is special in its
files.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidyprof
from tidyprof import ProfileReadError
from tidyprof.readers.rocprofv3.reader import read_rocprofv3
from tidyprof_tests.readers.kit import samples
from tidyprof_tests.rocprofv3_writer import (
    START_NS,
    STATISTICS,
    Call,
    Kernel,
    rows_csv,
    small_run,
    write_results,
    write_small_run,
)

DOCS = "rocprofv3-csv-docs"
DECODE = "rocprofv3-csv-gfx1151-llamacpp-decode"
TAYLOR = "rocprofv3-lumi-taylor"
TRAINING = "rocprofv3-json-mi350x-torch-training"


@pytest.fixture(scope="session")
def truth(manifest: dict[str, dict]) -> dict[str, dict]:
    return {name: entry["truth"] for name, entry in manifest.items()}


# Recordings


def test_documented_files(recordings, truth):
    assert len(truth[DOCS]) > 15
    for name, expected in truth[DOCS].items():
        profile = tidyprof.read(recordings / DOCS / name)
        assert profile.meta["tool"] == "rocprofv3"
        if "calls" in expected:
            (rows,) = profile.meta["stats"].values()
            assert rows["calls"].sum() == expected["calls"]
            total = rows["total_ns"].sum()
        else:
            rows = profile.counters if len(profile.counters) else profile.events
            total = rows["duration_ns"].sum()
            assert profile.meta["repairs"] == {}
        assert (len(rows), int(total)) == (expected["rows"], expected.get("total_ns", 0)), name


KERNELS = {
    "name": "Kernel_Name",
    "start_ns": "Start_Timestamp",
    "dispatch_id": "Dispatch_Id",
}
COUNTERS = {"name": "Counter_Name", "value": "Counter_Value", "kernel": "Kernel_Name"}
COLUMNS = {
    f"{DECODE}/decode_kernel_trace.csv": KERNELS,
    f"{TAYLOR}/kernel_trace.csv": KERNELS,
    f"{DECODE}/decode_fetch_counter_collection.csv": COUNTERS,
    f"{DECODE}/decode_stall_counter_collection.csv": COUNTERS,
    f"{DOCS}/memory_allocation_trace.csv": {"bytes": "Allocation_Size", "name": "Operation"},
    f"{DOCS}/pc_sampling_stochastic_debug.csv": {
        "name": "Instruction",
        "source_line": "Instruction_Comment",
        "exec_mask": "Exec_Mask",
        "stall_reason": "Stall_Reason",
        "wave_count": "Wave_Count",
        "dispatch_id": "Dispatch_Id",
    },
}


@pytest.mark.parametrize("file", COLUMNS)
def test_columns_of_a_recording(recordings, file):
    raw = pd.read_csv(recordings / file)
    start = next(name for name in ("Start_Timestamp", "Sample_Timestamp") if name in raw)
    raw = raw.sort_values(start, kind="stable")
    profile = read_rocprofv3(recordings / file)
    table = profile.events if len(profile.events) else profile.counters
    for column, name in COLUMNS[file].items():
        assert table[column].tolist() == raw[name].tolist(), column
    lasted = raw["End_Timestamp"] - raw[start] if "End_Timestamp" in raw else 0 * raw[start]
    assert table["duration_ns"].tolist() == lasted.tolist()


def test_decode_kernels_find_their_launches(recordings):
    folder = recordings / DECODE
    profile = read_rocprofv3(folder)
    with (folder / "decode_hip_api_trace.csv").open(newline="") as file:
        calls = {row["Correlation_Id"]: row for row in csv.DictReader(file)}
    events = profile.events
    dispatched = events[events["source_category"] == "KERNEL_DISPATCH"]
    expected = [calls.get(str(identifier)) for identifier in dispatched["correlation_id"]]
    launched = [int(row["Start_Timestamp"]) if row else None for row in expected]
    assert [None if pd.isna(time) else time for time in dispatched["launch_ns"]] == launched
    assert (events["start_ns"] >= events["launch_ns"])[events["launch_ns"].notna()].all()


def test_training_json(recordings, truth):
    expected = truth[TRAINING]
    profile = read_rocprofv3(recordings / TRAINING / "908_results.json.gz")
    events = profile.events
    assert len(events) == expected["kernel_dispatches"]
    assert events["duration_ns"].sum() == expected["kernel_total_ns"]
    assert events["name"].nunique() == expected["distinct_kernel_names"]
    assert events[["queue", "stream", "device"]].nunique().tolist() == [
        expected[key] for key in ("queues", "streams", "agents_with_dispatches")
    ]
    start, end = profile.meta["record_window_ns"]
    assert end - start == expected["process_lifetime_ns"]
    assert [agent["type"] for agent in profile.meta["agents"]].count("GPU") == 8


def test_files_of_several_runs_are_not_one_run(recordings):
    with pytest.raises(ProfileReadError, match=r"\b9 different .*\b15 and 57\b"):
        read_rocprofv3(recordings / DOCS)


def test_memory_calls_and_samples_are_no_device_events(recordings):
    events = read_rocprofv3(recordings / DOCS / "memory_allocation_trace.csv").events
    assert set(events["kind"]) == {"runtime"}
    assert events["device"].isna().all()
    assert events["memory_device"].dropna().tolist() == [0, 0]
    events = read_rocprofv3(recordings / DOCS / "pc_sampling_stochastic_debug.csv").events
    assert set(events["kind"]) == {"sample"}
    assert set(events["source_category"]) == {"PC_SAMPLING_STOCHASTIC"}


# Special contents


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters='\r\n"'), max_size=12),
        min_size=1,
        max_size=5,
    )
)
def test_any_names_are_kept(tmp_path_factory, names):
    path = tmp_path_factory.getbasetemp() / "names_marker_api_trace.csv"
    calls = [Call(text, i, 1, i, domain="MARKER_CORE_API") for i, text in enumerate(names)]
    path.write_bytes(rows_csv(calls).encode())
    assert read_rocprofv3(path).events["name"].tolist() == names


def test_odd_names_in_a_kernel_trace(tmp_path):
    # --kernel-rename puts the user's texts in the place of kernel names.
    path = tmp_path / "kernel_trace.csv"
    for name, encoding, found in [
        ("two\nlines", "utf-8", "two\nlines"),
        ("a§", "latin-1", "a\ufffd"),
        ('5" pipe', "utf-8", None),
    ]:
        path.write_bytes(rows_csv([Kernel(name, i, 1, i) for i in range(1, 5)]).encode(encoding))
        if found:
            assert read_rocprofv3(path).events["name"].tolist() == [found] * 4
            continue
        with pytest.raises(ProfileReadError, match="--kernel-rename"):
            read_rocprofv3(path)


def test_few_bad_rows_are_left_out_and_counted(tmp_path):
    path = tmp_path / "1_kernel_trace.csv"
    good = [Kernel("k", 100 * place, 50, place) for place in range(1, 301)]
    bad = [Kernel("k", 5, -1, 400), Kernel("k", -START_NS, 0, 401), Kernel("k", 7, 1, 1)]
    path.write_text(rows_csv([*good, *bad]))
    profile = read_rocprofv3(path)
    assert len(profile.events) == 300
    assert profile.meta["repairs"] == {
        "dropped events with negative duration": 1,
        "dropped events at time zero": 1,
        "dropped events with a repeated dispatch ID": 1,
    }


def test_the_last_row_without_an_end_is_doubtful(tmp_path):
    content = samples()["rocprofv3_csv-kernel_trace"].content
    (tmp_path / "1_kernel_trace.csv").write_bytes(content[:-1])
    (warning,) = read_rocprofv3(tmp_path).meta["warnings"]
    assert "doesn't end with a newline" in warning


def test_counters_without_times(tmp_path):
    profile = read_rocprofv3(samples()["rocprofv3_csv-counters_without_times"].write(tmp_path))
    assert "time_ns is 0" in profile.meta["warnings"][0]


# Processes


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
        path.write_text(rows_csv([Kernel(prefix, 10 * place, 100, 1)]))
    profile = read_rocprofv3(tmp_path)
    events = profile.events.astype({"rank": object, "process": object}).replace({pd.NA: None})
    found = zip(events["name"], zip(events["rank"], events["process"], strict=True), strict=True)
    assert dict(found) == names
    assert profile.meta["ranks"] == [0, 1, 2]
    assert set(read_rocprofv3(tmp_path, rank=2).events["name"]) == {"rank2/node3/44"}


def test_launches_are_found_within_a_process_only(tmp_path):
    write_small_run(tmp_path)
    other = rows_csv([Kernel("other", 9_000, 1, 1, correlation=2)])
    (tmp_path / "301_kernel_trace.csv").write_text(other)
    events = read_rocprofv3(tmp_path).events.set_index("name")
    assert events["launch_ns"].notna().sum() == 4
    assert pd.isna(events.loc["other", "launch_ns"])
    assert events.loc["other", "process"] == 301


def test_json_takes_the_place_of_csv(tmp_path):
    write_small_run(tmp_path)
    (tmp_path / "300_kernel_stats.csv").write_text(STATISTICS)
    write_results(tmp_path / "300_results.json", *small_run())
    profile = read_rocprofv3(tmp_path)
    assert len(profile.events) == 10
    assert len(profile.meta["ignored_files"]) == 4
    assert profile.meta["stats"]["kernel"]["calls"].tolist() == [3, 1]
    read = sorted(Path(file).name for file in profile.meta["files"])
    assert read == ["300_kernel_stats.csv", "300_results.json"]


# Statistics


def test_statistics_have_one_set_of_columns(tmp_path):
    (tmp_path / "rank1").mkdir()
    for place in ("", "rank1/"):
        (tmp_path / f"{place}9_kernel_stats.csv").write_text(STATISTICS)
    profile = read_rocprofv3(tmp_path)
    assert len(profile.events) == 0
    (table,) = profile.meta["stats"].values()
    assert table["rank"].isna().tolist() == [True, True, False, False]
    row = table.iloc[2].to_dict()
    names = "rank process name calls total_ns mean_ns min_ns max_ns std_ns percent"
    assert row == dict(
        zip(names.split(), [1, 9, "b, with a comma", 3, 21, 7, 5, 9, 2, 17.5], strict=True)
    )


def test_statistics_of_instants(tmp_path):
    path = tmp_path / "marker_api_stats.csv"
    path.write_text(f'{STATISTICS}"c",1,0,0.0,-nan,0,0,0.0\n')
    table = read_rocprofv3(path).meta["stats"]["marker_api"]
    assert table["total_ns"].tolist() == [21, 99, 0]
    assert np.isnan(table["percent"].iloc[2])
