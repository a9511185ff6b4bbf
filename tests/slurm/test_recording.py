"""What record_all makes of results: only what was measured, entered where a modelled recording
stood.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tidyprof
from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "scripts" / "slurm" / "collect_recordings.py"
STATISTICS = (
    '"Name","Calls","TotalDurationNs","AverageNs","Percentage","MinNs","MaxNs","StdDev"\n'
    '"add(float*)",2,800,400.0,100.0,400,400,0.0\n'
)
TRACE = (
    "Kind,Agent_Id,Queue_Id,Stream_Id,Thread_Id,Dispatch_Id,Kernel_Id,Kernel_Name,Correlation_Id,"
    "Start_Timestamp,End_Timestamp,LDS_Block_Size,Scratch_Size,VGPR_Count,Accum_VGPR_Count,"
    "SGPR_Count,Workgroup_Size_X,Workgroup_Size_Y,Workgroup_Size_Z,"
    "Grid_Size_X,Grid_Size_Y,Grid_Size_Z\n"
    '"KERNEL_DISPATCH","Agent 4",1,1,7,1,1,"add(float*)",1,1000,1400,0,0,8,0,16,64,1,1,1024,1,1\n'
    '"KERNEL_DISPATCH","Agent 4",1,1,7,2,1,"add(float*)",2,2000,2400,0,0,8,0,16,64,1,1,1024,1,1\n'
)


def make_job(folder: Path, *, code: str = "0", hip: str | None = "7.2.1") -> Path:
    """A finished rocprofv3_kernels job of one rank on a GPU."""
    (folder / "profile").mkdir(parents=True)
    (folder / "train").mkdir()
    (folder / "exit_code").write_text(f"{code}\n")
    (folder / "profile" / "rank0_pid7_kernel_stats.csv").write_text(STATISTICS)
    (folder / "profile" / "rank0_pid7_kernel_trace.csv").write_text(TRACE)
    run = {
        "record": "run",
        "config": {"model": "resnet", "precision": "automixed", "batch_size": 256},
        "launch": {"world_size": 1},
        "device": "AMD Instinct MI300X",
        "host": "node17",
        "written": "2026-03-04T10:00:00+00:00",
        "planned_steps": 20,
        "versions": {"torch": "2.9.0", "hip": hip},
    }
    (folder / "train" / "metrics_rank0_of_1.jsonl").write_text(json.dumps(run) + "\n")
    return folder


def collect(results: Path, recordings: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(SCRIPT),
        str(results),
        str(recordings),
        "--copyright",
        "Copyright (c) 2026 Somebody",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of results and of recordings, whose manifest holds a modelled recording between two
    others.
    """
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    names = ("first", "modelled-resnet", "last")
    (recordings / "manifest.json").write_text(
        json.dumps([{"name": name, "notes": "Modelled."} for name in names])
    )
    (recordings / "modelled-resnet").mkdir()
    return tmp_path / "results", recordings


def test_a_measured_run_is_entered_with_day_and_checksums(places):
    results, recordings = places
    make_job(results / "rocprofv3_kernels_17")
    done = collect(results, recordings)
    assert done.returncode == 0, done.stderr
    entries = json.loads((recordings / "manifest.json").read_text())
    assert [entry["name"] for entry in entries] == [
        "first",
        "modelled-resnet",
        "last",
        "measured-amd-instinct-mi300x-resnet",
    ]
    entry = entries[-1]
    assert (entry["gpu"], entry["rocm"], entry["origin"]) == (
        "AMD Instinct MI300X",
        "HIP 7.2.1",
        "recorded",
    )
    assert entry["copyright"] == "Copyright (c) 2026 Somebody"
    for file in entry["files"]:
        content = (recordings / file["path"]).read_bytes()
        assert (file["bytes"], file["sha256"]) == (
            len(content),
            hashlib.sha256(content).hexdigest(),
        )
    assert (
        len(tidyprof.read(recordings / "measured-amd-instinct-mi300x-resnet" / "rocprofv3").events)
        == 2
    )


DAMAGE = {
    "player": lambda job: (job / "profile" / "modelled.json").touch(),
    "failed": lambda job: (job / "exit_code").write_text("137\n"),
    "not ended": lambda job: (job / "exit_code").unlink(),
    "no metrics": lambda job: (job / "train" / "metrics_rank0_of_1.jsonl").unlink(),
    "no kernel": lambda job: (job / "profile" / "rank0_pid7_kernel_trace.csv").write_text("x\n"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_was_not_measured_is_left_out(places, damage):
    results, recordings = places
    before = json.loads((recordings / "manifest.json").read_text())
    DAMAGE[damage](make_job(results / "rocprofv3_kernels_17"))
    assert collect(results, recordings).returncode == 2
    assert json.loads((recordings / "manifest.json").read_text()) == before


def test_a_run_without_rocm_is_left_out(places):
    results, recordings = places
    make_job(results / "rocprofv3_kernels_17", hip=None)
    assert collect(results, recordings).returncode == 2
