"""proflab.job on the real Slurm: submitted, waiting, done or failed, read."""

from __future__ import annotations

from pathlib import Path

import pytest

from proflab.errors import CourseError
from proflab.jobs import job
from tests.slurm.cluster import Cluster
from tidyprof_tests.patience import PATIENCE_S


@pytest.fixture
def notebook(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """This process sees the cluster, as a notebook's does that was started on its login node."""
    for name in ("SLURM_CONF", "SITE_ENV"):
        monkeypatch.setenv(name, cluster.environment[name])
    monkeypatch.delenv("COURSE_DIR", raising=False)
    return cluster


def test_a_cell_goes_on_with_the_recording_and_later_shows_its_own_result(
    notebook: Cluster, tmp_path: Path
):
    submitted = job("rpd", ranks=2, options=["--hold"], recording=tmp_path / "recorded.rpd")
    assert submitted.state == "waiting"
    assert submitted.result() == [tmp_path / "recorded.rpd"]
    notebook.ask("scontrol", "release", str(submitted.number))
    assert submitted.wait(PATIENCE_S).state == "done", submitted.log
    results = notebook.folder / "results" / f"rpd_{submitted.number}" / "profile"
    assert [path.parent for path in submitted.result()] == [results] * 2


def test_a_failed_job_and_a_wrong_partition_are_told(
    notebook: Cluster, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(CourseError):
        job("rpd", options=["--partition=mi999"])
    monkeypatch.setenv("DATA", "cifar100")
    monkeypatch.setenv("DATA_PATH", str(notebook.folder / "nowhere"))
    assert job("rpd").wait(PATIENCE_S).state.startswith("failed: ")
