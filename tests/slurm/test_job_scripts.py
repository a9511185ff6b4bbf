"""Every job script is submitted unchanged, for one process and for two ranks over both nodes; its
files are read.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import tidyprof
from proflab.published import readable_paths
from proflab.training import training_run
from tests.conftest import LONG, REPOSITORY, require
from tests.slurm.cluster import RECORDS_ITSELF, SCRIPTS, Cluster, SubmittedJob, made_up

PER_RANK = {
    "no_profiler": ["metrics_rank*.jsonl"],
    "triage": ["run_rank*.json", "times_rank*.jsonl", "trace_rank*.json.gz"],
    "torch_profiler": ["metrics_rank*.jsonl", "trace_rank*.json.gz"],
    "rocprof_sys_trace": ["rank*perfetto-trace-*.proto", "rank*wall_clock-*.json"],
    "rocprof_sys_callstack": ["rank*perfetto-trace-*.proto", "rank*sampling_wall_clock-*.txt"],
    "rocprofv3_kernels": [
        "rank*_kernel_stats.csv",
        "rank*_kernel_trace.csv",
        "rank*_agent_info.csv",
    ],
    "rocprofv3_trace": ["rank*_results.pftrace"],
    "rocprofv3_counters": ["rank*_counter_collection.csv"],
    "rpd": ["rank*_pid*.rpd"],
    "omnistat": ["metrics_rank*.jsonl"],
    "debug_agent": ["metrics_rank*.jsonl"],
}
"""What each rank leaves behind, by job script."""

SINGLE = {"rocprof_compute_profile", "rocprof_compute_analyze", "jupyter", "gpu_check"}
RANKS = [pytest.param(1, marks=pytest.mark.long), 2]
NOT_SUBMITTED = {
    "common",
    "launch",
    "setup",
    "site",
    "submit",
    "submit_all",
    "record_all",
    "download_data",
}


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

    jobs: dict[tuple[str, int], SubmittedJob]

    def done(self, script: str, ranks: int) -> SubmittedJob:
        job = self.jobs[script, ranks]
        assert job.exit_code() == 0, job.log
        assert re.fullmatch(
            rf"\[{script} {job.number}\] done in \d+ s: \d+ files in {job.folder}", job.last_line
        )
        return job


@pytest.fixture(scope="session")
def rehearsal(cluster: Cluster) -> Rehearsal:
    library = cluster.folder / "librocm-debug-agent.so.2"
    library.touch()
    special = {"debug_agent": {"DEBUG_AGENT_LIB": str(library)}}
    (loop := cluster.folder / "loop.py").write_text(LOOP)
    own = {"triage": ["--", "python", str(loop), "60"]}
    jobs = {}
    for script in PER_RANK if LONG else ():
        jobs[script, 1] = cluster.submit(script, *own.get(script, []), **special.get(script, {}))
    profile = jobs["rocprof_compute_profile", 1] = cluster.submit("rocprof_compute_profile")
    after = f"--dependency=afterok:{profile.number}"
    jobs["rocprof_compute_analyze", 1] = cluster.submit(
        "rocprof_compute_analyze", after, "--", str(profile.number)
    )
    for script in PER_RANK:
        options = ["--ntasks=2", "--nodes=2", *own.get(script, [])]
        jobs[script, 2] = cluster.submit(script, *options, **special.get(script, {}))
    return Rehearsal(jobs)


def test_every_job_script_is_submitted_here():
    assert {path.stem for path in SCRIPTS.glob("*.sh")} == set(PER_RANK) | SINGLE | NOT_SUBMITTED
    # rocprof-compute is one process, so mpirun adds nothing.
    assert {path.stem for path in (SCRIPTS / "mpi").glob("*.sh")} == set(PER_RANK)


def test_job_scripts_are_short_and_state_what_a_job_needs():
    for path in [*SCRIPTS.glob("*.sh"), *(SCRIPTS / "mpi").glob("*.sh")]:
        text = path.read_text()
        if path.stem in NOT_SUBMITTED:
            continue
        assert text.count("\n") < 40, path
        assert text.startswith("#!/bin/bash -l\n"), path  # module needs a login shell
        for option in (
            "--job-name=",
            "--output=%x_%j.out",
            "--time=",
            "--nodes=1 --ntasks=1",
            "--cpus-per-task=",
        ):
            assert option in text, (path, option)
        assert path.stat().st_mode & 0o100, path


def test_shellcheck_finds_nothing():
    done = subprocess.run(["which", "shellcheck"], capture_output=True)
    require(done.returncode == 0, "shellcheck")
    scripts = [*SCRIPTS.rglob("*.sh"), SCRIPTS / "site.env.example"]
    done = subprocess.run(["shellcheck", *map(str, scripts)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("script", PER_RANK)
def test_each_rank_leaves_its_own_files(rehearsal: Rehearsal, script: str, ranks: int):
    job = rehearsal.done(script, ranks)
    for pattern in PER_RANK[script]:
        found = job.files(pattern)
        assert len(found) == ranks, (pattern, found)
        assert {re.search(r"rank(\d+)", path.name)[1] for path in found} == {
            str(rank) for rank in range(ranks)
        }


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(
    "script", [name for name in PER_RANK if name.startswith(("t", "roc", "rpd"))] + ["omnistat"]
)
def test_tidyprof_reads_what_a_job_wrote(rehearsal: Rehearsal, script: str, ranks: int):
    job = rehearsal.done(script, ranks)
    profiles = [tidyprof.read(path) for path in readable_paths(job.folder)]
    if script in ("rocprofv3_counters", "omnistat"):
        names = {name for profile in profiles for name in profile.counters["name"]}
        assert names, "no counters"
        assert script == "omnistat" or {"SQ_WAVES", "SQ_INSTS_VALU"} <= names
        return
    kinds = {kind for profile in profiles for kind in profile.events["kind"]}
    # On a processor PyTorch's profiler sees operators; all others play the modelled GPU.
    assert ("operator" if script.startswith("t") else "kernel") in kinds
    found = {rank for profile in profiles for rank in profile.events["rank"].dropna().unique()}
    assert found == set(range(ranks))


@pytest.mark.parametrize("ranks", RANKS)
def test_the_plain_training_is_a_run_of_all_ranks(rehearsal: Rehearsal, ranks: int):
    run = training_run(rehearsal.done("no_profiler", ranks).folder / "train")
    assert len(run.steps) == 3
    assert run.summary["world_size"] == ranks


@pytest.mark.parametrize("ranks", RANKS)
def test_triage_tells_of_all_ranks_and_leaves_the_verdict(rehearsal: Rehearsal, ranks: int):
    job = rehearsal.done("triage", ranks)
    told = json.loads((job.folder / "verdict.json").read_text())
    assert told["exit_code"] == 0
    assert set(told["run"]) == {str(rank) for rank in range(ranks)}
    assert told["diagnosis"], told["why_no_verdict"]
    assert job.log.count("watching took") == 1  # one rank reports


def test_triage_tells_once_that_a_program_of_torchruns_makes_too_few_steps(
    cluster: Cluster, tmp_path: Path
):
    """Slurm's rank is that of the node there, the same for both."""
    (tmp_path / "loop.py").write_text(LOOP)
    own = ["--", "python", str(tmp_path / "loop.py"), "9"]
    job = cluster.submit("triage", "--ntasks=2", *own, LAUNCHER="torchrun")
    assert job.exit_code() == 1
    assert job.log.count("no verdict: it ended after 9 steps, and 34 are needed") == 1, job.log
    assert [path.name for path in job.files("run_rank*.json")] == [
        "run_rank0.json",
        "run_rank1.json",
    ]
    assert "failed: 0 files trace_rank*.json.gz" in job.log


