"""proflab.job on the real Slurm: submitted, waiting, done, read."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidyprof
from proflab.errors import CourseError
from proflab.jobs import job
from tests.conftest import REPOSITORY
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
    notebook: Cluster, tmp_path: Path, capsys
):
    submitted = job("rpd", ranks=2, options=["--hold"], recording=tmp_path / "recorded.rpd")
    assert submitted.state == "waiting"
    assert submitted.result() == [tmp_path / "recorded.rpd"]
    notebook.ask("scontrol", "release", str(submitted.number))
    assert submitted.wait(PATIENCE_S).state == "done", submitted.log
    paths = submitted.result()
    assert [path.parent.parent for path in paths] == [
        notebook.folder / "results" / f"rpd_{submitted.number}"
    ] * 2
    assert {tidyprof.read(path).meta["rank"] for path in paths} == {0, 1}
    assert f"Job {submitted.number} is done" in capsys.readouterr().out


def test_a_failed_job_says_why(notebook: Cluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DATA", "cifar100")
    monkeypatch.setenv("DATA_PATH", str(notebook.folder / "nowhere"))
    submitted = job("rpd").wait(PATIENCE_S)
    assert submitted.state.startswith(
        f"failed: [rpd {submitted.number}] refused: CIFAR-100 is not in"
    )


def test_a_wrong_partition_is_slurms_own_reason(notebook: Cluster):
    with pytest.raises(CourseError, match="invalid partition specified: mi999"):
        job("rpd", options=["--partition=mi999"])


def test_the_course_is_found_without_its_variable():
    from proflab.jobs import scripts_folder

    assert scripts_folder() == REPOSITORY / "scripts" / "slurm"
