"""The reader of the first rocprof against a real recording with known figures, and against written
outputs.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tidyprof import Origin
from tidyprof.readers.rocprof_v1.reader import read_rocprof_v1
from tidyprof_tests.damage import refusal

RECORDING = "rocprofv1-mi210-torch-add"
SUBJECTS = {
    "stats": "kernel",
    "hip_stats": "hip_api",
    "hsa_stats": "hsa_api",
    "copy_stats": "memory_copy",
}
STATISTICS = [
    "HIP_trace/results.copy_stats.csv",
    "HIP_trace/results.hip_stats.csv",
    "HIP_trace/results.stats.csv",
    "HSA_trace/results.copy_stats.csv",
    "HSA_trace/results.hsa_stats.csv",
    "HSA_trace/results.stats.csv",
]
START_NS = 773_902_396_463_126


@pytest.fixture(scope="session")
def folder(recordings: Path) -> Path:
    return recordings / RECORDING


@pytest.fixture(scope="session")
def entry(manifest: dict[str, dict]) -> dict:
    return manifest[RECORDING]


# The recording


def test_table_of_kernels(folder, entry):
    profile = read_rocprof_v1(folder / "HSA_trace" / "results.csv")
    expected = entry["truth"]["HSA_trace/results.csv"]
    (event,) = profile.events.to_dict("records")
    assert (event["name"], event["duration_ns"]) == (expected["kernel"], expected["duration_ns"])
    with (folder / "HSA_trace" / "results.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    for column, name in {
        "device": "gpu-id",
        "queue": "queue-id",
        "process": "pid",
        "launch_thread": "tid",
        "start_ns": "BeginNs",
        "launch_ns": "DispatchNs",
        "lds_bytes": "lds",
        "scratch_bytes": "scr",
        "vgprs": "arch_vgpr",
        "accum_vgprs": "accum_vgpr",
        "sgprs": "sgpr",
        "dispatch_id": "Index",
    }.items():
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


def test_published_figures(folder, entry):
    (name,) = (name for name in entry["published_figures"] if name != "source")
    published = entry["published_figures"][name]
    row = read_rocprof_v1(folder / "HIP_trace").meta["stats"]["hip_api"].set_index("name").loc[name]
    assert row["calls"] == published["Calls"]
    assert row["total_ns"] == published["TotalDurationNs"]
    assert row["percent"] == pytest.approx(published["Percentage"], rel=1e-12)


def test_meta_of_a_folder(folder):
    origin = Origin("recorded", "blog")
    meta = read_rocprof_v1(folder / "HSA_trace", origin=origin).meta
    assert meta["origin"] is origin
    assert sorted(meta["stats"]) == ["hsa_api", "kernel", "memory_copy"]
    assert len(meta["files"]) == 4
    assert not meta["warnings"]


# Written outputs


KERNELS_HEADER = (
    "Index,KernelName,gpu-id,queue-id,queue-index,pid,tid,grd,wgr,lds,scr,arch_vgpr,accum_vgpr,"
    "sgpr,wave_size,sig,obj,DispatchNs,BeginNs,EndNs,CompleteNs,DurationNs"
)


def kernel_row(name: str, start: int, duration: int, index: int) -> list:
    begin = START_NS + start
    return [
        index,
        name,
        2,
        0,
        0,
        7,
        8,
        2048,
        256,
        512,
        16,
        32,
        4,
        48,
        64,
        "0x0",
        "0x7f0d",
        begin - 50,
        begin,
        begin + duration,
        begin + duration + 9,
        duration,
    ]


def kernel_table(*rows: list, header: str = KERNELS_HEADER) -> str:
    lines = [
        ",".join(f'"{cell}"' if isinstance(cell, str) else str(cell) for cell in row)
        for row in rows
    ]
    return "\n".join([",".join(f'"{name}"' for name in header.split(",")), *lines]) + "\n"


def test_a_barrier_is_no_kernel(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text(
        kernel_table(kernel_row("<barrier packet>", 0, 5, 0), kernel_row("f", 100, 11, 1))
    )
    profile = read_rocprof_v1(path)
    assert profile.events["name"].tolist() == ["f"]
    assert profile.meta["not_kept"] == {"BARRIER": 1}


def test_counters(tmp_path):
    header = f"{KERNELS_HEADER},SQ_WAVES,TA_BUSY[0]"
    rows = [
        [*kernel_row("f<int, 2>", 100, 11, 0), 16, 0.25],
        [*kernel_row("g", 200, 12, 1), 8, None],
    ]
    (tmp_path / "results.csv").write_text(kernel_table(*rows, header=header))
    profile = read_rocprof_v1(tmp_path)
    found = {(c["dispatch_id"], c["name"]): c["value"] for c in profile.counters.to_dict("records")}
    assert found == {(0, "SQ_WAVES"): 16, (0, "TA_BUSY[0]"): 0.25, (1, "SQ_WAVES"): 8}
    first = profile.counters.iloc[0]
    assert (first["kernel"], first["work_items"], first["workgroup_size"]) == (
        "f<int, 2>",
        2048,
        256,
    )
    assert (first["time_ns"], first["duration_ns"], first["device"]) == (START_NS + 100, 11, 2)
    assert profile.events["name"].tolist() == ["f<int, 2>", "g"]


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
    "results.stats.csv": (
        b'"Name","Calls","TotalDurationNs","AverageNs","Percentage"\n"f",2,10,5,100.0\n'
    ),
}

BAD_CONTENT = {
    "another CSV": b"step,loss\n1,2\n",
    "a header only": KERNELS.split(b"\n")[0] + b"\n",
    "cut in the last row": KERNELS[:-25],
    "negative duration": KERNELS.replace(f"{START_NS + 111},".encode(), b"5,", 1),
    "time zero": KERNELS.replace(f"{START_NS + 100},".encode(), b"0,", 1),
    "a fraction": KERNELS.replace(f"{START_NS + 100},".encode(), b"1.5,", 1),
    "the same dispatch twice": KERNELS.replace(b'\n1,"g"', b'\n0,"g"'),
    "no times at all": b'"Index","KernelName","pid"\n0,"f",7\n',
}


@pytest.mark.parametrize("what", BAD_CONTENT)
def test_bad_content(tmp_path, what):
    content = BAD_CONTENT[what]
    path = tmp_path / "results.any"
    path.write_bytes(content)
    refusal(path, read_rocprof_v1)
