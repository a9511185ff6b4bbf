"""Launch environments, devices, and what happens when ranks cannot meet or die."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cifar_train.launch.process_group import ordinal
from cifar_train.launch.ranks import Launch, discover
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE_S
from tidyprof.errors import UserError

TRAINER, MORTAL_TRAINER = "tests.cifar_train.tiny_trainer", "tests.cifar_train.mortal_trainer"

MEETING = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Launch()),
        (
            MEETING | {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"},
            Launch(3, 8, 1, "torchrun", "node1", 29500),
        ),
        (
            MEETING | {"SLURM_PROCID": "5", "SLURM_NPROCS": "8", "SLURM_LOCALID": "1"},
            Launch(5, 8, 1, "Slurm", "node1", 29500),
        ),
        (
            MEETING
            | {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            },
            Launch(1, 2, 1, "Open MPI", "node1", 29500),
        ),
        (
            MEETING | {"PALS_RANKID": "7", "PMI_SIZE": "12", "PALS_LOCAL_RANKID": "7"},
            Launch(7, 12, 7, "PALS", "node1", 29500),
        ),
        # Inside a Slurm job mpirun and torchrun know better than the batch step's rank 0.
        (
            MEETING
            | {"SLURM_JOB_ID": "9", "SLURM_PROCID": "0", "SLURM_NPROCS": "4", "SLURM_LOCALID": "0"}
            | {
                "OMPI_COMM_WORLD_RANK": "2",
                "OMPI_COMM_WORLD_SIZE": "4",
                "OMPI_COMM_WORLD_LOCAL_RANK": "2",
            },
            Launch(2, 4, 2, "Open MPI", "node1", 29500),
        ),
        # The batch script of a 4-task job is not a task: alone, it would wait for three others for
        # ever.
        (
            {"SLURM_JOB_ID": "9", "SLURM_PROCID": "0", "SLURM_NPROCS": "4", "SLURM_LOCALID": "0"},
            Launch(),
        ),
        # A step with fewer tasks than its job: the step's number counts.
        (
            MEETING
            | {"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
            | {"SLURM_NPROCS": "8", "SLURM_STEP_NUM_TASKS": "2"},
            Launch(1, 2, 1, "Slurm", "node1", 29500),
        ),
        # One node: the meeting point is this host.
        (
            {"MASTER_PORT": "29500", "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
            | {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            Launch(0, 2, 0, "Open MPI", "127.0.0.1", 29500),
        ),
    ],
)
def test_launchers(environment, expected):
    assert discover(environment) == expected


def test_ranks_of_one_job_agree_on_a_port_and_jobs_differ():
    def port(job: str, rank: int) -> int | None:
        names = {
            "SLURM_JOB_ID": job,
            "SLURM_STEP_ID": "0",
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank),
        }
        return discover(names | {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "1"}).port

    assert port("17", 0) == port("17", 1)
    assert port("17", 0) != port("18", 0)
    assert all(20000 <= port(str(job), 0) < 32768 for job in range(2000)), (
        "the system gives the ports above away"
    )


@pytest.mark.parametrize(
    ("environment", "variable"),
    [
        ({"RANK": "0"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "RANK"),
        (MEETING | {"RANK": "0", "WORLD_SIZE": "2"}, "LOCAL_RANK"),
        (MEETING | {"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK=2"),
        (MEETING | {"RANK": "one", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "RANK"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}, "MASTER_ADDR"),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "node1"},
            "MASTER_PORT",
        ),
        (
            MEETING | {"MASTER_PORT": "high", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
            "MASTER_PORT",
        ),
        (
            MEETING | {"MASTER_PORT": "70000", "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
            "70000",
        ),
        ({"SLURM_PROCID": "0"}, "SLURM_NPROCS"),
        ({"SLURM_PROCID": "0", "SLURM_NPROCS": "2"}, "SLURM_LOCALID"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE"),
        ({"PALS_RANKID": "0"}, "PMI_SIZE"),
        (
            MEETING | {"RANK": "0", "WORLD_SIZE": "1" + 30 * "0", "LOCAL_RANK": "0"},
            "WORLD_SIZE must be",
        ),
    ],
)
def test_missing_and_wrong_variables_are_named(environment, variable):
    with pytest.raises(UserError, match=variable) as caught:
        discover(environment)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("visible", "rank", "local_rank", "expected"),
    [(8, 3, 3, 3), (4, 5, 1, 1), (1, 3, 3, 0), (1, 0, 0, 0), (2, 9, 1, 1)],
)
def test_device_is_local_rank_or_the_only_one(visible, rank, local_rank, expected):
    assert ordinal(visible, Launch(rank=rank, world_size=16, local_rank=local_rank)) == expected


def test_too_few_devices_name_the_visibility_variables():
    with pytest.raises(UserError, match="ROCR_VISIBLE_DEVICES"):
        ordinal(2, Launch(rank=3, world_size=4, local_rank=3))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TwoRanks:
    """Two trainer processes as a launcher would start them; `python` is their interpreter.

    `told` is the world size that each of them is told; `modules` are the programs that they run.
    """

    def __init__(
        self,
        python: str,
        folder: Path,
        *extra: str,
        steps: int = 3,
        told: Sequence[int] = (2, 2),
        modules: Sequence[str] = (TRAINER, TRAINER),
    ) -> None:
        self.port = free_port()
        self.python = python
        self.folder = folder
        self.options = [
            "--data",
            "synthetic",
            "--precision",
            "float32",
            "-bs",
            "4",
            "-ms",
            str(steps),
        ]
        self.options += ["--num-workers", "0", "--device", "cpu", "--run-dir", str(folder / "run")]
        self.options += ["--rendezvous-timeout", str(int(PATIENCE_S)), *extra]
        self.logs: list[Path] = []
        self.processes: list[subprocess.Popen] = []
        for world_size, module in zip(told, modules, strict=True):
            self.add(world_size, module)

    def add(self, world_size: int, module: str = TRAINER) -> None:
        """Start the next rank."""
        rank = str(len(self.processes))
        environment = os.environ | {
            "RANK": rank,
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": rank,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "OMP_NUM_THREADS": "1",
        }
        self.logs.append(self.folder / f"rank{rank}.log")
        with self.logs[-1].open("w") as log:
            command = [self.python, "-m", module, *self.options]
            self.processes.append(
                subprocess.Popen(command, env=environment, cwd=REPOSITORY, stdout=log, stderr=log)
            )

    def wait_for_steps(self) -> None:
        """Block until rank 0 says that steps are over, which takes the other rank's part in
        them.
        """
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(r"step \d+ of", self.logs[0].read_text()):
            assert time.monotonic() < deadline, self.logs[0].read_text()
            time.sleep(0.1)

    def finish(self) -> list[int]:
        """Exit codes; fails if a rank hangs."""
        return [process.wait(timeout=PATIENCE_S) for process in self.processes]

    def stop(self) -> None:
        """End what still runs, whatever the test has found."""
        for process in self.processes:
            process.kill()
            process.wait()

    def last_line(self, rank: int) -> str:
        return self.logs[rank].read_text().strip().splitlines()[-1]


@pytest.fixture
def two_ranks(warm: str, tmp_path: Path) -> Iterator[Callable[..., TwoRanks]]:
    """Start two ranks that write into the test's folder, and end them with the test."""
    jobs: list[TwoRanks] = []

    def start(*extra: str, **more: Any) -> TwoRanks:
        jobs.append(TwoRanks(warm, tmp_path, *extra, **more))
        return jobs[-1]

    yield start
    for job in jobs:
        job.stop()


