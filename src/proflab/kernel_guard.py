"""Cleanup of a notebook's child processes after its Jupyter kernel ends.

The Jupyter kernel may have been stopped, restarted or killed, or it may have run out of memory.
A killed kernel can't end the commands that cells started, because these commands run as separate
processes. The commands would keep training and slow down the next measurement. Therefore, every
process that a Jupyter kernel starts inherits a mark. A small guard process outlives the Jupyter
kernel: `python -m proflab.kernel_guard PID MARK`.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil

VARIABLE = "PROFLAB_KERNEL"
"""Environment variable with the mark of the Jupyter kernel that started the process."""

GRACE_S = 3.0
"""Seconds between SIGTERM and SIGKILL. The trainer uses this time to write its results."""

JOB = "SLURM_JOB_ID"
"""Environment variable that identifies a Slurm job.

A job submitted from a cell also inherits the mark, but the job must outlive the notebook.
"""


def guard_this_process() -> None:
    """Start the guard for this process, unless the guard is already running."""
    if os.environ.get(VARIABLE, "").partition("-")[0] == str(os.getpid()):
        return
    mark = f"{os.getpid()}-{time.time_ns()}"
    without = {name: value for name, value in os.environ.items() if name != VARIABLE}
    # Run the guard in a separate session, so that signals to the Jupyter kernel's process group,
    # such as an interrupt, don't reach the guard.
    nowhere = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    command = [sys.executable, "-m", "proflab.kernel_guard", str(os.getpid()), mark]
    subprocess.Popen(command, env=without, start_new_session=True, **nowhere)
    os.environ[VARIABLE] = mark


def main(arguments: list[str]) -> int:
    """Wait until the Jupyter kernel ends, and then stop the processes that it left behind."""
    kernel, mark = int(arguments[0]), arguments[1]
    leads_a_session = _session_of(kernel) == kernel
    _await_end(kernel)
    left = list(_left_behind(mark, kernel if leads_a_session else None))
    for process in left:
        with suppress(psutil.Error):  # the process has already ended
            process.terminate()
    _, stubborn = psutil.wait_procs(left, timeout=GRACE_S)
    # Immediately kill any processes that were started in the meantime.
    for process in {*stubborn, *_left_behind(mark, kernel if leads_a_session else None)}:
        with suppress(psutil.Error):
            process.kill()
    return 0


def _await_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux, or an old kernel: psutil polls
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait()
        return
    select.select([descriptor], [], [])


def _left_behind(mark: str, session: int | None) -> Iterator[psutil.Process]:
    """Yield the processes that have the mark or belong to the Jupyter kernel's session.

    A forked copy of the kernel doesn't have the mark in its initial environment because the
    kernel sets the mark after its own start.
    """
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):  # the process has ended or belongs to another user
            continue
        own = environment.get(VARIABLE) == mark or (
            session is not None and _session_of(process.pid) == session
        )
        if own and environment.get(JOB) == os.environ.get(JOB):
            yield process


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
