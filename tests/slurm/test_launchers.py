"""Many ranks: names that never collide, Open MPI and torchrun, containers, and the test before a
profile.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

import tidyprof
from tests.conftest import REPOSITORY, require
from tests.slurm.cluster import RECORDS_ITSELF, SCRIPTS, Cluster, SubmittedJob, made_up
from tests.warm import PYTHON

FILES_OF_A_RANK = ("kernel_stats", "kernel_trace", "domain_stats", "agent_info")


def check_ranks(job: SubmittedJob, ranks: int) -> None:
    """The job succeeded, each rank wrote each file under its own name, and the reader tells the
    ranks apart.
    """
    assert job.exit_code() == 0, job.log
    names = [path.name for path in (job.folder / "profile").glob("*.csv")]
    for subject in FILES_OF_A_RANK:
        own = [
            re.match(r"rank(\d+)_pid(\d+)_", name)
            for name in names
            if name.endswith(f"_{subject}.csv")
        ]
        assert sorted(int(match[1]) for match in own) == list(range(ranks)), (subject, names)
        assert len({match[2] for match in own}) == ranks
    kernels = tidyprof.read(job.folder / "profile").events
    assert set(kernels["rank"].unique()) == set(range(ranks))


def test_two_ranks_on_one_node_write_two_sets_of_files(cluster: Cluster):
    check_ranks(cluster.submit("rocprofv3_kernels", "--ntasks=2"), 2)


def test_torchrun_starts_the_ranks_of_all_nodes(cluster: Cluster):
    ranks = 2
    job = cluster.submit(
        "rocprofv3_kernels",
        f"--ntasks={ranks}",
        "--nodes=2",
        LAUNCHER="torchrun",
        SMOKE_TEST_SECONDS="180",
    )
    check_ranks(job, ranks)
    assert f"all-reduce over {ranks} ranks on cpu: they meet" in job.log


def test_open_mpi_starts_the_ranks_of_a_job(cluster: Cluster):
    ranks = 2
    require(shutil.which("mpirun") is not None, "Open MPI (apt-get install openmpi-bin)")
    job = cluster.submit("mpi/rocprofv3_kernels", f"--ntasks={ranks}", SMOKE_TEST_SECONDS="180")
    check_ranks(job, ranks)
    assert f"all-reduce over {ranks} ranks on cpu: they meet" in job.log


def test_open_mpi_scripts_run_without_slurm(cluster: Cluster, tmp_path: Path):
    require(shutil.which("mpirun") is not None, "Open MPI (apt-get install openmpi-bin)")
    script = SCRIPTS / "mpi" / "rocprofv3_kernels.sh"
    variables = {
        "NTASKS": "2",
        "RESULTS_DIR": str(tmp_path),
        "SMOKE_TEST_SECONDS": "0",
        "COURSE_DIR": str(REPOSITORY),
    }
    settings = {"STANDINS": "yes", "DATA": "synthetic", "FREE_MB": "50"}
    options = {"TRAIN_OPTIONS": "--batch-size 4 --max-steps 3 --num-workers 0"}
    root = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMP_NUM_THREADS": "1",
    }
    done = cluster.run(script, **variables, **settings, **options, **root)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = tmp_path.iterdir()
    found = Counter(
        re.match(r"rank(\d)", path.name)[1]
        for path in (folder / "profile").glob("*_kernel_stats.csv")
    )
    assert found == {"0": 1, "1": 1}


def test_ranks_that_cannot_meet_cost_the_smoke_test_and_no_profile(
    cluster: Cluster, tmp_path: Path
):
    """Rank 1 is kept from starting; rank 0 gives up after the given time and says what to check."""
    site = tmp_path / "bin"
    site.mkdir()
    python = site / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$SLURM_PROCID" != 1 ] || exec sleep 100\nexec {PYTHON} "$@"\n'
    )
    python.chmod(0o755)
    job = cluster.submit(
        "rocprofv3_kernels", "--ntasks=2", "--nodes=2", VENV=str(tmp_path), SMOKE_TEST_SECONDS="20"
    )
    assert job.exit_code() == 2
    assert re.search(
        r"0: rank 0: no all-reduce within 20 s; check NCCL_SOCKET_IFNAME", job.log
    ) or re.search(r"0: rank 0: .*could not meet the other ranks", job.log)
    assert "refused: the ranks could not add a number within 20 s" in job.last_line
    assert "rocprofv3 --stats" not in job.log


@pytest.mark.parametrize("runtime", ["apptainer", "pyxis"])
def test_a_container_gets_the_folders_and_the_command(
    cluster: Cluster, tmp_path: Path, runtime: str
):
    """A made-up runtime shows what the real one would be given; pyxis's options are unknown to this
    Slurm.
    """
    site = tmp_path / "bin"
    site.mkdir()
    (site / "apptainer").write_text(
        '#!/bin/sh\nwhile [ "$1" != image.sif ]; do shift; done\nshift\nexec "$@"\n'
    )
    (site / "apptainer").chmod(0o755)
    (site / "python").write_text(f'#!/bin/sh\nexec {PYTHON} "$@"\n')
    (site / "python").chmod(0o755)
    job = cluster.submit(
        "rpd", CONTAINER="image.sif", CONTAINER_RUNTIME=runtime, VENV=str(tmp_path)
    )
    code = job.exit_code()
    mounts = f"{REPOSITORY}:{REPOSITORY},{job.folder}:{job.folder}"
    if runtime == "apptainer":
        assert code == 0, job.log
        assert f" apptainer exec --rocm --bind {mounts}" in job.log
        assert len(job.files("rank0_pid*.rpd")) == 1
    else:
        assert f" --container-image=image.sif --container-mounts={mounts}" in job.log
        assert f"--container-workdir={job.folder} bash -c" in job.log


@pytest.mark.parametrize(
    ("site", "given"),
    [
        ({}, "--rocm "),
        ({"CONTAINER_OPTIONS": ""}, ""),
        ({"CONTAINER_OPTIONS": "--rocm --no-home"}, "--rocm --no-home "),
    ],
    ids=["unset", "empty", "two"],
)
def test_a_site_chooses_the_options_of_its_container(
    cluster: Cluster, tmp_path: Path, site: dict[str, str], given: str
):
    runtime = 'while [ "$1" != image.sif ]; do shift; done; shift; exec "$@"'
    venv = made_up(tmp_path, python=RECORDS_ITSELF, singularity=runtime)
    job = cluster.submit(
        "no_profiler",
        CONTAINER="image.sif",
        CONTAINER_RUNTIME="singularity",
        VENV=str(venv),
        **site,
    )
    assert job.exit_code() == 0, job.log
    assert f" singularity exec {given}--bind " in job.log


@pytest.mark.parametrize(
    ("ranks", "nodes", "launcher", "bound"),
    [
        (2, 1, "srun", True),
        (4, 2, "srun", True),
        (1, 1, "srun", False),
        (2, 2, "srun", False),
        (2, 1, "torchrun", False),
    ],
)
def test_masks_take_the_place_of_cpus_per_task_where_each_rank_of_a_node_has_one(
    cluster: Cluster, tmp_path: Path, ranks: int, nodes: int, launcher: str, bound: bool
):
    ranks_itself = (
        'while [ "$1" != --no-python ]; do shift; done; for RANK in 0 1; do export RANK; "${@:2}";'
        " done"
    )
    venv = made_up(tmp_path, python=RECORDS_ITSELF, torchrun=ranks_itself)
    site = {"CPU_BIND": "mask_cpu:fe,fe00", "LAUNCHER": launcher, "VENV": str(venv)}
    job = cluster.submit("no_profiler", f"--ntasks={ranks}", f"--nodes={nodes}", **site)
    assert job.exit_code() == 0, job.log
    (command,) = [line for line in job.log.splitlines() if "] + " in line]
    assert ("--cpu-bind=mask_cpu:fe,fe00" in command) == bound
    assert ("--cpus-per-task" in command) == (not bound)
    for rank in range(ranks):
        # Newer releases of srun would take --cpus-per-task from here.
        assert any(line.startswith("SLURM_CPUS_PER_TASK=") for line in job.recorded(rank)) == (
            not bound
        )