def test_two_ranks_train_together_and_report_both(two_ranks, tmp_path):
    import json

    job = two_ranks("--json", "--check-gradients", "--torch-profile", "--profile-all-ranks")
    assert job.finish() == [0, 0], job.logs[0].read_text()
    result = json.loads(job.last_line(0))
    assert [rank["rank"] for rank in result["ranks"]] == [0, 1]
    names = {path.name for path in (tmp_path / "run").iterdir()}
    for rank in range(2):
        assert {f"trace_rank{rank}_of_2.json.gz", f"metrics_rank{rank}_of_2.jsonl"} <= names
    # Each rank trains on its own share of the images.
    assert result["ranks"][0]["first_loss"] != result["ranks"][1]["first_loss"]


@pytest.mark.parametrize("victim", [pytest.param(0, marks=pytest.mark.long), 1])
def test_a_killed_rank_takes_the_job_down(two_ranks, victim):
    job = two_ranks(steps=100_000)
    job.wait_for_steps()
    job.processes[victim].send_signal(signal.SIGKILL)
    codes = job.finish()
    assert codes[victim] == -signal.SIGKILL
    assert codes[1 - victim] == 1
    assert f"rank {1 - victim} stops because" in job.last_line(1 - victim)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_before_collectives_start_takes_the_job_down(two_ranks, victim):
    """Rank 0 takes the store with it, which is seen at once; of rank 1, only its silence tells."""
    modules = [TRAINER, TRAINER]
    modules[victim] = MORTAL_TRAINER
    patience = [] if victim == 0 else ["--rendezvous-timeout", "10"]
    job = two_ranks(*patience, modules=modules)
    codes = job.finish()
    assert codes[victim] == -signal.SIGKILL
    assert codes[1 - victim] in (1, 2)
    line = job.last_line(1 - victim)
    found = {
        0: "rank 0 is gone|the connection to rank 0 broke|could not connect to them",
        1: "rank 1 gave no sign of life|not there: rank 1",
    }
    assert re.search(found[victim], line)


