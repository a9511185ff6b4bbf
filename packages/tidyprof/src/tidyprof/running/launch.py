"""Start a program with hooks, forward signals to it, and exit with its exit code or signal."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIRST = HERE / "first"
"""The folder that comes first on the program's PYTHONPATH."""

JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT}
"""Signals with which a shell stops and continues a job. They also affect this process."""

FROM_TERMINAL = {signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGWINCH}
"""Signals that a terminal sends to the command and the program at the same time."""

SI_KERNEL = 0x80
"""The code of a signal that no process sent (Linux, asm-generic/siginfo.h)."""

PR_SET_PDEATHSIG = 1
"""The prctl option that sends a signal when the parent process ends (Linux, linux/prctl.h)."""

POLL_S = 0.5
"""The time in seconds between two checks whether the program still runs."""

NOT_FOUND, NOT_RUN = 127, 126
"""A shell's exit codes for a command that doesn't exist, and for a command that can't run."""


@dataclass(frozen=True)
class Asked:
    """The options for the hooks.

    - out: the output folder.
    - after, steps: the number of steps before the trace, and the number of steps in the trace.
    - stacks, shapes: whether to record call stacks, and whether to record input shapes.
    - mark: the name of the range or function that marks a step.
    - launched_ns: the start time of the program in ns since 1970.
    """

    out: str
    after: int
    steps: int
    stacks: bool
    shapes: bool
    mark: str
    launched_ns: int = 0


def environment(asked: Asked) -> dict[str, str]:
    """Return the program's environment, which is the user's environment plus the hooks."""
    path = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        **_users_path(),
        "PYTHONPATH": os.pathsep.join([str(FIRST), *([path] if path else [])]),
        "TIDYPROF_RUN": json.dumps(asdict(asked)),
    }


def _users_path() -> dict[str, str]:
    """Return PATH without the folder of tidyprof's own environment, or nothing if PATH is right.

    uvx puts this folder first, so `python` would be a Python without the user's packages. If the
    environment contains torch, the user may have chosen it, so PATH stays as it is.
    """
    first, _, others = os.environ.get("PATH", "").partition(os.pathsep)
    is_own = first == str(Path(sys.executable).parent) and find_spec("torch") is None
    return {"PATH": others} if is_own and others else {}


@dataclass(frozen=True)
class Ended:
    """The end of a program.

    - code: the exit code, or the negative signal number if a signal ended the program.
    - launched_ns: the start time in ns since 1970.
    - ended_ns: the end time in ns since 1970.
    """

    code: int
    launched_ns: int
    ended_ns: int


def launch(command: Sequence[str], asked: Asked) -> Ended:
    """Run the command until it ends.

    The program inherits the signal settings and open files of this process. While the program runs,
    this process forwards every signal that it receives. Raises OSError if the command can't start.
    """
    waited = signal.valid_signals() - JOB_CONTROL
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    # If a parent process ignores SIGCHLD, Linux discards the exit code.
    children = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    libc = ctypes.CDLL(None)

    def as_it_was() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, children or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    try:
        process = subprocess.Popen(
            command,
            env=environment(asked),
            close_fds=False,
            preexec_fn=as_it_was,  # this process has a single thread
        )
        while process.poll() is None:
            got = signal.sigtimedwait(waited, POLL_S)
            if got is not None and got.si_signo != signal.SIGCHLD:
                _pass_on(got, process)
        return Ended(process.returncode, asked.launched_ns, time.time_ns())
    finally:
        signal.signal(signal.SIGCHLD, children or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _pass_on(got: signal.struct_siginfo, process: subprocess.Popen[bytes]) -> None:
    number = signal.Signals(got.si_signo) if got.si_signo in set(signal.Signals) else got.si_signo
    if got.si_code == SI_KERNEL and number in FROM_TERMINAL:
        return
    process.send_signal(number)


def end_as(code: int) -> int:
    """Return the exit code. If a signal ended the program, end this process by that signal."""
    if code >= 0:
        return code
    sys.stdout.flush()
    sys.stderr.flush()
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    # Prevent this process from writing a core file, because only the program's core file is useful.
    _no_core_file()
    os.kill(os.getpid(), -code)
    return 128 - code


def _no_core_file() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
