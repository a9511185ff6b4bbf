"""Many ranks: Open MPI and torchrun, containers, cores, and the test before a profile."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, require
from tests.slurm.cluster import RECORDS_ITSELF, SCRIPTS, Cluster, made_up
from tests.warm import PYTHON

IN_A_CONTAINER = 'while [ "$1" != image.sif ]; do shift; done; shift; exec "$@"'


def ranks_in(folder: Path) -> list[int]:
    """The ranks that wrote a table of kernels, each in a file of its own."""
    names = [path.name for path in (folder / "profile").glob("rank*_kernel_stats.csv")]
    return sorted(int(re.match(r"rank(\d+)_pid\d+_", name)[1]) for name in names)


@pytest.mark.parametrize(
    ("launcher", "ranks", "nodes"),
    [("srun", 2, 1), ("torchrun", 2, 2), ("mpirun", 2, 1)],
)
def test_each_launcher_starts_ranks_that_meet_and_write_their_own_files(
    cluster: Cluster, launcher: str, ranks: int, nodes: int
):
    require(shutil.which("mpirun") is not None, "Open MPI (apt-get install openmpi-bin)")
    options = (f"--ntasks={ranks}", f"--nodes={nodes}")
    site = {"LAUNCHER": launcher, "SMOKE_TEST_SECONDS": "180"}
    job = cluster.submit("rocprofv3_kernels", *options, **site)
    assert job.exit_code() == 0, job.log
    assert ranks_in(job.folder) == [*range(ranks)]


def test_open_mpi_needs_no_slurm(cluster: Cluster, tmp_path: Path):
    require(shutil.which("mpirun") is not None, "Open MPI (apt-get install openmpi-bin)")
    site = {
        "LAUNCHER": "mpirun",
        "NTASKS": "2",
        "RESULTS_DIR": str(tmp_path),
        "SMOKE_TEST_SECONDS": "0",
        "COURSE_DIR": str(REPOSITORY),
        "REPLAY_TOOLS": "yes",
        "DATA": "synthetic",
        "FREE_MB": "50",
        "TRAIN_OPTIONS": "--batch-size 4 --max-steps 3 --num-workers 0",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = cluster.run(SCRIPTS / "rocprofv3_kernels.sh", **site)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.iterdir()
    assert ranks_in(folder) == [0, 1]


def test_ranks_that_cannot_meet_cost_the_smoke_test_and_no_profile(
    cluster: Cluster, tmp_path: Path
):
    """Rank 1 is kept from starting, so rank 0 gives up after the given time."""
    python = f'[ "$SLURM_PROCID" != 1 ] || exec sleep 100\nexec {PYTHON} "$@"'
    site = {"VENV": str(made_up(tmp_path, python=python)), "SMOKE_TEST_SECONDS": "20"}
    job = cluster.submit("rocprofv3_kernels", "--ntasks=2", "--nodes=2", **site)
    assert job.exit_code() == 2
    assert not job.files("*.csv")


@pytest.mark.parametrize(
    ("runtime", "site", "given"),
    [
        ("apptainer", {}, "--rocm "),
        ("apptainer", {"CONTAINER_OPTIONS": ""}, ""),
        ("singularity", {"CONTAINER_OPTIONS": "--rocm\n --no-home"}, "--rocm --no-home "),
    ],
)
def test_a_container_gets_the_folders_and_the_command(
    cluster: Cluster, tmp_path: Path, runtime: str, site: dict[str, str], given: str
):
    venv = made_up(tmp_path, python=RECORDS_ITSELF, **{runtime: IN_A_CONTAINER})
    container = {"CONTAINER": "image.sif", "CONTAINER_RUNTIME": runtime, "VENV": str(venv)}
    options = {"TRAIN_OPTIONS": "--batch-size 4\n--max-steps 3"}
    job = cluster.submit("no_profiler", **container, **options, **site)
    assert job.exit_code() == 0, job.log
    mounts = f"{REPOSITORY}:{REPOSITORY},{job.folder}:{job.folder}"
    assert f" {runtime} exec {given}--bind {mounts}" in job.log
    assert "--batch-size 4 --max-steps 3" in job.log


def test_modules_may_be_on_lines_of_their_own():
    command = f"module() {{ echo $# $*; }}; source {SCRIPTS / 'setup.sh'}"
    site = {"MODULES": "rocm/7.2.4\nrccl-net-plugin", "COURSE_DIR": "."}
    done = subprocess.run(["bash", "-euc", command], env=site, capture_output=True, text=True)
    assert done.stdout.split() == ["3", "load", "rocm/7.2.4", "rccl-net-plugin"], done.stderr


@pytest.mark.parametrize(
    ("ranks", "nodes", "bound"), [(2, 1, True), (4, 2, True), (1, 1, False), (2, 2, False)]
)
def test_masks_take_the_place_of_cpus_per_task_where_each_rank_of_a_node_has_one(
    cluster: Cluster, tmp_path: Path, ranks: int, nodes: int, bound: bool
):
    venv = made_up(tmp_path, python=RECORDS_ITSELF)
    options = (f"--ntasks={ranks}", f"--nodes={nodes}")
    job = cluster.submit("no_profiler", *options, CPU_BIND="mask_cpu:fe,\nfe00", VENV=str(venv))
    assert job.exit_code() == 0, job.log
    (command,) = [line for line in job.log.splitlines() if "] + " in line]
    assert ("--cpu-bind=mask_cpu:fe,fe00" in command) == bound
    assert ("--cpus-per-task" in command) == (not bound)
    # Newer releases of srun would take --cpus-per-task from here.
    assert any(line.startswith("SLURM_CPUS_PER_TASK=") for line in job.recorded(0)) == (not bound)
