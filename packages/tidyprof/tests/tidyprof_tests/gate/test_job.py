"""The gate on the parts of a job: startup, training, validation, and so on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidyprof.cli.main import main
from tidyprof_tests.gate.conftest import Judged
from tidyprof_tests.gate.test_same_work import write_run

JOB = {"startup": 3.0, "training": 20.0, "validation": 4.0, "checkpoints": 0.0, "shutdown": 0.2}


def write_version(folder: Path, job: dict[str, float], runs: int = 8) -> str:
    """Write runs of equal steps. In each run, the parts of the job are 0.1% longer than in the run
    before.
    """
    for run in range(runs):
        seconds = 0.01 + 1e-6 * run + 1e-8 * (-1) ** run * len(folder.name)
        path = write_run(folder / f"run{run}", [seconds] * 9)
        factor = 1 + run / 1000 + 1e-6 * (-1) ** run * len(folder.name)
        parts = {name: seconds * factor for name, seconds in job.items()}
        (path / "run.json").write_text(json.dumps({"command": [], "job_s": parts}))
    return str(folder)


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
    sides = [f"{write_version(tmp_path / name, JOB, runs=1)}/run0" for name in ("base", "new")]
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
