"""The snippets of lesson 04: on kernels written by hand, and with a Slurm that runs two tasks one
after the other.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.snippets.conftest import Run

KERNELS = [
    ("void f<a, b>(int)", 0, 10),
    ("g", 5_000, 20_000),
    ("g", 6_000, 8_000),
    ("ncclDevKernel", 18_000, 40_000),
]
"""Name, start and end in ns: from 0 to 10 and 5,000 to 40,000 something runs, from 20,000 on only
the collective.
"""

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


def write(path: Path, device: str, *kernels: tuple[str, int, int]) -> None:
    rows = [f'"KERNEL_DISPATCH","{device}","{name}",{start},{end}' for name, start, end in kernels]
    head = '"Kind","Agent_Id","Kernel_Name","Start_Timestamp","End_Timestamp"'
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([head, *rows]))


def test_busy_time_is_that_of_the_union_and_gaps_lie_between(bare: Run, tmp_path: Path) -> None:
    write(tmp_path / "out" / "rank0_kernel_trace.csv", "Agent 4", *reversed(KERNELS))
    write(tmp_path / "out" / "rank1_kernel_trace.csv", "Agent 5", ("g", 0, 100))
    first, second = bare("python", "snippets/04_busy_time.py", "out").stdout.strip().split("\n\n")
    lines = first.splitlines()
    assert lines[0] == "rank0_kernel_trace.csv, Agent 4: 4 kernels in 0.0 ms"
    # 10 + 35,000 of 40,000 ns are busy, and 20,000 of them only with the collective.
    assert lines[1] == "busy 87.5 %, of which collectives alone 50.0 %"
    assert lines[3].split() == ["ncclDevKernel", "1", "22.0", "22.0", "22.0", "22.0", "55.0"]
    assert lines[4].split()[:3] == ["g", "2", "17.0"]
    assert [line for line in lines if "1, 12.5 %" in line] == [
        "gaps of 1 to 10 µs: 1, 12.5 % of the time"
    ]
    assert "rank1_kernel_trace.csv, Agent 5: 1 kernels" in second
    assert "busy 100.0 %, of which collectives alone 0.0 %" in second


def test_without_a_trace_it_says_how_to_call_it(bare: Run) -> None:
    assert "FOLDER_OR_FILE" in bare("python", "snippets/04_busy_time.py", ".", check=False).stderr


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


def test_the_results_may_lie_elsewhere(bare: Run, tmp_path: Path) -> None:
    assert (
        job(bare, tmp_path, "train.py", RESULTS="here")[0][-1]
        == "2 kernel traces of 2 ranks in here"
    )


def test_a_name_that_only_slurm_knows_gives_way_to_its_address(bare: Run, tmp_path: Path) -> None:
    lines, _ = job(bare, tmp_path, "train.py", KNOWN="none")
    assert any("10.0.0.7:20123" in line for line in lines)


def test_a_file_that_is_missing_fails_the_job(bare: Run, tmp_path: Path) -> None:
    assert job(bare, tmp_path, "train.py", check=False, ONE_NAME="rank")[0][-1].startswith(
        "1 kernel traces of 2 ranks"
    )


@pytest.mark.parametrize(
    ("words", "job_id", "said"), [((), "40123", "usage"), (("train.py",), "", "with sbatch")]
)
def test_a_wrong_start_ends_at_once(
    bare: Run, tmp_path: Path, words: tuple[str, ...], job_id: str, said: str
) -> None:
    lines, errors = job(bare, tmp_path, *words, check=False, SLURM_JOB_ID=job_id)
    assert not lines
    assert said in errors
