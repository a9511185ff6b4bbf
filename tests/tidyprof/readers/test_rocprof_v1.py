"""The reader of the first rocprof against a real recording with known figures, and against written outputs."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pandas as pd
import pytest

import tidyprof
from tests.tidyprof.damage import refusal
from tidyprof import Origin, ProfileReadError
from tidyprof.analyses import kernels
from tidyprof.readers.rocprof_v1.reader import read_rocprof_v1

RECORDING = "rocprofv1-mi210-torch-add"
SUBJECTS = {"stats": "kernel", "hip_stats": "hip_api", "hsa_stats": "hsa_api", "copy_stats": "memory_copy"}
STATISTICS = [
    "HIP_trace/results.copy_stats.csv",
    "HIP_trace/results.hip_stats.csv",
    "HIP_trace/results.stats.csv",
    "HSA_trace/results.copy_stats.csv",
    "HSA_trace/results.hsa_stats.csv",
    "HSA_trace/results.stats.csv",
]
START_NS = 773_902_396_463_126
API_COLUMNS = "BeginNs,EndNs,pid,tid,Name,args,Index,Data,__section,__lane,DurationNs"
OPERATION_COLUMNS = (
    "BeginNs,EndNs,dev-id,queue-id,Name,pid,tid,roctx-range,stream-id,Index,Data,__section,__lane,DurationNs"
)


@pytest.fixture(scope="session")
def folder(recordings: Path) -> Path:
    return recordings / RECORDING


@pytest.fixture(scope="session")
def entry(recordings: Path) -> dict:
    entries = json.loads((recordings / "manifest.json").read_text())
    return next(entry for entry in entries if entry["name"] == RECORDING)


def figures(events: pd.DataFrame) -> dict:
    """Rows, total and the name with the largest total, as the manifest has them."""
    if not len(events):
        return {"rows": 0}
    totals = events.groupby("name", observed=True)["duration_ns"].agg(["size", "sum"]).sort_values("sum")
    return {
        "rows": len(events),
        "total_ns": int(events["duration_ns"].sum()),
        "top": {"name": totals.index[-1], "calls": totals["size"].iloc[-1], "total_ns": totals["sum"].iloc[-1]},
    }


def table(profile: tidyprof.Profile, name: str) -> pd.DataFrame:
    return profile.events[profile.events["source_category"] == name]


# The recording


@pytest.mark.parametrize("source", ["results.db", "", "results"])
def test_every_form_of_the_trace(folder, entry, source):
    profile = read_rocprof_v1(folder / "HIP_trace" / source)
    expected = entry["truth"]["HIP_trace/results.db"]
    for name in ("COPY", "HIP", "OPS"):
        assert figures(table(profile, name)) == expected[name], name
    assert len(profile.events) == entry["truth"]["HIP_trace/results.json"]["X_events"]
    durations = profile.events.loc[profile.events["kind"] == "kernel", "duration_ns"].tolist()
    assert durations == entry["truth"]["HIP_trace/results.json"]["kernel_duration_ns"]


def test_table_of_kernels(folder, entry):
    profile = read_rocprof_v1(folder / "HSA_trace" / "results.csv")
    expected = entry["truth"]["HSA_trace/results.csv"]
    (event,) = profile.events.to_dict("records")
    assert (event["name"], event["duration_ns"]) == (expected["kernel"], expected["duration_ns"])
    with (folder / "HSA_trace" / "results.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    for column, name in {
        "device": "gpu-id", "queue": "queue-id", "process": "pid", "launch_thread": "tid", "start_ns": "BeginNs",
        "launch_ns": "DispatchNs", "lds_bytes": "lds", "scratch_bytes": "scr", "vgprs": "arch_vgpr",
        "accum_vgprs": "accum_vgpr", "sgprs": "sgpr", "dispatch_id": "Index",
    }.items():  # fmt: skip
        assert event[column] == int(row[name]), column
    assert (event["grid"], event["block"]) == ("[256]", "[256]")


@pytest.mark.parametrize("path", STATISTICS)
def test_statistics(folder, entry, path):
    expected = entry["truth"][path]
    meta = read_rocprof_v1(folder / path).meta
    ((subject, found),) = meta["stats"].items()
    assert subject == SUBJECTS[path.split(".")[1]]
    assert len(found) == expected["rows"]
    assert found["calls"].sum() == expected["calls"]
    assert found["total_ns"].sum() == expected["total_ns"]
    assert found["name"].iloc[0] == expected["first_row"]
    assert found[["min_ns", "max_ns", "std_ns"]].isna().all(axis=None)
    assert "only statistics" in meta["warnings"][-1]


@pytest.mark.parametrize("source", ["results.hip_stats.csv", "results.db"])
def test_published_figures(folder, entry, source):
    (name,) = (name for name in entry["published_figures"] if name != "source")
    published = entry["published_figures"][name]
    profile = read_rocprof_v1(folder / "HIP_trace" / source)
    if "stats" in profile.meta:
        row = profile.meta["stats"]["hip_api"].set_index("name").loc[name]
    else:
        row = kernels(profile, include=["runtime"]).set_index("name").loc[name]
    assert row["calls"] == published["Calls"]
    assert row["total_ns"] == published["TotalDurationNs"]
    assert row["percent"] == pytest.approx(published["Percentage"], rel=1e-12)


def test_every_file_is_recognised(folder):
    for name in [*STATISTICS, "HIP_trace/results.db", "HSA_trace/results.csv", "HIP_trace"]:
        assert tidyprof.read(folder / name).meta["tool"] == "rocprof"


def test_copies_know_their_call_and_size(folder):
    copies = table(read_rocprof_v1(folder / "HIP_trace" / "results.db"), "COPY")
    with closing(sqlite3.connect(folder / "HIP_trace" / "results.db")) as database:
        calls = dict(database.execute('SELECT "Index", BeginNs FROM HIP'))
    assert copies["launch_ns"].tolist() == [calls[number] for number in copies["correlation_id"]]
    assert copies["bytes"].tolist() == [24, 24, 8, 8, 8, 24]
    assert set(copies["kind"]) == {"copy"}


def test_meta_of_a_folder(folder):
    origin = Origin("recorded", "blog")
    meta = read_rocprof_v1(folder / "HIP_trace", origin=origin).meta
    assert meta["origin"] is origin
    assert meta["gpu"] == "AMD Instinct MI210"
    assert [agent["type"] for agent in meta["agents"]] == ["CPU"] * 2 + ["GPU"] * 8
    assert meta["agents"][2] == {
        "name": "gfx90a", "product_name": "AMD Instinct MI210", "type": "GPU", "node_id": 2, "cu_count": 104,
    }  # fmt: skip
    assert sorted(meta["stats"]) == ["hip_api", "kernel", "memory_copy"]
    assert [Path(file).name for file in meta["ignored_files"]] == ["results.json"]
    assert len(meta["files"]) == 5
    assert meta["processes"] == [517]
    assert not meta["warnings"]


def test_json_is_recognised_and_refused_with_a_way_out(folder):
    assert "JSON of rocprof 1, which is not read" in refusal(folder / "HIP_trace" / "results.json", read_rocprof_v1)


# Written outputs


def write_database(path: Path, **tables: list[tuple]) -> Path:
    """A database like rocprof's: every table as (columns, rows), KERN always there."""
    columns = {"HIP": API_COLUMNS, "HSA": API_COLUMNS, "OPS": OPERATION_COLUMNS, "COPY": OPERATION_COLUMNS,
               "KERN": "Index,KernelName", "rocTX": "BeginNs,EndNs,pid,tid,Name,Index,__section,__lane"}  # fmt: skip
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as database:
        for name in dict.fromkeys([*tables, "KERN"]):
            rows = tables.get(name, [])
            header = rows[0] if rows and isinstance(rows[0], str) else columns[name]
            rows = [row for row in rows if not isinstance(row, str)]
            fields = [f'"{column}" {"TEXT" if "ame" in column else "INTEGER"}' for column in header.split(",")]
            database.execute(f"CREATE TABLE {name} ({', '.join(fields)})")
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(fields))})", rows)
        database.commit()
    return path


