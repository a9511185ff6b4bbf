"""The snippets of lesson 07: on traces written by hand, and the job scripts with launchers of a few
lines.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.snippets.conftest import Run

PROGRAM = """
import os

rank, folder = os.environ["RANK"], os.environ["PROFILE_DIR"]
with open(f"{folder}/seen_rank{rank}.json.gz", "w") as file:
    names = "LOCAL_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT ZE_FLAT_DEVICE_HIERARCHY".split()
    file.write(" ".join(os.environ.get(name, "-") for name in names))
"""

SRUN = """#!/bin/bash
for ((rank = 0; rank < SLURM_NTASKS; rank++)); do
    SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" & pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || exit 1; done
"""

SCONTROL = """#!/bin/bash
case $2 in
hostnames) echo "$SLURM_JOB_NODELIST" ;;
node) echo "NodeName=$4 Arch=x86_64 NodeAddr=localhost NodeHostName=$4" ;;
esac
"""

GETENT = """#!/bin/bash
[ "$2" = localhost ]
"""

ROCPROFV3 = """#!/bin/bash
while [ "$1" != -- ]; do
    [ "$1" != --output-directory ] || folder=$2
    shift
done
touch "$folder/${ONE_NAME:-rank$RANK}_kernel_trace.csv"
shift
exec "$@"
"""

MPIEXEC = """#!/bin/bash
echo "words: $*" >mpiexec_words
count=$2
shift 6
for ((rank = 0; rank < count; rank++)); do \
PALS_RANKID=$rank PALS_LOCAL_RANKID=$rank "$@" || exit 1; done
"""


def with_programs(folder: Path, **programs: str) -> str:
    """A PATH that begins with these programs; train.py lies in the folder."""
    (folder / "bin").mkdir()
    (folder / "train.py").write_text(PROGRAM)
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return f"{folder}/bin"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    programs = with_programs(
        tmp_path, srun=SRUN, scontrol=SCONTROL, getent=GETENT, rocprofv3=ROCPROFV3
    )
    monkeypatch.setenv("PATH", programs, prepend=":")
    return {
        "SLURM_JOB_ID": "31234",
        "SLURM_NTASKS": "2",
        "SLURM_JOB_NODELIST": "localhost",
        "TMPDIR": str(tmp_path),
    }


def test_the_slurm_script_meets_runs_every_rank_and_counts_the_files(
    bare: Run, slurm: dict, tmp_path: Path
) -> None:
    said = bare("bash", "snippets/07_ranks_job.sh", **slurm).stdout
    assert "2 files rank*_kernel_trace.csv" in said
    results = tmp_path / "ranks_31234"
    assert sorted(path.name for path in results.glob("rank*")) == [
        "rank0_kernel_trace.csv",
        "rank1_kernel_trace.csv",
    ]
    for rank in (0, 1):
        assert (results / f"seen_rank{rank}.json.gz").read_text() == f"{rank} 2 localhost 21234 -"


def test_the_pbs_script_runs_every_rank(
    bare: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", with_programs(tmp_path, mpiexec=MPIEXEC), prepend=":")
    (tmp_path / "nodes").write_text("localhost\n")
    job = {
        "PBS_O_WORKDIR": str(tmp_path),
        "PBS_NODEFILE": str(tmp_path / "nodes"),
        "PBS_JOBID": "1204567.server01",
    }
    assert "12 files *rank*.json.gz" in bare("bash", "snippets/07_ranks_job_pbs.sh", **job).stdout
    assert (
        tmp_path / "ranks_1204567" / "seen_rank11.json.gz"
    ).read_text() == "11 12 localhost 24567 FLAT"
    assert (
        (tmp_path / "mpiexec_words")
        .read_text()
        .startswith("words: -n 12 --ppn 12 --cpu-bind list:1-8:")
    )
