"""Slurm jobs from a notebook, against made-up Slurm commands; tests/slurm has a real Slurm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import proflab.jobs as jobs
from proflab.errors import CourseError
from proflab.jobs import Job, job, readable_paths
from tests.conftest import REPOSITORY

FORGOTTEN = {"squeue": "exit 1", "sacct": "exit 1"}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of made-up Slurm commands at the front of PATH: slurm(squeue="echo RUNNING")."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COURSE_DIR", str(REPOSITORY))
    monkeypatch.setenv("RESULTS_DIR", str(tmp_path / "results"))
    monkeypatch.setattr(jobs, "POLL_S", 0.01)

    def make(**commands: str) -> Path:
        for name, body in commands.items():
            (folder / name).write_text(f"#!/bin/sh\n{body}\n")
            (folder / name).chmod(0o755)
        return tmp_path / "results"

    return make


def finished(folder: Path, code: int) -> Path:
    """A job's folder with the exit code that its script leaves behind, and a log."""
    (folder / "profile").mkdir(parents=True)
    (folder / "exit_code").write_text(f"{code}\n")
    folder.with_name(f"{folder.name}.out").write_text("some output\nthe last line\n\n")
    return folder


def test_without_slurm_the_recording_is_the_result(monkeypatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    submitted = job("rocprofv3_kernels", ranks=4, recording=tmp_path)
    assert (submitted.state, submitted.result()) == ("no Slurm", [tmp_path])
    with pytest.raises(CourseError):
        job("rpd").result()


@pytest.mark.parametrize("script", ["rocprofv3_kernel", "common"])
def test_what_is_no_job_script_is_refused(script: str):
    with pytest.raises(CourseError):
        job(script)


def test_a_job_is_submitted_with_its_ranks_and_arguments(slurm, tmp_path: Path):
    results = slurm(
        sbatch=f'echo "$@" >{tmp_path}/asked; echo "17;cluster"',
        scontrol=f"echo '   StdOut={tmp_path}/results/rocprofv3_kernels_17.out'",
        squeue="echo PENDING",
    )
    submitted = job("rocprofv3_kernels", "given", ranks=4, nodes=2, options=["--time=5"])
    assert (submitted.number, submitted.state) == (17, "waiting")
    assert submitted.folder == results / "rocprofv3_kernels_17"
    asked = (tmp_path / "asked").read_text().split()
    assert asked[-5:-2] == ["--ntasks=4", "--nodes=2", "--time=5"]
    assert asked[-1] == "given"
    slurm(sbatch="echo 'sbatch: error: invalid partition' >&2; exit 1")
    with pytest.raises(CourseError, match="invalid partition"):
        job("rpd")


@pytest.mark.parametrize(
    ("commands", "code", "state"),
    [
        ({"squeue": "echo PENDING"}, None, "waiting"),
        ({"squeue": "echo RUNNING"}, 0, "running"),
        ({"squeue": "echo COMPLETING"}, None, "running"),
        ({}, 0, "done"),
        ({}, 2, "failed: the last line"),
        ({"sacct": "echo COMPLETED"}, None, "done"),
        ({"sacct": "echo 'CANCELLED by 1000'"}, None, "failed: CANCELLED"),
        ({}, None, "unknown"),
    ],
)
def test_states(slurm, commands: dict[str, str], code: int | None, state: str):
    folder = slurm(**(FORGOTTEN | commands)) / "rpd_3"
    if code is not None:
        finished(folder, code)
    assert Job("rpd", 3, folder).state == state


def test_the_result_is_the_recording_until_the_job_is_done(slurm, tmp_path: Path):
    results = slurm(**(FORGOTTEN | {"squeue": "echo RUNNING"}))
    finished(results / "rpd_3", 143)
    folder = finished(results / "rpd_3_restart1", 0)
    live = folder / "profile" / "rank0_pid7.rpd"
    live.touch()
    submitted = Job("rpd", 3, results / "rpd_3", recording=tmp_path / "recorded.rpd")
    assert submitted.result() == [tmp_path / "recorded.rpd"]
    slurm(squeue="exit 1")
    assert submitted.wait(1).result() == [live]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["profile/b.rpd", "profile/a.rpd"], ["profile/a.rpd", "profile/b.rpd"]),
        (["profile/rank0.csv"], ["profile"]),
        (["workloads/x/MI300/sysinfo.csv", "profile/x"], ["workloads/x/MI300"]),
        ([], []),
    ],
)
def test_readable_paths(tmp_path: Path, files: list[str], found: list[str]):
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    assert readable_paths(tmp_path) == [tmp_path / path for path in found]
