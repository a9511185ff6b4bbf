"""Every job script is submitted unchanged, the ones for many ranks on both nodes."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import tidyprof
from proflab.training import training_run
from tests.conftest import require
from tests.slurm.cluster import RECORDS_ITSELF, SCRIPTS, Cluster, SubmittedJob, made_up

PER_RANK = {
    "no_profiler": ["metrics_rank*.jsonl"],
    "triage": ["run_rank*.json", "times_rank*.jsonl", "trace_rank*.json.gz"],
    "torch_profiler": ["metrics_rank*.jsonl", "trace_rank*.json.gz"],
    "rocprof_sys_trace": ["rank*perfetto-trace-*.proto", "rank*wall_clock-*.json"],
    "rocprof_sys_callstack": ["rank*perfetto-trace-*.proto", "rank*sampling_wall_clock-*.txt"],
    "rocprofv3_kernels": ["rank*_kernel_stats.csv", "rank*_kernel_trace.csv"],
    "rocprofv3_trace": ["rank*_results.pftrace"],
    "rocprofv3_counters": ["rank*_counter_collection.csv"],
    "rpd": ["rank*_pid*.rpd"],
    "omnistat": ["metrics_rank*.jsonl", "report.txt"],
    "debug_agent": ["metrics_rank*.jsonl"],
}
"""What each rank leaves behind, by job script; a name without a star is of the whole job."""

LOOP = """
import sys
import torch
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(int(sys.argv[1])):
    weight.sum().backward()
    optimizer.step()
