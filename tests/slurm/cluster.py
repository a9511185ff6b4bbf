"""A real Slurm of two nodes on this machine, started by scripts/dev/local-slurm, and jobs submitted
to it.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import REPOSITORY
from tidyprof_tests.patience import PATIENCE_S

SCRIPTS = REPOSITORY / "scripts" / "slurm"
LOCAL_SLURM = REPOSITORY / "scripts" / "dev" / "local-slurm"
OF_A_JOB = ("SLURM", "SBATCH", "OMPI", "PMI", "COURSE_DIR", "RESULTS_DIR", "SITE_ENV")
"""First letters of variables that a test's jobs must not inherit."""


def clean_environment() -> dict[str, str]:
    """This process's environment without what an outer job or site has set."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OF_A_JOB)}


def made_up(folder: Path, **programs: str) -> Path:
    """An environment, to be used as VENV, of programs that are only what their bash scripts say."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for name, script in programs.items():
        program = folder / "bin" / name.replace("_", "-")
        program.write_text(f"#!/bin/bash\n{script}\n")
        program.chmod(0o755)
    return folder


RECORDS_ITSELF = (
    '{ echo "core=$(ulimit -c)"; env; printf "argument=%s\\n" "$@"; } '
    '>"$RESULTS/metrics_rank${RANK:-$SLURM_PROCID}.jsonl"'
)
"""In the place of python: leaves what it was started with, under a name that a job of the trainer
expects.
"""


@dataclass(frozen=True)
class SubmittedJob:
    """A job and where its results go; `folder` is that of its first start."""

    cluster: Cluster
    number: int
    folder: Path

    @property
    def log(self) -> str:
        path = self.folder.with_name(f"{self.folder.name}.out")
        return path.read_text() if path.exists() else ""

    @property
    def last_line(self) -> str:
        lines = [line for line in self.log.splitlines() if line.strip()]
        return lines[-1] if lines else ""

    @property
    def state(self) -> str:
        question = ("squeue", "--noheader", "--format=%T", "--states=all")
        return self.cluster.ask(*question, f"--job={self.number}")

    def field(self, name: str) -> str:
        """A value of `scontrol show job`."""
        shown = self.cluster.ask("scontrol", "show", "job", str(self.number))
        return re.search(rf"\b{name}=(\S+)", shown)[1]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; fails with the job's log where the job is over without it."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            over = self.is_over  # asked first: the condition may come true with the end
            assert condition() or not over, f"the job is over without {what}:\n{self.log}"
            assert time.monotonic() < deadline, (
                f"{what} did not happen within {PATIENCE_S} s:\n{self.log}"
            )
            time.sleep(0.3)

    @property
    def is_over(self) -> bool:
        return self.state in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")

    def exit_code(self) -> int:
        """Wait for the end; the code of the batch script, as Slurm has it."""
        self.until(lambda: self.is_over, "the end of the job")
        return int(self.field("ExitCode").partition(":")[0])

    def training(self) -> None:
        """Wait until the first steps are over."""
        self.until(lambda: re.search(r"step \d+ of", self.log) is not None, "training")

    def files(self, pattern: str) -> list[Path]:
        return sorted(self.folder.rglob(pattern))

    def recorded(self, rank: int) -> list[str]:
        """The lines that RECORDS_ITSELF left for a rank."""
        return (self.folder / f"metrics_rank{rank}.jsonl").read_text().splitlines()


def finished(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever its exit code is."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, **options
    )


@dataclass
class Cluster:
    """The local Slurm. `environment` is what a user's shell has after its start."""

    folder: Path
    environment: dict[str, str]

    @classmethod
    def start(cls, folder: Path, python: str) -> Cluster:
        """Start Slurm below `folder`; jobs find `python` as their interpreter."""
        venv = made_up(folder / "venv", torchrun='exec python -m torch.distributed.run "$@"')
        (venv / "bin" / "python").symlink_to(python)
        # torchrun asks PYTHON_EXEC for the interpreter of its ranks.
        environment = clean_environment() | {"VENV": str(venv), "PYTHON_EXEC": python}
        done = finished([LOCAL_SLURM, "start", folder], env=environment)
        assert done.returncode == 0, done.stderr
        settings = dict(word.split("=", 1) for word in done.stdout.replace("export ", "").split())
        return cls(folder, environment | settings)

    def stop(self) -> None:
        self.ask("scancel", f"--user={os.getuid()}")
        self.run(LOCAL_SLURM, "stop", str(self.folder))

    def ask(self, *command: str) -> str:
        """What a command of Slurm prints."""
        return self.run(*command).stdout.strip()

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command as on the login node, with some of the site's values changed."""
        return finished(command, env=self.environment | variables, cwd=self.folder)

    def submit(self, script: str, *options: str, **variables: str) -> SubmittedJob:
        """Submit a job script as a user does, with some of the site's values changed."""
        site = {"SMOKE_TEST_SECONDS": "0"} | variables
        done = self.run(SCRIPTS / "submit.sh", script, *options, **site)
        assert done.returncode == 0, done.stderr
        results = Path(variables.get("RESULTS_DIR", self.folder / "results"))
        return SubmittedJob(self, int(done.stdout), results / f"{script}_{done.stdout.strip()}")
