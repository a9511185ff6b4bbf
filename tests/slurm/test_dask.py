"""The documented way to read the ranks of a large job by Dask in jobs of Slurm, and a job that is lost meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidyprof
from tests.conftest import REPOSITORY
from tests.patience import PATIENCE_S
from tests.slurm.cluster import Cluster
from tests.tidyprof.chrome_writer import HEADER, kernel, write_trace

RANKS = 6
SMALLER = {
    'queue="batch", account="project"': "interface='lo', scheduler_options={'dashboard': False}",
    "cores=8, processes=8": "cores=2, processes=2",
    'memory="64GB"': 'memory="900MB"',
    "jobs=4": "jobs=2",
}
"""What the example asks for, and what the local Slurm has."""

LOSES = """
import os
import signal
import subprocess

from tidyprof.analyses import collective_entries

def entries(profile):
    if profile.meta["rank"] == 3 and not os.path.exists("lost"):
        open("lost", "w").close()
        subprocess.run("COMMAND", shell=True, check=True)
        signal.pause()
    return collective_entries(profile)
"""
LOSSES = {
    "job": "scancel $SLURM_JOB_ID",
    "node": "scontrol update nodename=$SLURMD_NODENAME state=down reason=lost",
}


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """A folder of traces: each rank comes 1 µs later than the one before it, and all leave together."""
    folder = tmp_path / "traces"
    folder.mkdir()
    for rank in range(RANKS):
        header = HEADER | {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": RANKS}}
        late = 1000 * rank
        reduction = kernel("ncclDevKernel", 2000 + late, 9000 - late, 2, **{"Collective name": "allreduce"})
        write_trace(folder / f"rank{rank}.json.gz", [kernel("gemm", 1000, 500 + late, 1), reduction], header=header)
    return folder


@pytest.fixture
def mended(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, with all its nodes again afterwards."""
    yield cluster
    for node in cluster.ask("sinfo", "--noheader", "--Node", "--states=down", "--format=%N").split():
        cluster.ask("scontrol", "update", f"nodename={node}", "state=resume")


@pytest.mark.parametrize("loss", LOSSES)
def test_the_documented_example_survives_a_lost_job_and_a_lost_node(mended: Cluster, traces: Path, loss: str):
    page = (REPOSITORY / "docs/tidyprof/README.md").read_text()
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "SLURMCluster" in block]
    for asked, here in SMALLER.items():
        assert asked in code
        code = code.replace(asked, here)
    code = code.replace("read(collective_entries)", "read(entries)").replace(
        "from tidyprof.analyses import collective_entries,", "from losing import entries\nfrom tidyprof.analyses import"
    )
    folder = traces.parent
    (folder / "losing.py").write_text(LOSES.replace("COMMAND", LOSSES[loss]))
    (folder / "script.py").write_text(code)
    environment = mended.environment | {
        "PYTHONPATH": f"{folder}{os.pathsep}{REPOSITORY / 'src'}",
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "9",
    }
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "lost").exists()
    first = done.stdout[: done.stdout.find("\n\n")].splitlines()  # a wide table is printed in parts
    assert first[0].split()[0] == "rank"
    assert [int(row.split()[1]) for row in first[1:]] == list(range(RANKS)), done.stdout
    expected = tidyprof.triage(tidyprof.read(path) for path in sorted(traces.iterdir()))
    assert done.stdout.splitlines()[-2:] == [expected.cause, str(expected.evidence)]
