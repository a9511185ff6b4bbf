"""Files of many ranks, read by the workers of a real Dask cluster and by the ranks of `mpirun`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidyprof.cli.main import main
from tidyprof.engines import engine
from tidyprof.errors import UserError
from tidyprof_tests.conftest import REPOSITORY, require
from tidyprof_tests.patience import PATIENCE_S

RANKS = REPOSITORY / "recordings/modeled-rank-skew/torch"


@pytest.fixture
def expected(tmp_path: Path) -> dict:
    """The diagnosis of files that were read in this process."""
    assert main(["triage", str(RANKS), "--jobs", "1", "--json", str(tmp_path / "here.json")]) == 0
    return json.loads((tmp_path / "here.json").read_text())


def test_workers_of_dask_read(tmp_path: Path, expected: dict):
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        where = f"dask={cluster.scheduler_address}"
        far = tmp_path / "far.json"
        assert main(["triage", str(RANKS), "--engine", where, "--json", str(far)]) == 0
    assert json.loads(far.read_text()) == expected


def test_ranks_of_mpi_read(tmp_path: Path, expected: dict):
    require(shutil.which("mpirun") is not None, "Open MPI (apt-get install openmpi-bin)")
    far = tmp_path / "far.json"
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable, "-m"]
    command += ["tidyprof", "triage", str(RANKS), "--engine", "mpi", "--json", str(far)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(far.read_text()) == expected


@pytest.mark.parametrize("name", ["ray", "dask=nonsense"])
def test_what_is_no_engine_is_refused(name: str):
    with pytest.raises(UserError), engine(name):
        pass