@pytest.mark.parametrize("told", [(2, 3), (3, 2)])
def test_ranks_that_were_told_different_world_sizes_all_say_so(two_ranks, told):
    job = two_ranks(told=told)
    assert job.finish() == [2, 2]
    for rank in range(2):
        found = (
            f"different world sizes: rank 0 of {told[0]} ranks, rank 1 of {told[1]}; start all"
            " ranks with one"
        )
        assert found in job.last_line(rank)


def test_who_comes_when_all_are_there_is_sent_away(two_ranks):
    job = two_ranks(steps=100_000)
    job.wait_for_steps()
    job.add(world_size=3)
    assert job.processes[2].wait(timeout=PATIENCE_S) == 2
    assert "after all the others; rank 0 was told of 2 ranks" in job.last_line(2)
    assert [process.poll() for process in job.processes[:2]] == [None, None]


def test_the_message_of_a_failing_rank_reaches_the_other(two_ranks, tmp_path):
    blocked = tmp_path / "run"
    blocked.write_text("a file where the folder should be")
    job = two_ranks()
    assert 2 in job.finish()
    assert any("cannot be written" in job.last_line(rank) for rank in range(2))


def test_sigterm_on_both_ranks_keeps_their_results(two_ranks, tmp_path):
    job = two_ranks(steps=100_000)
    job.wait_for_steps()
    for process in job.processes:
        process.terminate()
    assert job.finish() == [143, 143]
    for rank in range(2):
        assert "stopped by SIGTERM" in job.last_line(rank)
        assert (tmp_path / "run" / f"metrics_rank{rank}_of_2.jsonl").stat().st_size > 0


@pytest.fixture
def run_alone(warm: str, tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    """Run one process of a job to its end: its exit code and what it says on standard error."""

    def run(**variables: str) -> tuple[int, list[str]]:
        command = [warm, "-m", "tests.cifar_train.tiny_trainer", "--rendezvous-timeout", "2"]
        command += ["--data", "synthetic", "--device", "cpu", "--run-dir", str(tmp_path / "run")]
        environment = os.environ | variables
        done = subprocess.run(
            command,
            env=environment,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return done.returncode, done.stderr.strip().splitlines()

    return run


def test_a_rank_that_waits_in_vain_says_how_many_came(run_alone):
    port = str(free_port())
    code, lines = run_alone(
        RANK="0", WORLD_SIZE="2", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=port
    )
    assert code == 2
    assert "1 of 2 ranks came; not there: rank 1" in lines[-1]
    assert port in lines[-1]


def test_a_rank_without_rank_zero_names_the_meeting_point(run_alone):
    port = str(free_port())
    code, lines = run_alone(
        RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=port
    )
    assert (code, len(lines)) == (2, 1)
    assert f"MASTER_PORT={port}" in lines[0]


def test_a_wrong_host_name_is_named(run_alone):
    code, lines = run_alone(
        RANK="1",
        WORLD_SIZE="2",
        LOCAL_RANK="1",
        MASTER_ADDR="no-such-host.invalid",
        MASTER_PORT="29500",
    )
    assert (code, len(lines)) == (2, 1)
    assert "MASTER_ADDR=no-such-host.invalid" in lines[0]
