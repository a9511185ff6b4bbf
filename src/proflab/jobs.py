"""Slurm jobs from a notebook: submit one, go on with a recording, and look at the live result when
the job is done.

The jobs are the scripts in scripts/slurm; docs/slurm.md tells how a site sets them up.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proflab.display import Notice, near, show
from proflab.errors import CourseError
from proflab.recordings import Recording

ANSWER_S = 60
"""Longest wait for a Slurm command, in seconds; busy controllers need some."""

POLL_S = 2.0
"""Time between two looks at a job, in seconds."""

WAITING = ("PENDING", "CONFIGURING", "SUSPENDED", "REQUEUED")
OVER = ("", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
"""States of squeue (man squeue, JOB STATE CODES) of a job that does not run yet, and of one that is
over or has left the queue; in other states it counts as running.
"""

FILES = ("profile/*.pftrace", "profile/*.rpd", "train/trace_rank*.json.gz")
"""Files below a job's folder that a reader takes one by one."""

FOLDERS = ("workloads/*/*/sysinfo.csv", "profile/*", "train/metrics_rank*.jsonl")
"""Files that mark a folder which a reader takes as a whole."""


@dataclass(frozen=True, repr=False)
class Job:
    """A submitted job. Without Slurm, `number` and `folder` are None, and there is only the
    `recording`.
    """

    script: str
    number: int | None
    folder: Path | None
    recording: Recording | Path | None = None

    @property
    def state(self) -> str:
        """`no Slurm`, `waiting`, `running`, `done`, `failed: why`, or `unknown` if Slurm has
        forgotten the job.
        """
        if self.number is None:
            return "no Slurm"
        queued = _ask("squeue", "--noheader", f"--job={self.number}", "--format=%T")
        if queued not in OVER:
            return "waiting" if queued in WAITING else "running"
        left = _last_start(self.folder) / "exit_code"
        if left.is_file():
            code = left.read_text().strip()
            return "done" if code == "0" else f"failed: {self._last_words or f'exit code {code}'}"
        which = ("--allocations", f"--jobs={self.number}", "--format=State")
        found = re.match(r"[A-Z_]+", _ask("sacct", "--noheader", "--parsable2", *which))
        if found is None:
            return "unknown"
        return "done" if found[0] == "COMPLETED" else f"failed: {self._last_words or found[0]}"

    @property
    def log(self) -> str:
        """The output of the job so far."""
        path = None if self.folder is None else self.folder.with_name(f"{self.folder.name}.out")
        return path.read_text(errors="replace") if path is not None and path.is_file() else ""

    @property
    def _last_words(self) -> str:
        return (["", *filter(str.strip, self.log.splitlines())])[-1]

    def wait(self, seconds: float = 600) -> Job:
        """Wait until the job is over, at most `seconds`. `state` tells how it ended."""
        deadline = time.monotonic() + seconds
        while self.state in ("waiting", "running") and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return self

    def result(self) -> list[Path]:
        """Return the paths to give to `tidyprof.read`: the job's own files once it is done, until
        then those of the recording.

        Shows a line that tells which. Raises CourseError if there is neither.
        """
        state = self.state
        found = readable_paths(_last_start(self.folder)) if state == "done" else []
        if found:
            text = f"what follows is its own result, from `{self.folder}`"
            show(Notice(f"Job {self.number} is done", text))
            return found
        reason = f"job {self.number}: {state}" if self.number else "there is no Slurm here"
        if self.recording is None:
            raise CourseError(
                f"{self.script}: {reason}, without files that a reader knows, and no recording was"
                " named; look at `job.log`"
            )
        path = self.recording.path if isinstance(self.recording, Recording) else self.recording
        show(Notice("A recording", f"{reason}; what follows is from `{path.name}`", tone="open"))
        return [path]

    def __repr__(self) -> str:
        return f"Job {self.number or ''} {self.script}: {self.state}; results in {self.folder}"


def job(
    script: str,
    *arguments: str,
    ranks: int = 1,
    nodes: int = 1,
    options: Sequence[str] = (),
    recording: Recording | Path | None = None,
) -> Job:
    """Submit a script of scripts/slurm, such as "rocprofv3_kernels", and return at once.

    arguments -- for the script.
    options   -- more options for sbatch.
    recording -- shown until the job is done: from `proflab.try_recording`, or a path.

    Without Slurm nothing is submitted, and a line says so. Raises CourseError for an unknown
    script, and with Slurm's own reason if it refuses.
    """
    folder = scripts_folder()
    # Scripts without #SBATCH, such as submit.sh, are no jobs: they submit or set up.
    known = sorted(path.stem for path in folder.glob("*.sh") if "#SBATCH" in path.read_text())
    if script not in known:
        raise CourseError(f"there is no job script {script!r}: {near(script, known)}")
    if shutil.which("sbatch") is None:
        text = f"`{script}` cannot be submitted; on a cluster this cell would do it."
        show(Notice("No Slurm here", text, tone="open"))
        return Job(script, None, None, recording)
    command = [str(folder / "submit.sh"), script, f"--ntasks={ranks}", f"--nodes={nodes}"]
    number = _submitted([*command, *options, "--", *arguments])
    # The folder of results has the name of the log: only the site's settings tell where that is.
    known_to_slurm = _ask("scontrol", "show", "job", number)
    log = re.search(r"StdOut=(.+)\.out$", known_to_slurm, re.MULTILINE)
    if log is None:
        raise CourseError(f"job {number} was submitted, but Slurm lost it; see `squeue --me`")
    place = Path(log[1].replace("%x", script).replace("%j", number))
    text = f"job {number}, `{script}`, ranks: {ranks}; go on, and ask `job.state` later"
    show(Notice("Submitted", text))
    return Job(script, int(number), place, recording)


def scripts_folder() -> Path:
    """Return the folder of job scripts: in COURSE_DIR, or in this checkout. Raises CourseError if
    there is none.
    """
    course = Path(os.environ.get("COURSE_DIR") or Path(__file__).parents[2])
    folder = course / "scripts" / "slurm"
    if not (folder / "submit.sh").is_file():
        raise CourseError(
            f"{folder}: the job scripts are not here; set COURSE_DIR to a clone of the course"
        )
    return folder


def _submitted(command: Sequence[str]) -> str:
    """The number of the new job. Raises CourseError."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CourseError(f"sbatch gave no answer in {ANSWER_S} s; see `squeue --me`") from None
    answer = done.stdout.strip()
    if done.returncode or not answer.isdecimal():
        said = (done.stderr.strip() or answer or "no reason given").splitlines()[0]
        raise CourseError(f"not submitted: {said}; the site's values are in scripts/slurm/site.env")
    return answer


def _ask(*command: str) -> str:
    """The output of a Slurm command; "" if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _last_start(folder: Path) -> Path:
    """The folder of the job's last start: a job that was requeued has one folder for each start."""
    again = [path for path in folder.parent.glob(f"{folder.name}_restart*") if path.is_dir()]
    return max(again, key=lambda path: int(path.name.rpartition("_restart")[2]), default=folder)


def readable_paths(folder: Path) -> list[Path]:
    """Return the paths in a job's folder for `tidyprof.read`: a file for each rank, or one folder
    for all ranks.
    """
    for pattern in FILES:
        if found := sorted(folder.glob(pattern)):
            return found
    for pattern in FOLDERS:
        if found := sorted(folder.glob(pattern)):
            return [found[0].parent]
    return []
