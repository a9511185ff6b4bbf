"""Which rank a process is, which device it gets, and what several ranks do together."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from cifar_train.ranks import Launch, discover, join, pick_device
from tests.conftest import REPOSITORY, require
from tidyprof.errors import UserError
from tidyprof_tests.patience import PATIENCE_S

MEETING = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
SLURM_JOB = {"SLURM_JOB_ID": "17", "SLURM_PROCID": "5"}
SLURM = SLURM_JOB | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
}
PALS = {"PALS_RANKID": "7", "PMI_SIZE": "12", "PALS_LOCAL_RANKID": "7"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, Launch()),
        ({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, Launch(0, 1, 0, "torchrun")),
        (SLURM_JOB, Launch()),
        (MEETING | TORCHRUN, Launch(3, 8, 1, "torchrun", "node1", 29500)),
        (MEETING | SLURM, Launch(5, 8, 1, "Slurm", "node1", 29500)),
        (MEETING | OPEN_MPI, Launch(1, 2, 1, "Open MPI", "node1", 29500)),
        (MEETING | PALS, Launch(7, 12, 7, "PALS", "node1", 29500)),
        (MEETING | SLURM | TORCHRUN, Launch(3, 8, 1, "torchrun", "node1", 29500)),
        (MEETING | SLURM | OPEN_MPI, Launch(1, 2, 1, "Open MPI", "node1", 29500)),
    ],
)
def test_each_launcher_is_known_by_its_variables(environment, expected):
    assert discover(environment) == expected


@pytest.mark.parametrize(
    "environment",
    [
        OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "job"},
        SLURM | {"SLURM_STEP_NUM_NODES": "1"},
    ],
)
def test_ranks_of_one_node_meet_there_at_a_port_of_their_job(environment):
    launch = discover(environment)
    assert launch.address == "127.0.0.1"
    assert 20_000 <= launch.port < 32_768
    assert launch.port == discover(environment).port


@pytest.mark.parametrize(
    "environment",
    [
        TORCHRUN,
        SLURM,
        {"WORLD_SIZE": "2"},
        MEETING | {"RANK": "0", "WORLD_SIZE": "2"},
        MEETING | OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "2"},
        MEETING | PALS | {"PMI_SIZE": "many"},
        MEETING | TORCHRUN | {"WORLD_SIZE": "1" + 30 * "0"},
        MEETING | TORCHRUN | {"MASTER_PORT": "65536"},
    ],
)
def test_missing_and_wrong_variables_are_refused_in_one_line(environment):
    with pytest.raises(UserError) as caught:
        discover(environment)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("visible", "local_rank", "expected"), [(8, 3, 3), (1, 3, 0), (1, 0, 0), (2, 1, 1)]
)
def test_device_is_local_rank_or_the_only_one(monkeypatch, visible, local_rank, expected):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: visible)
    assert pick_device("auto", Launch(local_rank=local_rank)).index == expected
    assert pick_device("cpu", Launch(local_rank=local_rank)).type == "cpu"


def test_a_rank_without_a_device_is_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(UserError):
        pick_device("auto", Launch(local_rank=3))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_gives_up_waiting_for_the_others(rank):
    import torch

    with pytest.raises(UserError):
        join(
            Launch(rank, 2, rank, "torchrun", "127.0.0.1", free_port()),
            torch.device("cpu"),
            seconds=1,
        )


TRAINER = ("-m", "tests.cifar_train.tiny_trainer", "--data", "synthetic", "--precision", "float32")
QUICK = ("-bs", "4", "--num-workers", "0", "--device", "cpu")


def records(folder: Path, rank: int) -> list[dict]:
    lines = (folder / f"metrics_rank{rank}_of_2.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("launcher", ["torchrun", "mpirun"])
def test_two_ranks_train_together_and_each_on_its_share(warm, launcher, tmp_path):
    if launcher == "torchrun":
        prefix = (warm, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    else:
        require(shutil.which("mpirun") is not None, "mpirun (Debian package openmpi-bin)")
        prefix = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", warm)
    options = ("-ms", "4", "--torch-profile", "--profile-all-ranks", "--run-dir", str(tmp_path))
    done = subprocess.run(
        [*prefix, *TRAINER, *QUICK, *options],
        cwd=REPOSITORY,
        # torchrun asks PYTHON_EXEC for the interpreter of its ranks.
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": warm},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names = {path.name for path in tmp_path.iterdir()}
    assert {f"trace_rank{rank}_of_2.json.gz" for rank in range(2)} <= names
    first, second = records(tmp_path, 0), records(tmp_path, 1)
    assert first[1]["loss"] != second[1]["loss"]
    assert [first[0]["launch"]["rank"], second[0]["launch"]["rank"]] == [0, 1]
    assert len(re.findall(r"^images/s ", done.stdout, re.M)) == 1


def test_sigterm_to_all_ranks_keeps_their_results(warm, tmp_path):
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    log = tmp_path / "log"
    ranks = []
    for rank in range(2):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
        command = [warm, *TRAINER, *QUICK, "-ms", "100000", "--run-dir", str(tmp_path / "run")]
        with log.open("a") as target:
            ranks.append(
                subprocess.Popen(
                    command,
                    cwd=REPOSITORY,
                    env=os.environ | meeting | own,
                    stdout=target,
                    stderr=target,
                )
            )
    try:
        limit = time.monotonic() + PATIENCE_S
        while not re.search(r"step \d+ of", log.read_text()):
            assert time.monotonic() < limit, log.read_text()
            time.sleep(0.1)
        for rank in ranks:
            rank.send_signal(signal.SIGTERM)
        codes = [rank.wait(timeout=PATIENCE_S) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert codes == [143, 143], log.read_text()
    for rank in range(2):
        assert records(tmp_path / "run", rank)[-1]["stopped_by"] == "SIGTERM"
