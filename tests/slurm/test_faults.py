"""What goes wrong in a workshop: nothing hangs, what was ready is kept, and the last line says what
happened.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidyprof
from proflab.training import training_run
from tests.conftest import require
from tests.slurm.cluster import SCRIPTS, Cluster, SubmittedJob

ENDLESS = "--precision float32 --batch-size 2 --num-workers 0 --max-steps 5000"
STEPS = 4000
WATCHED = (
    f"--precision float32 --batch-size 2 --num-workers 0 --max-steps {STEPS} --torch-profile"
    " --profile-wait 0 --profile-warmup 1 --profile-active 3 --profile-repeat 1000"
)
"""A trace every four steps, so that writing what is ready takes seconds."""


def processes_of(job: SubmittedJob, rank: int) -> list[int]:
    """The trainer's processes of one rank, by the environment that Slurm gave them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        ours = f"SLURM_JOB_ID={job.number}".encode() in variables
        trains = b"python" in words[0] and b"cifar_train" in words
        if ours and trains and f"SLURM_PROCID={rank}".encode() in variables:
            found.append(int(folder.name))
    return found


def test_a_killed_rank_ends_the_others_and_is_named(cluster: Cluster):
    job = cluster.submit("no_profiler", "--ntasks=2", "--nodes=1", TRAIN_OPTIONS=ENDLESS)
    job.training()
    for process in processes_of(job, 1):
        os.kill(process, signal.SIGKILL)
    assert job.exit_code() == 137
    assert "0: cifar_train: rank 0 stops because" in job.log
    assert re.search(r"srun: error: node\d: task 1: Killed", job.log)
    assert job.last_line.startswith(
        f"[no_profiler {job.number}] failed: a rank was killed, mostly for lack of memory"
    )


def test_a_cancelled_job_keeps_what_it_had(cluster: Cluster):
    job = cluster.submit("no_profiler", TRAIN_OPTIONS=ENDLESS)
    job.training()
    cluster.ask("scancel", str(job.number))
    job.until(
        lambda: "stopped by SIGTERM: time limit, scancel or requeue" in job.last_line,
        "the last line",
    )
    assert len(training_run(job.folder / "train").steps) > 0
    assert (job.folder / "exit_code").read_text() == "143\n"


def test_at_the_time_limit_trace_and_metrics_are_written(cluster: Cluster):
    """The warning is due three minutes before the end, so that a new limit brings it once the
    training has begun.
    """
    job = cluster.submit("no_profiler", "--time=600", TRAIN_OPTIONS=WATCHED)
    job.training()
    hours, minutes, _ = job.field("RunTime").split(":")
    limit = 3 + 60 * int(hours) + int(minutes)
    cluster.ask("scontrol", "update", f"JobId={job.number}", f"TimeLimit={limit}")
    job.until(lambda: "stopped by SIGTERM: time limit" in job.last_line, "the last line")
    run = training_run(job.folder / "train")
    assert 0 < len(run.steps) < STEPS
    traces = job.files("trace_rank0_of_1_cycle*.json.gz")
    assert len(traces) >= len(run.steps) // 4
    # The last one was cut short by the signal, and is whole all the same.
    for trace in traces[-2:]:
        assert set(tidyprof.read(trace).events["kind"]) >= {"operator", "annotation"}
    assert job.exit_code() == 143


def test_a_requeued_job_starts_in_a_folder_of_its_own(cluster: Cluster):
    job = cluster.submit("no_profiler", TRAIN_OPTIONS=ENDLESS)
    job.training()
    cluster.ask("scontrol", "requeue", str(job.number))
    again = job.folder.with_name(f"{job.folder.name}_restart1")
    job.until(
        lambda: again.is_dir() and job.log.count("5000 steps on cpu") == 2, "the second start"
    )
    assert len(training_run(job.folder / "train").steps) > 0
    # The log goes on where it was.
    assert job.log.count("stopped by SIGTERM: time limit, scancel or requeue") == 1
    cluster.ask("scancel", str(job.number))
    job.until(lambda: job.log.count("stopped by SIGTERM: time limit") == 2, "the second end")


def test_missing_data_is_one_line_before_anything_runs(cluster: Cluster, tmp_path: Path):
    job = cluster.submit("rocprofv3_kernels", DATA="cifar100", DATA_PATH=str(tmp_path))
    assert job.exit_code() == 2
    assert (
        job.last_line
        == f"[rocprofv3_kernels {job.number}] refused: CIFAR-100 is not in {tmp_path}; on the login"
        " node: scripts/slurm/download_data.sh, or set DATA=synthetic"
    )
    assert "+ srun" not in job.log


def test_the_login_node_says_when_data_cannot_be_fetched(cluster: Cluster, tmp_path: Path):
    address = (tmp_path / "missing.tar.gz").as_uri()
    done = cluster.run(SCRIPTS / "download_data.sh", CIFAR100_URL=address, DATA_PATH=str(tmp_path))
    assert done.returncode == 2
    assert address in done.stderr.splitlines()[-1]


def test_a_wrong_partition_is_refused_at_once(cluster: Cluster):
    done = cluster.run(SCRIPTS / "submit.sh", "no_profiler", SBATCH_PARTITION="mi999")
    assert done.returncode == 2
    assert "invalid partition specified: mi999" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("submit: Slurm took no job; its reason is above")


def test_an_unknown_job_script_is_refused(cluster: Cluster):
    done = cluster.run(SCRIPTS / "submit.sh", "rocprofv4")
    assert done.returncode == 2
    assert "there is no job script" in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True
    )
    require(mounted.returncode == 0, "the right to mount a file system of 2 MB")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_without_room_is_refused_before_the_profile(cluster: Cluster, small_disk: Path):
    job = cluster.submit("rocprofv3_kernels", RESULTS_DIR=str(small_disk))
    assert job.exit_code() == 2
    assert re.search(
        r"refused: .* has [012] MB free, less than FREE_MB=50; free some space", job.last_line
    )


def test_a_disk_that_fills_up_ends_the_job_with_one_line(cluster: Cluster, small_disk: Path):
    job = cluster.submit(
        "torch_profiler",
        f"--output={cluster.folder}/full_%j.out",
        RESULTS_DIR=str(small_disk),
        FREE_MB="1",
    )
    assert job.exit_code() != 0
    log = (cluster.folder / f"full_{job.number}.out").read_text()
    assert "Traceback" not in log
    assert re.search(r"error: .*(free some space|No space left)", log), log
    assert "failed: the line above says what to change (exit code 2)" in log.splitlines()[-1]


def test_two_jobs_on_one_node_at_once_keep_apart(cluster: Cluster):
    options = ("--ntasks=2", "--nodes=1", "--nodelist=node1", "--gpus-per-node=4")
    jobs = [
        cluster.submit("rocprofv3_kernels", *options, SMOKE_TEST_SECONDS="180") for _ in range(2)
    ]
    for job in jobs:
        assert job.exit_code() == 0, job.log
        # The ranks of each job have met each other, at a port of their own.
        assert "all-reduce over 2 ranks on cpu: they meet" in job.log
        assert len(job.files("rank*_kernel_stats.csv")) == 2
    starts, ends = ([job.field(name) for job in jobs] for name in ("StartTime", "EndTime"))
    assert max(starts) < min(ends), "they did not run at the same time"
