"""The whole set in one go, resumed where it was left, against a made-up Slurm that only keeps a
queue.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.slurm.cluster import SCRIPTS, clean_environment
from tidyprof_tests.patience import PATIENCE_S

SBATCH = """#!/bin/bash
number=$(($(cat "$QUEUE/last" 2>/dev/null || echo 100) + 1))
echo $number >"$QUEUE/last"
echo "$number $*" >>"$QUEUE/asked"
touch "$QUEUE/$number.waiting"
echo $number
"""
SQUEUE = """#!/bin/bash
for word in "$@"; do
    case $word in --job) next=yes ;; *) [ "${next:-}" != yes ] || { job=$word; next=; } ;; esac
done
if [ -n "${job:-}" ]; then [ ! -f "$QUEUE/$job.waiting" ] || echo PENDING; fi
"""


class Set:
    """submit_all.sh with RANKS=4, its queue, and ways to let jobs end."""

    def __init__(self, folder: Path) -> None:
        self.results, self.queue = folder / "results", folder / "queue"
        self.queue.mkdir()
        programs = folder / "bin"
        programs.mkdir()
        for name, text in {"sbatch": SBATCH, "squeue": SQUEUE}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.environment = clean_environment() | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "QUEUE": str(self.queue),
            "COURSE_DIR": str(REPOSITORY),
            "RESULTS_DIR": str(self.results),
            "RANKS": "4",
        }

    def __call__(self, *arguments: str) -> list[list[str]]:
        """Run it; returns the table's rows."""
        command = [str(SCRIPTS / "submit_all.sh"), *arguments]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [line.split() for line in done.stdout.splitlines()[1:]]

    @property
    def asked(self) -> dict[str, str]:
        """The options of every sbatch, by job number, in order."""
        lines = (self.queue / "asked").read_text().splitlines()
        return dict(line.split(" ", 1) for line in lines)

    def end(self, number: str, name: str, code: int | None) -> None:
        (self.queue / f"{number}.waiting").unlink()
        if code is not None:
            (self.results / f"{name}_{number}").mkdir()
            (self.results / f"{name}_{number}" / "exit_code").write_text(f"{code}\n")


@pytest.fixture
def whole_set(tmp_path: Path) -> Set:
    return Set(tmp_path)


def test_all_jobs_are_submitted_in_order_and_depend_on_the_plain_training(whole_set: Set):
    rows = whole_set()
    asked = list(whole_set.asked.values())
    assert len(rows) == len(asked) == 22  # 12 for one process, 10 for many ranks
    assert asked[0].split()[-1].endswith("/no_profiler.sh")
    assert "--dependency" not in asked[0]
    assert "--dependency=afterany:101,afterok:101" in asked[1]
    assert "--dependency=afterany:102,afterok:101" in asked[2]
    assert all("--kill-on-invalid-dep=yes" in line for line in asked)
    assert sum("--ntasks=4" in line for line in asked) == 10
    assert {row[3] for row in rows} == {"PENDING"}


def test_analysis_waits_for_its_profile_and_is_told_its_number(whole_set: Set):
    whole_set()
    (profile,) = [
        number for number, line in whole_set.asked.items() if "rocprof_compute_profile.sh" in line
    ]
    (analysis,) = [
        line for line in whole_set.asked.values() if "rocprof_compute_analyze.sh" in line
    ]
    assert f",afterok:{profile}" in analysis
    assert analysis.endswith(f"/rocprof_compute_analyze.sh {profile}")


def test_a_second_call_submits_only_what_failed_or_never_ran(whole_set: Set):
    whole_set()
    whole_set.end("101", "no_profiler", 0)
    whole_set.end("102", "torch_profiler", 137)
    whole_set.end("103", "rocprofv3_kernels", None)
    state = {(row[0], row[1]): row[2:4] for row in whole_set("--status")}
    assert state["no_profiler", "1"] == ["101", "DONE"]
    assert state["torch_profiler", "1"] == ["102", "FAILED:137"]
    assert state["rocprofv3_kernels", "1"] == ["103", "NOT:RUN"]
    assert len(whole_set.asked) == 22  # --status submits nothing
    rows = whole_set()
    again = list(whole_set.asked.items())[22:]
    assert [line.split()[-1].rpartition("/")[2] for _, line in again] == [
        "torch_profiler.sh",
        "rocprofv3_kernels.sh",
    ]
    assert ["torch_profiler", "1", again[0][0], "PENDING"] in [row[:4] for row in rows]


@pytest.mark.parametrize(("site", "one"), [("8", "1"), ("mi300x:8", "mi300x:1")])
def test_jobs_of_one_process_take_one_of_the_sites_gpus(whole_set: Set, site: str, one: str):
    whole_set.environment["SBATCH_GPUS_PER_NODE"] = site
    whole_set()
    for line in whole_set.asked.values():
        assert (f"--gpus-per-node={one} " in line) == ("--ntasks=1 " in line), line
        assert line.count("--gpus-per-node") <= 1


def test_a_site_that_names_no_gpus_is_not_asked_for_any(whole_set: Set):
    whole_set()
    assert not any("--gpus" in line for line in whole_set.asked.values())
