"""JupyterLab in a job: reached from where the login node is, and only with the token that its owner
can read.
"""

from __future__ import annotations

import re
import stat
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from tests.conftest import REPOSITORY
from tests.slurm.cluster import Cluster, SubmittedJob, made_up

IN_A_CONTAINER = {"CONTAINER": "image.sif", "CONTAINER_RUNTIME": "apptainer"}


@pytest.mark.parametrize(
    "site",
    [
        pytest.param({}, id="environment"),
        pytest.param(IN_A_CONTAINER, id="container", marks=pytest.mark.long),
    ],
)
def test_the_file_says_how_to_reach_it_and_its_token_alone_opens_it(
    cluster: Cluster, tmp_path: Path, site: dict[str, str]
):
    runtime = 'while [ "$1" != image.sif ]; do shift; done; shift; exec "$@"'
    venv = made_up(tmp_path, python=f'exec {REPOSITORY}/.venv/bin/python "$@"', apptainer=runtime)
    job = cluster.submit("jupyter", VENV=str(venv), **site)
    try:
        there = opened_with_its_token_alone(job)
    finally:  # it would keep the node from the jobs of other tests
        job.cluster.ask("scancel", str(job.number))
    job.until(lambda: job.is_over, "its end")
    assert not listens(there)


def opened_with_its_token_alone(job: SubmittedJob) -> str:
    """The address of a running JupyterLab, as its file says it, once all is as promised."""
    told = job.folder / "connect.txt"
    job.until(lambda: "is running at" in job.log, "JupyterLab")
    assert stat.S_IMODE(told.stat().st_mode) == 0o600
    text = told.read_text()
    port, host, its_port = re.search(
        r"ssh -N -o ExitOnForwardFailure=yes -L (\d+):(\S+):(\d+) \S+@LOGIN_NODE", text
    ).groups()
    here, page, token = re.search(r"http://127\.0\.0\.1:(\d+)(/\S+)\?token=(\w+)", text).groups()
    assert here == port
    assert token not in job.log
    assert stat.S_IMODE((job.folder / "token").stat().st_mode) == 0o600
    assert not [name for name, text in environments(job.number).items() if token in text]
    there = f"http://{host}:{its_port}"
    job.until(lambda: listens(there), "its port")  # which it opens after it has said so
    assert "JupyterLab" in urlopen(f"{there}{page}?token={token}").read().decode()
    with pytest.raises(HTTPError, match="403"):
        urlopen(f"{there}/api/contents/README.md?token=wrong")
    return there


def environments(job: int) -> dict[str, str]:
    """The environment of each process of the job, which all that these start inherit."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            text = path.read_text(errors="replace")
            if f"SLURM_JOB_ID={job}\0" in text:
                found[path.parent.name] = text
    assert any("JUPYTER_TOKEN_FILE=" in text for text in found.values())
    return found


def listens(address: str) -> bool:
    """Whether a server answers there, whatever it says."""
    try:
        urlopen(address).close()
    except HTTPError:
        return True
    except URLError:
        return False
    return True
