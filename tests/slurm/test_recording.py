"""What record_all makes of results: only what was measured."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tidyprof
from tests.slurm.cluster import SCRIPTS

TRACE = """"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id","Kernel_Id",\
"Kernel_Name","Correlation_Id","Start_Timestamp","End_Timestamp","LDS_Block_Size","Scratch_Size",\
"VGPR_Count","Accum_VGPR_Count","SGPR_Count","Workgroup_Size_X","Workgroup_Size_Y",\
"Workgroup_Size_Z","Grid_Size_X","Grid_Size_Y","Grid_Size_Z"
"KERNEL_DISPATCH","Agent 4",1,1,7,1,1,"add(float*)",1,1000,1400,0,0,8,0,16,64,1,1,1024,1,1
"""
TABLE, METRICS = "profile/rank0_pid7_kernel_trace.csv", "train/metrics_rank0_of_1.jsonl"
NAME = "measured-amd-instinct-mi300x-resnet"
RUN = {
    "record": "run",
    "config": {"model": "resnet", "precision": "automixed", "batch_size": 256},
    "launch": {"world_size": 1},
    "device": "AMD Instinct MI300X",
    "host": "node17",
    "written": "2026-03-04T10:00:00+00:00",
    "planned_steps": 20,
    "versions": {"torch": "2.9.0", "hip": "7.2.1"},
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A finished rocprofv3_kernels job of one rank on a GPU, beside a folder of recordings."""
    folder = tmp_path / "results" / "rocprofv3_kernels_17"
    files = {TABLE: TRACE, METRICS: json.dumps(RUN) + "\n", "exit_code": "0\n"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (tmp_path / "recordings" / "modeled-resnet").mkdir(parents=True)
    known = [{"name": name, "notes": ""} for name in ("first", "modeled-resnet", "last")]
    (tmp_path / "recordings" / "manifest.json").write_text(json.dumps(known))
    return folder


def collect(job: Path) -> tuple[int, list[dict]]:
    """Exit code, and the entries of the manifest."""
    recordings = job.parents[1] / "recordings"
    command = [sys.executable, str(SCRIPTS / "collect_recordings.py"), str(job.parent)]
    command += [str(recordings), "--copyright", "Copyright (c) 2026 Somebody"]
    code = subprocess.run(command, check=False).returncode
    return code, json.loads((recordings / "manifest.json").read_text())


def test_a_measured_run_is_entered(job: Path):
    code, entries = collect(job)
    assert code == 0
    assert [entry["name"] for entry in entries] == ["first", "modeled-resnet", "last", NAME]
    recordings = job.parents[1] / "recordings"
    entry = entries[-1]
    assert (entry["gpu"], entry["rocm"], entry["origin"]) == (
        "AMD Instinct MI300X",
        "HIP 7.2.1",
        "recorded",
    )
    (file,) = entry["files"]
    content = (recordings / file["path"]).read_bytes()
    assert (file["bytes"], file["sha256"]) == (len(content), hashlib.sha256(content).hexdigest())
    assert len(tidyprof.read(recordings / NAME / "rocprofv3").events) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("profile/modelled.json", ""),
        ("exit_code", "137\n"),
        (METRICS, json.dumps(RUN | {"versions": {"torch": "2.9.0", "hip": None}}) + "\n"),
        (TABLE, "x\n"),
    ],
)
def test_what_was_not_measured_is_left_out(job: Path, name: str, text: str):
    (job / name).write_text(text)
    code, entries = collect(job)
    assert code == 2
    assert len(entries) == 3