def call(name: str, start: int, duration: int, index: int, arguments: str = "", process: int = 7) -> tuple:
    begin = START_NS + start
    return (begin, begin + duration, process, process, name, arguments, index, "", 2, process, duration)


def operation(name: str, start: int, duration: int, index: int, process: int = 7, device: int = 2) -> tuple:
    begin = START_NS + start
    return (begin, begin + duration, device, 0, name, process, process, name, 1, index, "", 8, 1, duration)


KERNELS_HEADER = (
    "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgr,lds,scr,arch_vgpr,accum_vgpr,sgpr,wave_size,sig,obj,"
    "DispatchNs,BeginNs,EndNs,CompleteNs,DurationNs"
)


def kernel_row(name: str, start: int, duration: int, index: int) -> list:
    begin = START_NS + start
    return [
        index, name, 2, 0, 0, 7, 8, 2048, 256, 512, 16, 32, 4, 48, 64, "0x0", "0x7f0d", begin - 50, begin,
        begin + duration, begin + duration + 9, duration,
    ]  # fmt: skip


def kernel_table(*rows: list, header: str = KERNELS_HEADER) -> str:
    lines = [",".join(f'"{cell}"' if isinstance(cell, str) else str(cell) for cell in row) for row in rows]
    return "\n".join([",".join(f'"{name}"' for name in header.split(",")), *lines]) + "\n"


