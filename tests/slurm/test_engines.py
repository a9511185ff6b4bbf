"""Files of many ranks, read by MPI's ranks and by Dask's workers on two nodes, one of which is
killed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from distributed import Client, LocalCluster

from tests.conftest import REPOSITORY, require
from tests.slurm.cluster import Cluster, clean_environment
from tidyprof.cli.main import main
from tidyprof.engines import engine
from tidyprof_tests.chrome_writer import HEADER, kernel, write_trace
from tidyprof_tests.patience import PATIENCE_S

RANKS = 6
PYTHON = REPOSITORY / ".venv/bin/python"

MPI = """
mpirun --map-by node -n 3 {command}
"""
DASK = """
trap 'kill $(jobs -p); wait' EXIT
python -m distributed.cli.dask_scheduler --scheduler-file s.json --no-dashboard --port 0 &
srun --overlap --nodes=2 --ntasks=2 python -m distributed.cli.dask_worker \\
    --scheduler-file s.json --nthreads 1 --no-dashboard --local-directory workers &
until [ -s s.json ]; do sleep 0.2; done
ADDRESS=$(python -c 'import json; print(json.load(open("s.json"))["address"])')
{command}
"""
READER = """
import os, signal
import pandas as pd

def node_of(profile):
    if profile.meta["rank"] == FATAL:
        os.kill(os.getpid(), signal.SIGKILL)
    return pd.DataFrame({"node": [os.environ["SLURMD_NODENAME"]]})
"""
PROGRAM = """
import json, sys
from pathlib import Path
import reader
from tidyprof.engines import engine
from tidyprof.many import read_many
if __name__ == "__main__":
    with engine(sys.argv[1]) as executor:
        if executor is not None:
            files = sorted(Path("ranks").iterdir())
            table = read_many(files, reader.node_of, executor, on_error="continue")
            found = {"nodes": sorted(set(table["node"])), "ranks": table["rank"].tolist()}
            Path("found.json").write_text(json.dumps(found | {"errors": table.attrs["errors"]}))
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    """A folder with a folder `ranks` of traces, each with more computation than the one before."""
    (tmp_path / "ranks").mkdir()
    for rank in range(RANKS):
        header = HEADER | {
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": RANKS}
        }
        arguments = {"Collective name": "allreduce", "stream": 4}
        begin = 1000 * (rank + 2)
        events = [
            kernel("gemm", 1000, 1000 * (rank + 1), 1),
            kernel("ncclDevKernel", begin, 20_000 - begin, 2, **arguments),
        ]
        write_trace(tmp_path / f"ranks/trace_{rank}.json.gz", events, header=header)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path


def run(cluster: Cluster, folder: Path, script: str, command: str) -> tuple[int, str]:
    """Exit code and output of a job on both nodes."""
    lines = ["#!/bin/bash", f"PATH={PYTHON.parent}:$PATH", "export OMPI_ALLOW_RUN_AS_ROOT=1"]
    lines += ["export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", script.format(command=command)]
    (folder / "job.sh").write_text("\n".join(lines))
    done = subprocess.run(
        ["sbatch", "--wait", "--nodes=2", "--ntasks=4", "--output=log", "job.sh"],
        cwd=folder,
        env=cluster.environment,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, (folder / "log").read_text()


WHERE = [(MPI, "mpi"), (DASK, "dask=$ADDRESS")]


@pytest.mark.parametrize(("script", "where"), WHERE)
def test_a_diagnosis_is_the_same_wherever_its_files_were_read(
    script: str, where: str, cluster: Cluster, ranks: Path, monkeypatch: pytest.MonkeyPatch
):
    require(shutil.which("mpirun") is not None, "Open MPI (apt-get install openmpi-bin)")
    command = f"python -m tidyprof triage ranks --json far.json --engine {where}"
    code, log = run(cluster, ranks, script, command)
    assert code == 0, log
    monkeypatch.chdir(ranks)
    assert main(["triage", "ranks", "--json", "here.json"]) == 0
    far, here = (json.loads((ranks / name).read_text()) for name in ("far.json", "here.json"))
    assert far == here


@pytest.mark.parametrize(("script", "where"), WHERE)
def test_both_nodes_read(script: str, where: str, cluster: Cluster, ranks: Path):
    require(shutil.which("mpirun") is not None, "Open MPI (apt-get install openmpi-bin)")
    (ranks / "reader.py").write_text(READER.replace("FATAL", "None"))
    code, log = run(
        cluster, ranks, f"export PYTHONPATH={ranks}" + script, f"python program.py {where}"
    )
    assert code == 0, log
    found = json.loads((ranks / "found.json").read_text())
    assert found["ranks"] == [*range(RANKS)]
    assert len(found["nodes"]) == 2
    assert not found["errors"]


def test_a_file_that_kills_dask_s_workers_is_named_and_the_others_are_read(
    cluster: Cluster, ranks: Path
):
    (ranks / "reader.py").write_text(READER.replace("FATAL", "2"))
    script = f"export PYTHONPATH={ranks}" + DASK
    code, log = run(cluster, ranks, script, "python program.py dask=$ADDRESS")
    assert code == 0, log
    found = json.loads((ranks / "found.json").read_text())
    assert found["ranks"] == [0, 1, 3, 4, 5]
    ((file, error),) = found["errors"]
    assert file == "ranks/trace_2.json.gz"
    assert "a process ended while this or another file was read" in error


def test_a_result_counts_though_its_worker_is_killed_the_moment_after(
    monkeypatch: pytest.MonkeyPatch,
):
    async def lost_when_it_has_come(client, futures, *arguments, **options):
        results = await gather(client, futures, *arguments, **options)
        for future in futures:
            future._state.lose()
        return results

    gather = Client._gather
    monkeypatch.setattr(Client, "_gather", lost_when_it_has_come)
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        engine(f"dask={cluster.scheduler_address}") as executor,
    ):
        futures = [executor.submit(abs, -number) for number in range(3)]
        assert [future.result(PATIENCE_S) for future in futures] == [0, 1, 2]


def test_what_was_not_begun_ends_with_the_block(tmp_path: Path):
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        with engine(f"dask={cluster.scheduler_address}") as executor:
            held = [executor.submit(wait_for_a_file, tmp_path / "end") for _ in range(3)]
        (tmp_path / "end").touch()
    assert all(future.cancelled() for future in held)


def wait_for_a_file(path: Path) -> None:
    while not path.exists():
        time.sleep(0.05)


def test_a_signal_means_after_the_block_what_it_meant_before():
    require(shutil.which("mpirun") is not None, "Open MPI (apt-get install openmpi-bin)")
    program = (
        "import signal; from tidyprof.engines import engine; before ="
        " signal.getsignal(signal.SIGTERM)\nwith engine('mpi') as executor:\n    assert"
        " signal.getsignal(signal.SIGTERM) != before\nassert signal.getsignal(signal.SIGTERM) =="
        " before"
    )
    environment = clean_environment() | {"OMPI_ALLOW_RUN_AS_ROOT": "1"}
    environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    done = subprocess.run(
        [PYTHON, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_mpi_ends_with_a_killed_rank_and_the_file_is_named(cluster: Cluster, ranks: Path):
    require(shutil.which("mpirun") is not None, "Open MPI (apt-get install openmpi-bin)")
    (ranks / "reader.py").write_text(READER.replace("FATAL", "2"))
    script = f"export PYTHONPATH={ranks}" + MPI
    code, log = run(cluster, ranks, script, "python program.py mpi")
    assert code != 0
    assert "tidyprof: MPI ended the job" in log
    assert "ranks/trace_2.json.gz" in log.partition("one of these: ")[2]