def test_triage_without_a_command_takes_the_training_and_enough_of_its_steps(
    cluster: Cluster, tmp_path: Path
):
    job = cluster.submit("triage", VENV=str(made_up(tmp_path, python=RECORDS_ITSELF)))
    assert job.exit_code() == 1  # nothing was traced
    arguments = [line.partition("=")[2] for line in job.recorded(0) if line.startswith("argument=")]
    assert arguments[:4] == ["-m", "tidyprof", "run", "--out"]
    behind = arguments[arguments.index("--") + 1 :]
    assert behind[:3] == ["python", "-m", "cifar_train"]
    assert behind[-2:] == ["--max-steps", "60"]


def test_compute_profile_is_read_and_analysed(rehearsal: Rehearsal):
    profile = rehearsal.done("rocprof_compute_profile", 1)
    (workload,) = readable_paths(profile.folder)
    assert len(tidyprof.read(workload).events)
    analysis = rehearsal.done("rocprof_compute_analyze", 1)
    assert "VALU FLOPs" in (analysis.folder / "analysis.txt").read_text()


def test_compute_profile_takes_two_steps_whatever_the_site_says(rehearsal: Rehearsal):
    profile = rehearsal.done("rocprof_compute_profile", 1)
    assert (
        len(training_run(profile.folder / "train").steps) == 2
    )  # the site's TRAIN_OPTIONS ask for three


