"""What goes wrong in a workshop: nothing hangs, and what was ready is kept."""

from __future__ import annotations

import os
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


def trainer_of(job: SubmittedJob, rank: int) -> list[int]:
    """The trainer's processes of one rank, by the environment that Slurm gave them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended meanwhile
            continue
        own = {f"SLURM_JOB_ID={job.number}".encode(), f"SLURM_PROCID={rank}".encode()}
        if own <= set(variables) and b"python" in words[0] and b"cifar_train" in words:
            found.append(int(folder.name))
    return found


def test_a_killed_rank_ends_the_others(cluster: Cluster):
    job = cluster.submit("no_profiler", "--ntasks=2", "--nodes=1", TRAIN_OPTIONS=ENDLESS)
    job.training()
    for process in trainer_of(job, 1):
        os.kill(process, signal.SIGKILL)
    assert job.exit_code() == 137


def test_a_cancelled_job_keeps_what_it_had(cluster: Cluster):
    job = cluster.submit("no_profiler", TRAIN_OPTIONS=ENDLESS)
    job.training()
    cluster.ask("scancel", str(job.number))
    code = job.folder / "exit_code"
    job.until(code.exists, "the exit code")
    job.until(lambda: code.read_text() == "143\n", "the exit code")
    assert len(training_run(job.folder / "train").steps) > 0


def test_at_the_time_limit_trace_and_metrics_are_written(cluster: Cluster):
    """The warning is due three minutes before the end, so that a new limit brings it once the
    steps of the trace are over.
    """
    job = cluster.submit("no_profiler", "--time=600", TRAIN_OPTIONS=f"{ENDLESS} --torch-profile")
    job.until(lambda: bool(job.files("trace_rank0_of_1.json.gz")), "the trace")
    hours, minutes, _ = job.field("RunTime").split(":")
    limit = 3 + 60 * int(hours) + int(minutes)
    cluster.ask("scontrol", "update", f"JobId={job.number}", f"TimeLimit={limit}")
    assert job.exit_code() == 143
    assert 0 < len(training_run(job.folder / "train").steps) < 5000
    assert len(tidyprof.read(job.files("trace_rank0_of_1.json.gz")[0]).events)


def test_a_requeued_job_starts_in_a_folder_of_its_own(cluster: Cluster):
    job = cluster.submit("no_profiler", TRAIN_OPTIONS=ENDLESS)
    job.training()
    cluster.ask("scontrol", "requeue", str(job.number))
    again = job.folder.with_name(f"{job.folder.name}_restart1")
    job.until((again / "train" / "config.json").exists, "the second start")
    assert len(training_run(job.folder / "train").steps) > 0
    cluster.ask("scancel", str(job.number))
    job.until((again / "exit_code").exists, "the second end")


@pytest.mark.parametrize("arguments", [["no_profiler", "--partition=mi999"], ["rocprofv4"]])
def test_what_slurm_or_the_course_lacks_is_refused_at_once(cluster: Cluster, arguments: list[str]):
    assert cluster.run(SCRIPTS / "submit.sh", *arguments).returncode == 2


def test_the_login_node_says_when_data_cannot_be_fetched(cluster: Cluster, tmp_path: Path):
    site = {"CIFAR100_URL": "http://127.0.0.1:9/nothing", "DATA_PATH": str(tmp_path)}
    done = cluster.run(SCRIPTS / "download_data.sh", **site)
    assert done.returncode == 2
    assert site["CIFAR100_URL"] in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False)
    require(mounted.returncode == 0, "permission to mount a file system of 2 MB")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("free", ["50", "0"])
def test_a_full_disk_ends_the_job_with_2_before_or_while_it_runs(
    cluster: Cluster, small_disk: Path, free: str
):
    (small_disk / "others").write_bytes(bytes(1_800_000))
    log = f"--output={cluster.folder}/full_%j.out"
    site = {"RESULTS_DIR": str(small_disk), "FREE_MB": free}
    job = cluster.submit("torch_profiler", log, **site)
    assert job.exit_code() == 2
    assert "Traceback" not in (cluster.folder / f"full_{job.number}.out").read_text()


def test_two_jobs_on_one_node_at_once_keep_apart(cluster: Cluster):
    options = ("--ntasks=2", "--nodes=1", "--nodelist=node1", "--gpus-per-node=4")
    site = {"SMOKE_TEST_SECONDS": "180"}
    jobs = [cluster.submit("torch_profiler", *options, **site) for _ in range(2)]
    for job in jobs:
        assert job.exit_code() == 0, job.log
        assert len(job.files("trace_rank*.json.gz")) == 2
    starts, ends = ([job.field(name) for job in jobs] for name in ("StartTime", "EndTime"))
    assert max(starts) < min(ends), "they did not run at the same time"