"""
"""A program that knows nothing of any launcher, for `triage`."""


@dataclass
class Rehearsal:
    """All job scripts, submitted at once, so that the nodes are never idle while a test waits."""

    jobs: dict[str, SubmittedJob]

    def done(self, script: str) -> SubmittedJob:
        job = self.jobs[script]
        assert job.exit_code() == 0, job.log
        assert (job.folder / "exit_code").read_text() == "0\n"
        return job


@pytest.fixture(scope="session")
def rehearsal(cluster: Cluster) -> Rehearsal:
    library = cluster.folder / "librocm-debug-agent.so.2"
    library.touch()
    (loop := cluster.folder / "loop.py").write_text(LOOP)
    own = {"triage": ["--", "python", str(loop), "60"]}
    profile = cluster.submit("rocprof_compute_profile")
    after = f"--dependency=afterok:{profile.number}"
    analyze = cluster.submit("rocprof_compute_analyze", after, "--", str(profile.number))
    jobs = {"rocprof_compute_profile": profile, "rocprof_compute_analyze": analyze}
    for script in PER_RANK:
        options = ["--ntasks=2", "--nodes=2", *own.get(script, [])]
        jobs[script] = cluster.submit(script, *options, DEBUG_AGENT_LIB=str(library))
    return Rehearsal(jobs)


def test_every_job_script_is_submitted_here():
    submitted = {*PER_RANK, "rocprof_compute_profile", "rocprof_compute_analyze"}
    jobs = {path.stem for path in SCRIPTS.glob("*.sh") if "#SBATCH" in path.read_text()}
    assert jobs == submitted | {"jupyter", "gpu_check"}


def test_shellcheck_finds_nothing():
    done = subprocess.run(["which", "shellcheck"], capture_output=True, check=False)
    require(done.returncode == 0, "shellcheck")
    scripts = [*SCRIPTS.rglob("*.sh"), SCRIPTS / "site.env.example"]
    assert subprocess.run(["shellcheck", *map(str, scripts)], check=False).returncode == 0


@pytest.mark.parametrize("script", PER_RANK)
def test_each_rank_leaves_its_own_files(rehearsal: Rehearsal, script: str):
    job = rehearsal.done(script)
    for pattern in PER_RANK[script]:
        found = [re.search(r"rank(\d+)|$", path.name)[1] for path in job.files(pattern)]
        assert sorted(found, key=str) == (["0", "1"] if "*" in pattern else [None]), job.log


def test_ranks_on_two_nodes_train_together_and_tidyprof_reads_their_traces(rehearsal: Rehearsal):
    job = rehearsal.done("torch_profiler")
    assert len(training_run(job.folder / "train").steps) == 3
    records = [
        json.loads(path.read_text().splitlines()[0]) for path in job.files("metrics_*.jsonl")
    ]
    launches = [record["launch"] for record in records]
    assert [launch["local_rank"] for launch in launches] == [0, 0]  # one rank on each node
    assert len({(launch["address"], launch["port"]) for launch in launches}) == 1
    assert launches[0]["port"] > 0
    profile = tidyprof.read(job.folder / "train")
    assert set(profile.events["rank"]) == {0, 1}


def test_triage_tells_of_all_ranks(rehearsal: Rehearsal):
    told = json.loads((rehearsal.done("triage").folder / "verdict.json").read_text())
    assert told["exit_code"] == 0
    assert set(told["run"]) == {"0", "1"}
    assert told["diagnosis"]


@pytest.mark.parametrize("launcher", ["srun", "torchrun"])
def test_triage_without_a_trace_fails(cluster: Cluster, tmp_path: Path, launcher: str):
    (tmp_path / "loop.py").write_text(LOOP)
    own = ["--", "python", str(tmp_path / "loop.py"), "9"]
    job = cluster.submit("triage", "--ntasks=2", *own, LAUNCHER=launcher)
    assert job.exit_code() == 1
    assert len(job.files("run_rank*.json")) == 2


def test_compute_profile_is_analysed_after_a_search_with_the_same_work(rehearsal: Rehearsal):
    profile = rehearsal.done("rocprof_compute_profile")
    assert len(profile.files("sysinfo.csv")) == 1
    assert len(training_run(profile.folder / "train").steps) == 2
    assert rehearsal.done("rocprof_compute_analyze").files("analysis.txt")
    search, counted = (
        line.partition(" python ")[2] for line in profile.log.splitlines() if "] + srun" in line
    )
    assert search == counted


@pytest.mark.parametrize(
    ("script", "options", "site"),
    [
        ("rocprof_compute_profile", ["--ntasks=2"], {}),
        ("debug_agent", [], {"DEBUG_AGENT_LIB": "/nowhere/librocm-debug-agent.so.2"}),
        ("gpu_check", [], {}),
        ("rocprofv3_kernels", [], {"DATA": "cifar100", "DATA_PATH": "/nowhere"}),
        ("no_profiler", [], {"LAUNCHER": "mpiexec"}),
    ],
)
def test_what_cannot_work_ends_with_2(cluster: Cluster, script: str, options: list, site: dict):
    job = cluster.submit(script, *options, **site)
    assert job.exit_code() == 2
    assert f"[{script} {job.number}]" in job.last_line


@pytest.mark.parametrize("ranks", [1, 2])
def test_debug_agent_sets_what_lesson_09_does(cluster: Cluster, tmp_path: Path, ranks: int):
    """All waves of one rank only, and a file for each; one kernel at a time, no core file."""
    library = tmp_path / "librocm-debug-agent.so.2"
    library.touch()
    venv = made_up(tmp_path, python=RECORDS_ITSELF)
    site = {"DEBUG_AGENT_LIB": str(library), "VENV": str(venv)}
    job = cluster.submit("debug_agent", f"--ntasks={ranks}", **site)
    assert job.exit_code() == 0, job.log
    for rank in range(ranks):
        lines = job.recorded(rank)
        expected = {f"HSA_TOOLS_LIB={library}", "HSA_ENABLE_DEBUG=1", "AMD_SERIALIZE_KERNEL=3"}
        assert expected | {"core=0"} <= set(lines)
        (options,) = [line for line in lines if line.startswith("ROCM_DEBUG_AGENT_OPTIONS=")]
        assert f"--output={job.folder}/profile/rank{rank}_pid" in options
        assert ("--all " in options) == (ranks == 1)