def test_compute_profile_searches_first_and_asks_for_what_every_release_has(
    cluster: Cluster, tmp_path: Path
):
    tool = "mkdir -p workloads && touch workloads/sysinfo.csv"
    venv = made_up(tmp_path, python=RECORDS_ITSELF, rocprof_compute=tool)
    job = cluster.submit("rocprof_compute_profile", VENV=str(venv))
    assert job.exit_code() == 0, job.log
    search, profile = [line for line in job.log.splitlines() if "+ srun" in line]
    assert (
        " rocprof-compute profile --name cifar_train --no-roof -b 2 -- python -m cifar_train "
        in profile
    )
    # The run before it does the same work, outside the tool.
    assert search.partition(" python ")[2] == profile.partition(" python ")[2]
    assert profile.endswith(" --max-steps 2")


def test_compute_profile_refuses_several_ranks(cluster: Cluster):
    job = cluster.submit("rocprof_compute_profile", "--ntasks=2")
    assert job.exit_code() == 2
    assert "refused: rocprof-compute runs the program again and again" in job.last_line
    assert "submit it with --ntasks=1" in job.last_line


def test_the_check_of_a_gpu_says_that_there_is_none(cluster: Cluster):
    job = cluster.submit("gpu_check")
    assert job.exit_code() == 2
    assert "torch sees no GPU here" in job.log


def test_omnistat_reports_on_the_job(rehearsal: Rehearsal):
    job = rehearsal.done("omnistat", 2)
    assert f"Report Card for Job # {job.number}" in (job.folder / "report.txt").read_text()


@pytest.mark.parametrize("ranks", [1, 2])
def test_debug_agent_sets_what_lesson_09_does(cluster: Cluster, tmp_path: Path, ranks: int):
    """All waves of one rank only, and a file for each; no caches, one kernel at a time, no loader,
    no core file.
    """
    library = tmp_path / "librocm-debug-agent.so.2"
    library.touch()
    venv = made_up(tmp_path, python=RECORDS_ITSELF)
    site = {
        "DEBUG_AGENT_LIB": str(library),
        "VENV": str(venv),
        "TRAIN_OPTIONS": "--max-steps 1 --num-workers 2",
    }
    job = cluster.submit("debug_agent", f"--ntasks={ranks}", **site)
    assert job.exit_code() == 0, job.log
    for rank in range(ranks):
        lines = job.recorded(rank)
        assert {
            f"HSA_TOOLS_LIB={library}",
            "HSA_ENABLE_DEBUG=1",
            "PYTORCH_NO_HIP_MEMORY_CACHING=1",
            "HSA_DISABLE_FRAGMENT_ALLOCATOR=1",
            "AMD_SERIALIZE_KERNEL=3",
            "core=0",
        } <= set(lines)
        (options,) = [line for line in lines if line.startswith("ROCM_DEBUG_AGENT_OPTIONS=")]
        output = rf"--output={job.folder}/profile/rank{rank}_pid\d+\.txt"
        assert re.fullmatch(
            rf"ROCM_DEBUG_AGENT_OPTIONS={'--all ' if ranks == 1 else ''}{output}", options
        )
        assert lines[-2:] == ["argument=--num-workers", "argument=0"]


