"""Ends the processes that a notebook has started once its kernel is gone: stopped, restarted,
killed, or out of memory.

The commands of a cell are processes of their own, which a killed kernel can no longer end: they
would go on training, and slow down the next measurement. So all that a kernel starts inherits a
mark, and a small process outlives the kernel: `python -m proflab.kernel_guard PID MARK`.
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
"""Environment variable with the mark of the kernel that started the process."""

GRACE_S = 3.0
"""Time in seconds from SIGTERM, after which the trainer still writes its results, to SIGKILL."""

JOB = "SLURM_JOB_ID"
"""A job that a cell submits inherits the mark, too, but is to outlive the notebook: this variable
tells it apart.
"""


def guard_this_process() -> None:
    """Start the guard of this process; more calls start no second one."""
    if os.environ.get(VARIABLE, "").partition("-")[0] == str(os.getpid()):
        return
    mark = f"{os.getpid()}-{time.time_ns()}"
    without = {name: value for name, value in os.environ.items() if name != VARIABLE}
    # A session of its own: an interrupt or a signal to the kernel's group must not reach the guard.
    nowhere = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    command = [sys.executable, "-m", "proflab.kernel_guard", str(os.getpid()), mark]
    subprocess.Popen(command, env=without, start_new_session=True, **nowhere)
    os.environ[VARIABLE] = mark


def main(arguments: list[str]) -> int:
    """Wait until the process is gone, then end the processes that it has left behind."""
    kernel, mark = int(arguments[0]), arguments[1]
    leads_a_session = _session_of(kernel) == kernel
    _await_end(kernel)
    left = list(_left_behind(mark, kernel if leads_a_session else None))
    for process in left:
        with suppress(psutil.Error):  # ended just now
            process.terminate()
    _, stubborn = psutil.wait_procs(left, timeout=GRACE_S)
    # Processes that were started meanwhile are killed at once.
    for process in {*stubborn, *_left_behind(mark, kernel if leads_a_session else None)}:
        with suppress(psutil.Error):
            process.kill()
    return 0


def _await_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):  # not Linux, or an old one: psutil asks again and again
        with suppress(psutil.NoSuchProcess):
            psutil.Process(pid).wait()
        return
    select.select([descriptor], [], [])


def _left_behind(mark: str, session: int | None) -> Iterator[psutil.Process]:
    """Processes with the mark in the environment that they were started with, or in the session of
    the kernel.

    Forked copies of the kernel have no mark there, since the kernel set it after its own start.
    """
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except (psutil.Error, OSError):  # ended just now, or another user's
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
