"""The whole set in one go, resumed where it was left, against a fake Slurm that keeps a queue."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.slurm.cluster import SCRIPTS, clean_environment, made_up
from tidyprof_tests.patience import PATIENCE_S

SBATCH = """
number=$(($(cat "$QUEUE/last" 2>/dev/null || echo 100) + 1))
echo $number >"$QUEUE/last"
echo "$number $*" >>"$QUEUE/asked"
touch "$QUEUE/$number.waiting"
echo $number
"""
SQUEUE = """
for word in "$@"; do
    case $word in --job) next=yes ;; *) [ "${next:-}" != yes ] || { job=$word; next=; } ;; esac
done
if [ -n "${job:-}" ]; then [ ! -f "$QUEUE/$job.waiting" ] || echo PENDING; fi
"""


class Set:
    """submit_all.sh with RANKS=4, its queue, and ways to let jobs end."""

    def __init__(self, folder: Path, gpus: str) -> None:
        self.results, self.queue = folder / "results", folder / "queue"
        self.queue.mkdir()
        programs = made_up(folder, sbatch=SBATCH, squeue=SQUEUE) / "bin"
        self.environment = clean_environment() | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "QUEUE": str(self.queue),
            "COURSE_DIR": str(REPOSITORY),
            "RESULTS_DIR": str(self.results),
            "RANKS": "4",
            "SBATCH_GPUS_PER_NODE": gpus,
        }

    def __call__(self, *arguments: str) -> dict[tuple[str, str], str]:
        """Run it; returns the state of each script with its number of ranks."""
        command = [str(SCRIPTS / "submit_all.sh"), *arguments]
        done = subprocess.run(
            command, stdout=-1, text=True, env=self.environment, timeout=PATIENCE_S, check=True
        )
        rows = [line.split() for line in done.stdout.splitlines()[1:]]
        return {(row[0], row[1]): row[3] for row in rows}

    @property
    def asked(self) -> list[str]:
        """The number, the options and the script of every sbatch, in order."""
        return (self.queue / "asked").read_text().splitlines()

    def end(self, number: int, name: str, code: int | None) -> None:
        (self.queue / f"{number}.waiting").unlink()
        if code is not None:
            (self.results / f"{name}_{number}").mkdir()
            (self.results / f"{name}_{number}" / "exit_code").write_text(f"{code}\n")


@pytest.mark.parametrize(("site", "one"), [("8", "1"), ("mi300x:8", "mi300x:1"), ("", None)])
def test_all_jobs_depend_on_the_plain_training_and_take_their_share_of_the_gpus(
    tmp_path: Path, site: str, one: str | None
):
    whole_set = Set(tmp_path, site)
    states = whole_set()
    asked = whole_set.asked
    assert len(states) == len(asked) == 22  # 12 for one process, 10 for many ranks
    assert set(states.values()) == {"PENDING"}
    assert asked[0].endswith("/no_profiler.sh")
    assert "--dependency" not in asked[0]
    for before, line in pairwise(asked):
        after = "" if line.endswith("/no_profiler.sh") else ",afterok:101"
        assert f"--dependency=afterany:{before.split()[0]}{after}" in line
    for line in asked:
        assert "--kill-on-invalid-dep=yes" in line
        assert (f"--gpus-per-node={one} " in line) == (one is not None and "--ntasks=1 " in line)
    (profile,) = [line.split()[0] for line in asked if "rocprof_compute_profile.sh" in line]
    (analysis,) = [line for line in asked if "rocprof_compute_analyze.sh" in line]
    assert f",afterok:{profile}" in analysis
    assert analysis.endswith(f"/rocprof_compute_analyze.sh {profile}")


def test_a_second_call_submits_only_what_failed_or_never_ran(tmp_path: Path):
    whole_set = Set(tmp_path, "8")
    whole_set()
    whole_set.end(101, "no_profiler", 0)
    whole_set.end(102, "torch_profiler", 137)
    whole_set.end(103, "rocprofv3_kernels", None)
    states = whole_set("--status")
    names = ("no_profiler", "torch_profiler", "rocprofv3_kernels")
    assert [states[name, "1"] for name in names] == ["DONE", "FAILED:137", "NOT:RUN"]
    assert len(whole_set.asked) == 22  # --status submits nothing
    states = whole_set()
    again = [line.rpartition("/")[2] for line in whole_set.asked[22:]]
    assert again == ["torch_profiler.sh", "rocprofv3_kernels.sh"]
    assert states["torch_profiler", "1"] == "PENDING"