def test_a_missing_tool_is_one_line(cluster: Cluster):
    job = cluster.submit("debug_agent", DEBUG_AGENT_LIB="/nowhere/librocm-debug-agent.so.2")
    assert job.exit_code() == 2
    assert job.last_line.endswith(
        "/nowhere/librocm-debug-agent.so.2 is not here; set DEBUG_AGENT_LIB in site.env"
    )


def test_ranks_without_a_common_node_meet_and_share_a_port(rehearsal: Rehearsal):
    files = rehearsal.done("no_profiler", 2).files("metrics_*.jsonl")
    records = [json.loads(path.read_text().splitlines()[0]) for path in files]
    launches = [record["launch"] for record in records]
    assert {launch["launcher"] for launch in launches} == {"Slurm"}
    assert {launch["local_rank"] for launch in launches} == {0}  # one rank on each node
    assert len({(launch["address"], launch["port"]) for launch in launches}) == 1


def test_the_guide_and_the_sites_file_know_every_script_and_variable():
    guide = (REPOSITORY / "docs" / "slurm.md").read_text()
    for script in [*PER_RANK, *SINGLE, "submit_all.sh", "record_all.sh", "download_data.sh"]:
        assert f"`{script}`" in guide or f"/{script}" in guide, script
    used = "".join(path.read_text() for path in SCRIPTS.rglob("*.sh"))
    named = set(re.findall(r"\b([A-Z][A-Z_]+)=", (SCRIPTS / "site.env.example").read_text()))
    read_by_others = {
        name for name in named if name.startswith(("SBATCH_", "SLURM_", "NCCL_", "OMNISTAT_CONFIG"))
    }
    assert [name for name in sorted(named - read_by_others) if name not in used] == []


def test_the_sites_file_finds_the_course_from_anywhere(tmp_path: Path):
    command = f"source {SCRIPTS}/site.env.example && echo $COURSE_DIR $SBATCH_PARTITION"
    done = subprocess.run(
        ["bash", "-euc", command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(REPOSITORY), "mi300x"]


def test_the_guides_masks_are_those_of_its_list_of_cores():
    texts = [
        (REPOSITORY / "docs" / "slurm.md").read_text(),
        (SCRIPTS / "site.env.example").read_text(),
    ]
    found = [re.findall(r"CPU_BIND=(mask_cpu:\S+)", text) for text in texts]
    assert [len(masks) for masks in found] == [2, 1]  # LUMI and Frontier, and the example
    (row,) = re.findall(r"^\| LUMI and Frontier.*?\| (.*) \|$", texts[0], re.MULTILINE)
    ranges = [[int(core) for core in cores.split("-")] for cores in row.split(" | ")]
    bits = [sum(1 << core for core in range(first, last + 1)) for first, last in ranges]
    assert {mask for masks in found for mask in masks} == {
        "mask_cpu:" + ",".join(f"{own:x}" for own in bits)
    }


def test_the_guides_modules_are_of_the_release_that_torch_is_built_for():
    guide = (REPOSITORY / "docs" / "slurm.md").read_text()
    example = (SCRIPTS / "site.env.example").read_text()
    sites = guide[guide.index("## Three sites") :]
    assert len(set(re.findall(r"(?:TORCH=rocm|rocm/)(\d+\.\d+)", sites + example))) == 1
    for block in [*re.findall(r"^```\n(.*?)^```", guide, re.DOTALL | re.MULTILINE), example]:
        modules = re.search(r"^export MODULES=\"(.*)\"", block, re.MULTILINE)
        if modules:
            assert re.search(r"\brocm/\d", modules[1]), modules[0]
            assert "export VENV=" in block, modules[0]
    anchor = re.search(r"known-issues\.md#([a-z-]+)", guide)[1]
    headings = re.findall(
        r"^### (.+)", (REPOSITORY / "docs" / "known-issues.md").read_text(), re.MULTILINE
    )
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}
