"""One Slurm for all tests of this folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.conftest import REPOSITORY, require
from tests.slurm.cluster import Cluster

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, warm: str) -> Iterator[Cluster]:
    """A real Slurm with two nodes, which ends with the session; its jobs' Python has torch imported
    already.
    """
    places = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=places) is None]
    require(
        not missing,
        f"Slurm ({', '.join(missing)}: apt-get install slurmctld slurmd slurm-client munge)",
    )
    require(
        (REPOSITORY / ".venv" / "bin" / "python").exists(), "the environment in .venv (make setup)"
    )
    found = Cluster.start(tmp_path_factory.mktemp("slurm"), warm)
    try:
        yield found
    finally:
        found.stop()
