"""The snippets of lesson 07: on traces written by hand, and the job scripts with launchers of a few
lines.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.snippets.conftest import Run

STEP_US = 100_000

BASE_NS = 1_700_000_000_000_000_000


def write(
    folder: Path,
    rank: int,
    late_us: list[float],
    name: str = "ncclDevKernel_Generic",
    **more: object,
) -> None:
    """A trace of one rank: in each step an all-reduce that it enters so many µs late, and that all
    leave together.
    """
    events: list[dict[str, object]] = []
    for step, late in enumerate(late_us):
        begin, start = step * STEP_US, step * STEP_US + 20_000 + late
        args = {
            "correlation": step,
            "Collective name": "allreduce",
            "Process Group Ranks": "[0, 1, 2]",
        }
        kernel = {
            "cat": "kernel",
            "name": name,
            "ts": start,
            "dur": begin + 60_000 - start,
            "args": args,
        }
        launch = {"cat": "cuda_runtime", "name": "hipLaunchKernel", "ts": begin + 5, "dur": 5}
        launch["args"] = {"correlation": step}
        marked = {
            "cat": "user_annotation",
            "name": f"ProfilerStep#{step}",
            "ts": begin,
            "dur": STEP_US,
            "args": {},
        }
        events += [{"ph": "X", **event} for event in (marked, launch, {**kernel, **more})]
    trace = {
        "distributedInfo": {"rank": rank},
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": events,
    }
    folder.mkdir(exist_ok=True)
    (folder / f"trace_rank{rank}.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))


def traces(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.glob("*.json.gz"))]


def test_the_late_rank_is_named_with_wait_and_transfer(bare: Run, tmp_path: Path) -> None:
    for rank, late in enumerate(([0, 0, 0], [10, 0, 10], [30_000, 30_000, 30_000])):
        write(tmp_path / "job", rank, late)
    said = bare("python", "snippets/07_who_waits.py", *traces(tmp_path / "job")).stdout
    assert [line.split() for line in said.splitlines() if line.startswith(("0 ", "1 ", "2 "))] == [
        ["0", "90.00", "30.0", "0"],
        ["1", "89.98", "30.0", "0"],
        ["2", "0.00", "30.0", "3"],
    ]
    assert "rank 2 comes latest, by 29.990 ms for each collective" in said
    assert said.endswith("late by up to 0.000 ms: it is a straggler\n")


@pytest.mark.parametrize(
    ("healthy_late", "verdict"),
    [(2_000, "it is a straggler"), (9_000, "can't tell it from chance")],
)
def test_a_healthy_run_is_the_threshold(
    bare: Run, tmp_path: Path, healthy_late: int, verdict: str
) -> None:
    for rank in range(3):
        write(tmp_path / "job", rank, [0, 0] if rank < 2 else [4_000, 6_000])
        write(tmp_path / "healthy", rank, [0, 0] if rank else [healthy_late, 0])
    healthy = ["--healthy", *traces(tmp_path / "healthy")]
    said = bare("python", "snippets/07_who_waits.py", *traces(tmp_path / "job"), *healthy).stdout
    assert said.endswith(f"late by up to {healthy_late / 1000:.3f} ms: {verdict}\n")


def test_ranks_that_take_turns_are_not_blamed(bare: Run, tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path / "job", rank, [8_000 if step % 3 == rank else 0 for step in range(6)])
    assert (
        "can't tell" in bare("python", "snippets/07_who_waits.py", *traces(tmp_path / "job")).stdout
    )


def test_microseconds_of_a_step_do_not_matter(bare: Run, tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path / "job", rank, [50, 50, 50] if rank == 2 else [0, 0, 0])
    assert (
        "too little to matter"
        in bare("python", "snippets/07_who_waits.py", *traces(tmp_path / "job")).stdout
    )


def test_gloos_ranges_on_the_processor_count_as_collectives(bare: Run, tmp_path: Path) -> None:
    for rank in range(2):
        write(
            tmp_path / "job",
            rank,
            [20_000 * rank] * 3,
            name="gloo:all_reduce",
            cat="user_annotation",
            args={},
        )
    said = bare("python", "snippets/07_who_waits.py", *traces(tmp_path / "job")).stdout
    assert "gloo:all_reduce" in said
    assert "rank 1 comes latest, by 20.000 ms for each collective" in said


def test_one_rank_alone_is_refused(bare: Run, tmp_path: Path) -> None:
    write(tmp_path / "job", 0, [0, 0])
    done = bare("python", "snippets/07_who_waits.py", *traces(tmp_path / "job"), check=False)
    assert done.returncode == 1
    assert "give one trace for each rank" in done.stderr


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


def test_a_name_that_only_slurm_knows_gives_way_to_its_address(
    bare: Run, slurm: dict, tmp_path: Path
) -> None:
    bare("bash", "snippets/07_ranks_job.sh", **slurm | {"SLURM_JOB_NODELIST": "node1"})
    assert (tmp_path / "ranks_31234" / "seen_rank0.json.gz").read_text() == "0 2 localhost 21234 -"


def test_the_slurm_script_fails_where_ranks_replaced_each_others_files(
    bare: Run, slurm: dict
) -> None:
    done = bare("bash", "snippets/07_ranks_job.sh", check=False, ONE_NAME="rank", **slurm)
    assert done.returncode == 1
    assert "1 files rank*_kernel_trace.csv" in done.stdout


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
