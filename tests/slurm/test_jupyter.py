"""JupyterLab in a job: reached from where the login node is, and only with its owner's token."""

from __future__ import annotations

import re
import stat
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from tests.conftest import REPOSITORY
from tests.slurm.cluster import Cluster, made_up


def test_the_file_says_how_to_reach_it_and_its_token_alone_opens_it(
    cluster: Cluster, tmp_path: Path
):
    venv = made_up(tmp_path, python=f'exec {REPOSITORY}/.venv/bin/python "$@"')
    job = cluster.submit("jupyter", VENV=str(venv))
    try:
        told = job.folder / "connect.txt"
        job.until(lambda: "is running at" in job.log, "JupyterLab")
        port, host, its_port = re.search(r" -L (\d+):(\S+):(\d+) ", told.read_text()).groups()
        page = re.search(rf"http://127\.0\.0\.1:{port}(/\S+)\?token=(\w+)", told.read_text())
        for secret in (told, job.folder / "token"):
            assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert page[2] not in job.log
        environments = environments_of(job.number)
        assert any("JUPYTER_TOKEN_FILE=" in text for text in environments)
        assert not any(page[2] in text for text in environments)
        there = f"http://{host}:{its_port}"
        job.until(lambda: listens(there), "its port")  # which it opens after it has said so
        assert urlopen(f"{there}{page[1]}?token={page[2]}").status == 200
        with pytest.raises(HTTPError, match="403"):
            urlopen(f"{there}/api/contents/README.md?token=wrong")
    finally:  # it would keep the node from the jobs of other tests
        cluster.ask("scancel", str(job.number))
    job.until(lambda: job.is_over, "its end")
    assert not listens(there)


def environments_of(job: int) -> list[str]:
    """The environment of each process of the job, which all that these start inherit."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            found.append(path.read_text(errors="replace"))
    return [text for text in found if f"SLURM_JOB_ID={job}\0" in text]


def listens(address: str) -> bool:
    """Return True if a server answers there, whatever it says."""
    try:
        urlopen(address).close()
    except HTTPError:
        return True
    except URLError:
        return False
    return True
