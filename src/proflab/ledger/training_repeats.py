"""Run the course's trainer again and again, each time in a process and a folder of its own."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from proflab import journal
from proflab.errors import CourseError
from proflab.training import TrainingRun, training_run

FOLDER = "ledger"
"""Folder of the repeats, below the runs folder."""


def trainer(options: str = "", timeout_s: float = 3600) -> Callable[[], TrainingRun]:
    """A function that trains once with these options, such as "--batch-size 8 --channels-last", and gives the run.

    `--check-gradients` is always added, so that the correctness gate has what it needs. A run whose gradients fail
    that check is returned too: the gate says so. Any other failure raises CourseError with the trainer's message.
    """
    words = shlex.split(options)
    if any(word.split("=")[0] == "--run-dir" for word in words):
        raise CourseError("leave out --run-dir: every repeat gets a folder of its own")

    def train() -> TrainingRun:
        folder = _next_folder()
        command = [sys.executable, "-m", "cifar_train", *words, "--check-gradients", "--run-dir", str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except subprocess.TimeoutExpired:
            raise CourseError(f"the trainer did not end within {timeout_s:g} s; take fewer --max-steps") from None
        lines = done.stderr.strip().splitlines() or [""]
        if done.returncode and "gradient check failed" not in lines[-1]:
            raise CourseError(f"the trainer failed with `{options}`: {lines[-1] or f'exit code {done.returncode}'}")
        return training_run(folder)

    return train


def _next_folder() -> Path:
    """A new folder below the runs folder: what an earlier run left is never read as a new result."""
    base = journal.runs_folder() / FOLDER
    taken = [int(path.name) for path in base.glob("*") if path.name.isdigit()] if base.is_dir() else []
    return base / f"{max(taken, default=0) + 1:04d}"
