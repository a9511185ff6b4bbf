"""Run another program without ever waiting for it in vain: limited in time and output, stopped with its children."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

MOST_BYTES = 1 << 20
"""A version line is short; a program that writes more than this is stopped."""

_PAUSE_S = 0.02


@dataclass(frozen=True)
class Answer:
    """What a program did. `end` is exit, time-out, flood (too much output) or not started; `code` is set for exit.

    A program that a signal ended has a negative code, as in `subprocess`. Bytes that are not UTF-8 are replaced.
    """

    end: str
    code: int | None = None
    out: str = ""
    err: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.end == "exit" and self.code == 0

    @property
    def text(self) -> str:
        """Both outputs."""
        return f"{self.out}\n{self.err}"

    @property
    def last_line(self) -> str:
        """The last line that says something, where errors usually stand."""
        lines = [line.strip() for line in (*self.out.splitlines(), *self.err.splitlines()) if line.strip()]
        return lines[-1] if lines else ""


def run(
    command: Sequence[str], limit_s: float, environment: Mapping[str, str], running: set[int] | None = None
) -> Answer:
    """Run `command` for at most `limit_s` seconds, without input, in a session of its own.

    `running` holds the process's id while it runs, so that another thread can stop it.
    """
    running = set() if running is None else running
    # Files, not pipes: a child that keeps one open is not waited for.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=dict(environment),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Answer("not started", err=str(error))
        running.add(process.pid)
        try:
            end = _wait(process.pid, (out, err), time.monotonic() + limit_s)
        finally:
            stop(process.pid)
            code = process.wait()
            running.discard(process.pid)
        texts = (_text(file) for file in (out, err))
        return Answer(end, code if end == "exit" else None, *texts)


def _wait(pid: int, files: Sequence[IO[bytes]], deadline: float) -> str:
    """How it ended: by itself, too late, or after too much output."""
    while True:
        # The process is left unwaited for, which keeps its number from being given away.
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if sum(os.fstat(file.fileno()).st_size for file in files) > MOST_BYTES:
            return "flood"
        if ended:
            return "exit"
        if time.monotonic() > deadline:
            return "time-out"
        time.sleep(_PAUSE_S)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MOST_BYTES).decode(errors="replace")


def stop(pid: int) -> None:
    """Kill the process group of `pid`, and descendants that have left it for a session of their own.

    The group is alive until its leader has been waited for, so no other program's number can be hit.
    """
    leavers = _descendants(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for child in leavers:
        with contextlib.suppress(Exception):  # it has just ended by itself, or there is no /proc to tell
            child.kill()


def _descendants(pid: int) -> list:
    import psutil

    try:
        return psutil.Process(pid).children(recursive=True)
    except Exception:  # without /proc psutil fails in several ways; the group is killed all the same
        return []
