"""The gate on memory, and on the parts of a job: startup, training, validation, and so on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidyprof.cli.main import main
from tidyprof.gate.runs import run_times
from tidyprof_tests.gate.conftest import Judged
from tidyprof_tests.gate.test_same_work import write_run

MIB = 2**20
JOB = {"startup": 3.0, "training": 20.0, "validation": 4.0, "checkpoints": 0.0, "shutdown": 0.2}


def write_version(folder: Path, runs: int = 8, job: Any = None, **bytes_: int) -> str:
    """Write runs of equal steps. In each run, memory and the parts of the job are 0.1% more than in
    the run before.
    """
    for run in range(runs):
        grown = {name: size + size * run // 1000 for name, size in bytes_.items()}
        seconds = 0.01 + 1e-6 * run + 1e-8 * (-1) ** run * len(folder.name)
        path = write_run(folder / f"run{run}", [seconds] * 9, **grown)
        if job is not None:
            parts = {name: seconds * (1 + run / 1000) for name, seconds in job.items()}
            (path / "run.json").write_text(json.dumps({"command": [], "job_s": parts}))
    return str(folder)


@pytest.mark.parametrize(
    ("grown", "metric", "word"),
    [
        ("resident_bytes", "memory", "no difference"),
        ("resident_bytes", "host-memory", "larger"),
        ("gpu_peak_bytes", "memory", "larger"),
        ("gpu_peak_bytes", "host-memory", "no difference"),
    ],
)
def test_each_memory_is_judged_alone(grown, metric, word, tmp_path: Path, judged: Judged):
    before = {"resident_bytes": 500 * MIB, "gpu_peak_bytes": 9000 * MIB}
    base = write_version(tmp_path / "base", **before)
    new = write_version(tmp_path / "new", **before | {grown: 2 * before[grown]})
    code, told = judged(base, new, "--metric", metric, "--paired")
    assert (told["verdict"], code) == (word, int(word == "larger"))
    assert (told["metric"], told["unit"], told["parts"]) == (metric, "bytes", [])
    assert judged(base, new, "--paired")[1]["verdict"] == "no difference"


def test_without_a_gpu_memory_is_that_of_the_host(tmp_path: Path, judged: Judged, capsys):
    base = write_version(tmp_path / "base", resident_bytes=500 * MIB, gpu_peak_bytes=0)
    new = write_version(tmp_path / "new", resident_bytes=400 * MIB)
    told = judged(base, new, "--metric", "memory")[1]
    assert (told["verdict"], told["metric"]) == ("smaller", "host-memory")
    both = write_version(tmp_path / "both", resident_bytes=400 * MIB, gpu_peak_bytes=MIB)
    assert main(["gate", base, both, "--metric", "memory"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_memory_is_the_largest_of_any_step_and_rank(tmp_path: Path):
    for rank in (0, 1):
        lines = [
            {"rank": rank, "step": step, "forward": 0.01, "resident_bytes": size + rank}
            for step, size in enumerate((900, 300, 400, 500))
        ]
        text = "\n".join(map(json.dumps, lines))
        (tmp_path / f"times_rank{rank}.jsonl").write_text(text)
    run = run_times(tmp_path, metric="memory")
    assert (run.value, run.median, dict(run.work)) == (901, 901, {"steps": 8})
    assert list(run_times(tmp_path).parts.index) == ["forward"]


def test_each_part_of_a_job_is_judged_alone(tmp_path: Path, judged: Judged):
    base = write_version(tmp_path / "base", job=JOB)
    new = write_version(tmp_path / "new", job=JOB | {"validation": 2.0})
    for metric in JOB.keys() - {"checkpoints"}:
        told = judged(base, new, "--metric", metric, "--paired")[1]
        assert told["verdict"] == ("faster" if metric == "validation" else "no difference")
    told = judged(base, new, "--paired")[1]
    assert told["verdict"] == "no difference"
    assert {row["part"] for row in told["job"]} == JOB.keys()
    (blamed,) = (row for row in told["job"] if row["confident"])
    assert (blamed["part"], blamed["difference_ns"]) == (
        "validation",
        pytest.approx(-2e9, rel=0.01),
    )


def test_few_runs_of_a_job_prove_nothing(tmp_path: Path, judged: Judged):
    sides = [f"{write_version(tmp_path / name, runs=1, job=JOB)}/run0" for name in ("base", "new")]
    code, told = judged(*sides, "--metric", "validation", "--fail-on-inconclusive")
    assert (code, told["verdict"], told["ratio"]) == (1, "inconclusive", None)


@pytest.mark.parametrize(
    "job", [JOB | {"validation": 0}, {}, {"validation": -1}, {"validation": float("nan")}]
)
def test_a_part_that_a_run_lacks_is_refused(job, tmp_path: Path, capsys):
    sides = write_version(tmp_path / "base", job=JOB), write_version(tmp_path / "new", job=job)
    assert main(["gate", *sides, "--metric", "validation"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "validation" in error


@pytest.mark.parametrize("content", ["", "[]", '{"job_s": 3}', '{"job_s": {"training": "x"}}'])
def test_parts_that_not_all_runs_have_are_not_shown(content: str, tmp_path: Path, judged: Judged):
    sides = [write_version(tmp_path / name, job=JOB) for name in ("base", "new")]
    (tmp_path / "new/run3/run.json").write_text(content)
    assert judged(*sides)[1]["job"] == []
