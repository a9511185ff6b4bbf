"""The snippets of lesson 04: on kernels written by hand, and with a Slurm that runs two tasks one
after the other.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.snippets.conftest import Run

TOOLS = {
    "scontrol": (
        """
    if [ "$2" = hostnames ]; then printf "node7\\nnode8\\n"
    else echo "NodeName=$4 NodeAddr=10.0.0.7 Port=1"; fi"""
    ),
    "getent": '[ "$2" = "${KNOWN:-node7}" ]',
    # Slurm's variables of two tasks.
    "srun": (
        """
    echo "cores of a task: $SRUN_CPUS_PER_TASK, GPUs bound: $SLURM_GPU_BIND"
    for rank in 0 1; do SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@"; done"""
    ),
    "rocprofv3": (
        """
    echo "rank $RANK of $WORLD_SIZE, local $LOCAL_RANK, $MASTER_ADDR:$MASTER_PORT, $MIOPEN_USER_DB_PATH"
    printf "<%s>" "$@"
    echo
    touch "$8/${ONE_NAME:-rank$RANK}_kernel_trace.csv"
    """
    ),
}


def job(
    bare: Run, tmp_path: Path, *words: str, check: bool = True, **variables: str
) -> tuple[list[str], str]:
    """Lines of the job script's output and its errors, with TOOLS in PATH."""
    for name, text in TOOLS.items():
        tool = tmp_path / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/bash\n{text}\n")
        tool.chmod(0o755)
    slurm = {"SLURM_JOB_ID": "40123", "SLURM_JOB_NODELIST": "node[7-8]", "SLURM_NTASKS": "2"}
    slurm |= {"SLURM_CPUS_PER_TASK": "8"} | variables
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    done = bare(
        "bash",
        "snippets/04_profile_job.sh",
        *words,
        check=check,
        PATH=path,
        TMPDIR=str(tmp_path),
        **slurm,
    )
    return done.stdout.splitlines(), done.stderr


def test_every_rank_runs_the_tool_with_names_of_its_own(bare: Run, tmp_path: Path) -> None:
    lines, _ = job(bare, tmp_path, "my train.py", "--steps", "5")
    assert lines[0] == "cores of a task: 8, GPUs bound: none"
    ranks = [line for line in lines if line.startswith("rank ")]
    folders = [tmp_path / f"miopen_40123_{rank}" for rank in (0, 1)]
    assert ranks == [
        f"rank {rank} of 2, local {rank}, node7:20123, {folders[rank]}" for rank in (0, 1)
    ]
    assert all(folder.is_dir() for folder in folders)
    calls = [line for line in lines if line.startswith("<--kernel-trace>")]
    assert len(calls) == 2
    assert len(set(calls)) == 1
    assert calls[0].endswith(
        "<--stats><--output-format><csv><--output-directory><profile_40123>"
        "<--output-file><rank%rank%_pid%pid%><--><python><my train.py><--steps><5>"
    )
    assert lines[-1] == "2 kernel traces of 2 ranks in profile_40123"
