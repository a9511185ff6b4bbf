"""Slurm jobs from a notebook, against made-up Slurm commands; tests/slurm has a real Slurm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import proflab.jobs as jobs
from proflab.errors import CourseError
from proflab.jobs import Job, job
from tests.conftest import REPOSITORY


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder of made-up Slurm commands at the front of PATH: slurm(squeue="echo RUNNING",
    ...).
    """
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
    folder.with_name(f"{folder.name}.out").write_text(
        f"some output\n[{folder.name}] the last line\n\n"
    )
    return folder


FORGOTTEN = {"squeue": "exit 1", "sacct": "exit 1", "scontrol": "exit 1"}


def test_without_slurm_it_says_so_and_gives_the_recording(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    submitted = job("rocprofv3_kernels", ranks=4, recording=tmp_path)
    assert submitted.state == "no Slurm"
    assert "No Slurm here: `rocprofv3_kernels` cannot be submitted" in capsys.readouterr().out
    assert submitted.result() == [tmp_path]
    assert "there is no Slurm here; what follows is from" in capsys.readouterr().out


def test_without_slurm_and_without_a_recording_the_result_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        CourseError, match="rpd: there is no Slurm here, and no recording was named"
    ):
        job("rpd").result()


def test_an_unknown_script_is_refused_with_the_nearest_name():
    with pytest.raises(
        CourseError, match=r"no job script 'rocprofv3_kernel': did you mean rocprofv3_kernels"
    ):
        job("rocprofv3_kernel")


def test_a_file_that_jobs_share_is_no_job_script():
    with pytest.raises(CourseError, match="no job script 'common'"):
        job("common")


def test_a_job_is_submitted_with_its_ranks_and_arguments(slurm, tmp_path):
    results = slurm(
        sbatch=f'echo "$@" >{tmp_path}/asked; echo "17;cluster"',
        scontrol=f"echo '   StdOut={tmp_path}/results/rocprofv3_kernels_17.out'",
        squeue="echo PENDING",
    )
    submitted = job("rocprofv3_kernels", "given", ranks=4, nodes=2, options=["--time=5"])
    assert (submitted.number, submitted.state) == (17, "waiting")
    assert submitted.folder == results / "rocprofv3_kernels_17"
    asked = (tmp_path / "asked").read_text().split()
    script = str(REPOSITORY / "scripts/slurm/rocprofv3_kernels.sh")
    assert asked == [
        "--parsable",
        f"--output={results}/%x_%j.out",
        "--ntasks=4",
        "--nodes=2",
        "--time=5",
        script,
        "given",
    ]


def test_slurms_own_reason_is_given_where_it_refuses(slurm):
    slurm(sbatch="echo 'sbatch: error: invalid partition specified: mi999' >&2; exit 1")
    with pytest.raises(
        CourseError,
        match="not submitted: sbatch: error: invalid partition specified: mi999; the site",
    ):
        job("rpd")


@pytest.mark.parametrize(
    ("squeue", "state"), [("PENDING", "waiting"), ("RUNNING", "running"), ("COMPLETING", "running")]
)
def test_states_in_the_queue(slurm, squeue, state, tmp_path):
    slurm(squeue=f"echo {squeue}")
    assert Job("rpd", 3, tmp_path / "rpd_3").state == state


@pytest.mark.parametrize(("code", "state"), [(0, "done"), (2, "failed: [rpd_3] the last line")])
def test_the_jobs_own_exit_file_tells_how_it_ended(slurm, code, state):
    results = slurm(**FORGOTTEN)
    assert Job("rpd", 3, finished(results / "rpd_3", code)).state == state


@pytest.mark.parametrize(
    ("commands", "state"),
    [
        ({"sacct": "echo COMPLETED"}, "done"),
        ({"sacct": "echo 'CANCELLED by 1000'"}, "failed: CANCELLED"),
        ({"scontrol": "echo '   JobState=TIMEOUT Reason=TimeLimit'"}, "failed: TIMEOUT"),
        ({}, "unknown"),
    ],
)
def test_accounting_or_the_controller_answer_where_the_job_left_nothing(slurm, commands, state):
    results = slurm(**(FORGOTTEN | commands))
    assert Job("rpd", 3, results / "rpd_3").state == state


def test_the_result_is_the_recording_until_the_job_is_done(slurm, tmp_path, capsys):
    results = slurm(**(FORGOTTEN | {"squeue": "echo RUNNING"}))
    folder = finished(results / "rpd_3", 0)
    live = folder / "profile" / "rank0_pid7.rpd"
    live.touch()
    submitted = Job("rpd", 3, folder, recording=tmp_path / "recorded.rpd")
    assert submitted.result() == [tmp_path / "recorded.rpd"]
    assert "job 3 is running; what follows is from `recorded.rpd`" in capsys.readouterr().out
    slurm(squeue="exit 1")
    assert submitted.wait(1).result() == [live]
    assert "Job 3 is done" in capsys.readouterr().out


def test_a_done_job_without_files_falls_back_and_says_so(slurm, tmp_path, capsys):
    results = slurm(**FORGOTTEN)
    assert Job("rpd", 3, finished(results / "rpd_3", 0), recording=tmp_path).result() == [tmp_path]
    assert "job 3 is done, but without files that a reader knows" in capsys.readouterr().out


def test_a_requeued_job_is_judged_by_its_last_start(slurm):
    results = slurm(**FORGOTTEN)
    first = finished(results / "rpd_3", 143)
    for start in (2, 10):
        finished(results / f"rpd_3_restart{start}", 0 if start == 10 else 1)
    (results / "rpd_3_restart10" / "profile" / "rank0_pid7.rpd").touch()
    submitted = Job("rpd", 3, first)
    assert submitted.state == "done"
    assert submitted.result() == [results / "rpd_3_restart10" / "profile" / "rank0_pid7.rpd"]


@pytest.mark.parametrize(
    ("written", "readable"),
    [
        (
            ["profile/rank0_pid1.rpd", "profile/rank1_pid2.rpd"],
            ["profile/rank0_pid1.rpd", "profile/rank1_pid2.rpd"],
        ),
        (["profile/rank0_pid1_kernel_trace.csv", "train/metrics_rank0_of_1.jsonl"], ["profile"]),
        (["workloads/cifar_train/MI300X_A1/sysinfo.csv"], ["workloads/cifar_train/MI300X_A1"]),
        (
            ["train/trace_rank0_of_1.json.gz", "train/config.json"],
            ["train/trace_rank0_of_1.json.gz"],
        ),
        (["train/metrics_rank0_of_1.jsonl"], ["train"]),
        (["rocprof-sys.cfg"], []),
    ],
)
def test_what_a_reader_takes_of_a_jobs_folder(tmp_path, written, readable):
    for name in written:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert jobs.readable_paths(tmp_path) == [tmp_path / name for name in readable]


def test_waiting_ends_at_its_limit(slurm, tmp_path):
    slurm(squeue="echo PENDING")
    assert Job("rpd", 3, tmp_path / "rpd_3").wait(0.05).state == "waiting"