def test_kinds_of_operations(tmp_path):
    path = write_database(
        tmp_path / "results.db",
        HIP=[call("hipLaunchKernel", 0, 5, 1)],
        OPS=[
            operation("void f<int>(int*)", 100, 10, 1),
            operation("ncclDevKernel_Generic(args)", 200, 10, 2),
            operation('"<barrier packet>"', 300, 10, 3),
        ],
        COPY=[operation("CopyHostToDevice", 400, 10, 4), operation("FillBuffer", 500, 10, 5)],
        rocTX=[(START_NS, START_NS + 900, 7, 7, "step 1", 0, 0, 7)],
    )
    profile = read_rocprof_v1(path)
    assert dict(zip(profile.events["name"], profile.events["kind"], strict=True)) == {
        "hipLaunchKernel": "runtime",
        "step 1": "annotation",
        "void f<int>(int*)": "kernel",
        "ncclDevKernel_Generic(args)": "collective",
        "CopyHostToDevice": "copy",
        "FillBuffer": "fill",
    }
    assert profile.meta["not_kept"] == {"BARRIER": 1}


def test_kernels_are_not_counted_twice(tmp_path):
    dispatched = [KERNELS_HEADER, tuple(kernel_row('"f(int)"', 100, 11, 0))]
    both = write_database(tmp_path / "a.db", OPS=[operation("f", 101, 10, 1)], KERN=dispatched)
    assert read_rocprof_v1(both).events["duration_ns"].tolist() == [10]
    (event,) = read_rocprof_v1(write_database(tmp_path / "b.db", KERN=dispatched)).events.to_dict("records")
    assert (event["name"], event["duration_ns"], event["launch_ns"]) == ("f(int)", 11, START_NS + 50)


def test_hip_and_hsa_number_their_calls_each(tmp_path):
    path = write_database(
        tmp_path / "results.db",
        HIP=[call("hipLaunchKernel", 10, 5, 1, process=7), call("hipLaunchKernel", 20, 5, 1, process=8)],
        HSA=[call("hsa_amd_memory_async_copy", 30, 5, 1), call("hsa_signal_create", 1, 1, 2)],
        OPS=[operation("a", 100, 10, 1, process=7), operation("b", 200, 10, 1, process=8)],
        COPY=[operation("async-copy", 300, 10, 1), operation("CopyHostToDevice", 400, 10, 2)],
    )
    launched = read_rocprof_v1(path).device_events.set_index("name")["launch_ns"]
    assert launched["a"] == START_NS + 10
    assert launched["b"] == START_NS + 20
    assert launched["async-copy"] == START_NS + 30
    assert pd.isna(launched["CopyHostToDevice"])


def test_a_call_of_several_copies_does_not_give_its_size_away(tmp_path):
    arguments = "( dst(0x7f) src(0x74) sizeBytes(4096) kind(1) stream(1))"
    path = write_database(
        tmp_path / "results.db",
        HIP=[call("hipMemcpy", 0, 5, 1, arguments), call("hipMemcpy", 10, 5, 2, arguments)],
        COPY=[operation("CopyHostToDevice", 100 * place, 10, index) for place, index in enumerate((1, 1, 2), 1)],
    )
    profile = read_rocprof_v1(path)
    assert [None if pd.isna(size) else size for size in table(profile, "COPY")["bytes"]] == [None, None, 4096]
    assert table(profile, "HIP")["bytes"].tolist() == [4096, 4096]


