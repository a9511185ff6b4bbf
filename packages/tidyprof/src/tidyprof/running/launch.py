"""Starts a program with hooks in front of it, passes signals on, and ends as it ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
FIRST = HERE / "first"
"""The folder that goes first on the program's PYTHONPATH."""

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
POLL_S = 0.5
"""How often the folder is looked at while the program runs."""

NOT_FOUND, NOT_RUN = 127, 126
"""Exit codes of a shell for a command that does not exist, and for one that can't be run."""


@dataclass(frozen=True)
class Asked:
    """What the hooks are asked for: the folder (out), the steps before the trace (after) and in it
    (steps), whether it has call stacks and shapes, and the range or function that marks a step.
    """

    out: str
    after: int
    steps: int
    stacks: bool
    shapes: bool
    mark: str


def environment(asked: Asked) -> dict[str, str]:
    """The program's environment: this one, and the hooks."""
    path = os.environ.get("PYTHONPATH")
    return {
        "KINETO_LOG_LEVEL": "99",  # silences what PyTorch's profiler logs to standard error
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(FIRST), *([path] if path else [])]),
        "TIDYPROF_RUN": json.dumps(asdict(asked)),
    }


def launch(command: Sequence[str], asked: Asked, look: Callable[[], None]) -> int:
    """Run the command to its end, and call `look` every POLL_S seconds meanwhile.

    Returns the exit code, or the negative number of the signal that ended the command. Raises
    OSError where the command can't start.
    """
    process = subprocess.Popen(command, env=environment(asked))
    before = {number: signal.signal(number, _pass_on(process)) for number in PASSED_ON}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, _interrupt(process))
    before[signal.SIGUSR2] = signal.signal(signal.SIGUSR2, _again(Path(asked.out)))
    try:
        while True:
            try:
                return process.wait(timeout=POLL_S)
            except subprocess.TimeoutExpired:
                look()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pass_on(process: subprocess.Popen[bytes]) -> Callable[[int, FrameType | None], None]:
    return lambda number, frame: process.send_signal(number)


def _interrupt(process: subprocess.Popen[bytes]) -> Callable[[int, FrameType | None], None]:
    def handle(number: int, frame: FrameType | None) -> None:
        # A terminal sends Ctrl-C to the program as well; a signal from another process comes here
        # only and has to be passed on.
        if not _is_in_front():
            process.send_signal(number)

    return handle


def _is_in_front() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _again(folder: Path) -> Callable[[int, FrameType | None], None]:
    """A handler that passes the signal to the processes that have hooks, and not to a launcher,
    which it would end.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        for file in folder.glob("run_rank*.json"):
            try:
                os.kill(json.loads(file.read_text())["pid"], number)
            except (OSError, ValueError, KeyError):
                continue

    return handle


def end_as(code: int) -> int:
    """The exit code to end with; where a signal ended the program, the same signal ends this
    process.
    """
    if code >= 0:
        return code
    sys.stdout.flush()
    sys.stderr.flush()
    if -code not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(-code, signal.SIG_DFL)
    # Only the program's core file is of interest, and this process would write one, too.
    _no_core_file()
    os.kill(os.getpid(), -code)
    return 128 - code


def _no_core_file() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
