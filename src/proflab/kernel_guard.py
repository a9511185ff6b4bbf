"""Cleanup of the processes that a notebook started, after its kernel is gone.

The kernel may have been stopped, restarted or killed, or it ran out of memory. Commands in a cell
are separate processes, which a killed kernel can't end. They would keep training and slow down the
next measurement. Therefore, everything that a kernel starts inherits a mark, and a small process
outlives the kernel: `python -m proflab.kernel_guard PID MARK`.
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
"""Environment variable that contains the mark of the kernel that started the process."""

GRACE_S = 3.0
"""Seconds between SIGTERM and SIGKILL, so that the trainer can write its results."""

JOB = "SLURM_JOB_ID"
"""Variable that identifies a Slurm job.

A job that a cell submits also inherits the mark, but it must outlive the notebook.
"""


def guard_this_process() -> None:
    """Start the guard of this process. Repeated calls don't start a second guard."""
    if os.environ.get(VARIABLE, "").partition("-")[0] == str(os.getpid()):
        return
    mark = f"{os.getpid()}-{time.time_ns()}"
    without = {name: value for name, value in os.environ.items() if name != VARIABLE}
    # Use a separate session, so that an interrupt or a signal to the kernel's group doesn't reach
    # the guard.
    nowhere = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    command = [sys.executable, "-m", "proflab.kernel_guard", str(os.getpid()), mark]
    subprocess.Popen(command, env=without, start_new_session=True, **nowhere)
    os.environ[VARIABLE] = mark


def main(arguments: list[str]) -> int:
    """Wait until the kernel's process is gone, then end the processes that it left behind."""
    kernel, mark = int(arguments[0]), arguments[1]
    leads_a_session = _session_of(kernel) == kernel
    _await_end(kernel)
    left = list(_left_behind(mark, kernel if leads_a_session else None))
    for process in left:
        with suppress(psutil.Error):  # the process has just ended
            process.terminate()
    _, stubborn = psutil.wait_procs(left, timeout=GRACE_S)
    # Kill processes that were started in the meantime at once.
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
    """Yield the processes that were started with the mark or belong to the kernel's session.

    Forked copies of the kernel don't have the mark in their initial environment because the kernel
    set it after its own start.
    """
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):  # has just ended, or belongs to another user
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