def test_counters(tmp_path):
    header = f"{KERNELS_HEADER},SQ_WAVES,TA_BUSY[0]"
    rows = [[*kernel_row("f<int, 2>", 100, 11, 0), 16, 0.25], [*kernel_row("g", 200, 12, 1), 8, None]]
    (tmp_path / "results.csv").write_text(kernel_table(*rows, header=header))
    profile = read_rocprof_v1(tmp_path)
    found = {(c["dispatch_id"], c["name"]): c["value"] for c in profile.counters.to_dict("records")}
    assert found == {(0, "SQ_WAVES"): 16, (0, "TA_BUSY[0]"): 0.25, (1, "SQ_WAVES"): 8}
    first = profile.counters.iloc[0]
    assert (first["kernel"], first["work_items"], first["workgroup_size"]) == ("f<int, 2>", 2048, 256)
    assert (first["time_ns"], first["duration_ns"], first["device"]) == (START_NS + 100, 11, 2)
    assert profile.events["name"].tolist() == ["f<int, 2>", "g"]
    write_database(tmp_path / "results.db", OPS=[operation("f", 101, 10, 1)])
    both = read_rocprof_v1(tmp_path)
    assert (len(both.counters), both.events["name"].tolist()) == (3, ["f"])


def test_counters_without_times(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text('Index,KernelName,gpu-id,pid,tid,SQ_WAVES\n0,"f",2,7,8,16\n1,"g",2,7,8,32\n')
    profile = read_rocprof_v1(path)
    assert profile.counters["value"].tolist() == [16, 32]
    assert (profile.counters["time_ns"] == 0).all()
    assert len(profile.events) == 0
    assert "time_ns is 0" in profile.meta["warnings"][0]


# Bad input


KERNELS = kernel_table(kernel_row("f", 100, 11, 0), kernel_row("g", 200, 12, 1)).encode()
SEEDS = {
    "results.csv": KERNELS,
    "results.stats.csv": b'"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"f",2,10,5,100.0\n',
}

BAD_CONTENT = {
    "another CSV": (b"step,loss\n1,2\n", "no output of rocprof 1"),
    "a header only": (KERNELS.split(b"\n")[0] + b"\n", "a header without rows"),
    "cut in the last row": (KERNELS[:-25], "its last row ends early"),
    "negative duration": (KERNELS.replace(f"{START_NS + 111},".encode(), b"5,", 1), "1 with negative duration"),
    "time zero": (KERNELS.replace(f"{START_NS + 100},".encode(), b"0,", 1), "1 at time zero"),
    "a fraction": (KERNELS.replace(f"{START_NS + 100},".encode(), b"1.5,", 1), "'1.5' in the column 'BeginNs'"),
    "the same dispatch twice": (KERNELS.replace(b'\n1,"g"', b'\n0,"g"'), "1 with the dispatch id of another"),
    "no times at all": (b'"Index","KernelName","pid"\n0,"f",7\n', "no record of any kind"),
    "a database cut short": (None, "bytes are there"),
}


@pytest.mark.parametrize("what", BAD_CONTENT)
def test_bad_content(tmp_path, what):
    content, expected = BAD_CONTENT[what]
    if content is None:
        whole = write_database(tmp_path / "whole.db", HIP=[call("f", place, 1, place) for place in range(1, 999)])
        content = whole.read_bytes()[:-4096]
    path = tmp_path / "results.any"
    path.write_bytes(content)
    assert expected in refusal(path, read_rocprof_v1)


def test_bad_paths(tmp_path):
    with pytest.raises(ProfileReadError, match="no such file"):
        read_rocprof_v1(tmp_path / "results.db")
    with pytest.raises(ProfileReadError, match="0 files in the folder"):
        read_rocprof_v1(tmp_path)
    (tmp_path / "results.sysinfo.txt").write_text("CMD: rocminfo\n")
    with pytest.raises(ProfileReadError, match="1 files in the folder, none of them"):
        read_rocprof_v1(tmp_path)


def test_views_are_not_executed(tmp_path):
    path = write_database(tmp_path / "results.db", HIP=[call("f", 0, 5, 1)])
    with closing(sqlite3.connect(path)) as database:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n"
        database.execute(f"CREATE VIEW OPS AS {endless}")
        database.commit()
    assert read_rocprof_v1(path).events["name"].tolist() == ["f"]
