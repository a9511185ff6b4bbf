"""Latency of requests and the time to their first token, judged by mean and 99th percentile."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tidyprof.gate.metrics import METRICS
from tidyprof.gate.runs import run_times
from tidyprof.triage.profiler_overhead import logged_step
from tidyprof_tests.gate.conftest import Judged

MS = 1e6


def write_requests(
    folder: Path, seed: int, first: float = 1.0, rest: float = 1.0, late: float = 1.0, requests=200
):
    """Requests of a server: some 20 ms to the first token and 80 ms for the others, and each 40th
    takes longer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).normal(1, 0.02, (requests, 2))
    lines = []
    for number, (one, two) in enumerate(noise):
        ttft = 20 * first * one
        latency = ttft + 80 * rest * two + (300 * late if number % 40 == 39 else 0)
        lines.append(
            json.dumps({"rank": 0, "step": number, "latency_ms": latency, "ttft_ms": ttft})
        )
    (folder / "times_rank0.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_a_run_is_the_mean_or_a_quantile_of_its_requests(tmp_path: Path):
    run = write_requests(tmp_path / "run", 1)
    lines = [json.loads(line) for line in (run / "times_rank0.jsonl").read_text().splitlines()][1:]
    for name, metric in METRICS.items():
        if metric.column.endswith("_ms"):
            found, values = run_times(run, metric=name), [line[metric.column] for line in lines]
            quantile = metric.quantile
            wanted = np.quantile(values, quantile) if quantile else np.mean(values)
            assert found.value == pytest.approx(wanted * MS)
            assert found.median == pytest.approx(np.quantile(values, quantile or 0.5) * MS)
            assert (found.steps, dict(found.work), found.profiled) == (
                199,
                {"requests": 200},
                False,
            )
    mean = run_times(run, metric="latency")
    assert mean.parts["first_token"] == pytest.approx(20 * MS, rel=0.01)
    assert mean.parts.sum() == pytest.approx(mean.value)
    assert not len(run_times(run, metric="latency-p99").parts), "none add up to a percentile"


@pytest.mark.parametrize(
    ("change", "slower"),
    [
        ({"first": 1.5}, {"latency", "ttft", "ttft-p99"}),
        ({"rest": 1.2}, {"latency"}),
        ({"late": 1.5}, {"latency-p99"}),
        ({}, set()),
    ],
)
def test_each_metric_detects_its_own_change(change, slower, tmp_path: Path, judged: Judged):
    for run in range(9):
        write_requests(tmp_path / f"base/run{run}", run)
        write_requests(tmp_path / f"new/run{run}", 100 + run, **change)
    sides, found = [tmp_path / side for side in ("base", "new")], set()
    for metric in ("latency", "latency-p99", "ttft", "ttft-p99"):
        code, told = judged(*sides, "--paired", "--metric", metric)
        assert (told["metric"], told["unit"]) == (metric, "ns")
        found |= {metric} if code else set()
        if change and metric == "latency" and code:
            (blamed,) = ({"first": "first_token", "rest": "rest"}[next(iter(change))],)
            assert [part["part"] for part in told["parts"] if part["confident"]] == [blamed]
    assert found == slower


def test_steps_and_requests_in_one_file(tmp_path: Path):
    """A server's steps, of which some end a request."""
    steps = [{"rank": 0, "step": step, "forward": 0.01, "samples": 4} for step in range(10)]
    for step in steps[1::2]:
        step |= {"latency_ms": 50.0 + step["step"]}
    file = tmp_path / "times_rank0.jsonl"
    file.write_text("".join(json.dumps(step) + "\n" for step in steps))
    run = run_times(tmp_path)
    assert (run.value, list(run.parts.index)) == (pytest.approx(10 * MS), ["forward"])
    assert dict(run.work) == {"steps": 10, "samples": 40}
    assert run_times(tmp_path, metric="latency").value == pytest.approx(56 * MS)
    assert dict(run_times(tmp_path, metric="latency").work) == {"requests": 5, "samples": 20}
    assert logged_step([str(tmp_path / "trace_rank0.json")], 0) == pytest.approx(10 * MS)
