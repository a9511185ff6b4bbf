"""Run another program without ever waiting for it in vain: limited in time and output, stopped with its children."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
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
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        return Answer("not started", err=str(error))
    running = set() if running is None else running
    running.add(process.pid)
    try:
        end, out, err = _listen(process, time.monotonic() + limit_s)
    finally:
        stop(process.pid)
        code = process.wait()
        running.discard(process.pid)
        for stream in (process.stdout, process.stderr):
            stream.close()
    texts = out.decode(errors="replace"), err.decode(errors="replace")
    return Answer(end, code if end == "exit" else None, *texts)


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


def _listen(process: subprocess.Popen, deadline: float) -> tuple[str, bytes, bytes]:
    """Collect both outputs until the process ends, floods us, or the time is up."""
    texts = {process.stdout: bytearray(), process.stderr: bytearray()}
    with selectors.DefaultSelector() as selector:
        for stream in texts:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        while True:
            # Asked before reading: what was written before the end is then read below.
            ended = _has_ended(process.pid)
            _read_all(selector, texts, 0 if ended else _PAUSE_S)
            size = sum(map(len, texts.values()))
            end = "flood" if size > MOST_BYTES else "exit" if ended else ""
            if not end and time.monotonic() > deadline:
                end = "time-out"
            if end:
                return end, bytes(texts[process.stdout]), bytes(texts[process.stderr])


def _read_all(selector: selectors.BaseSelector, texts: dict[IO[bytes], bytearray], wait_s: float) -> None:
    """Read what is there; wait a little where nothing is. A child that keeps a pipe open is not waited for."""
    if not selector.get_map():
        time.sleep(wait_s)
        return
    while ready := selector.select(wait_s):
        for key, _ in ready:
            piece = key.fileobj.read(65536)
            if piece:
                texts[key.fileobj] += piece
            elif piece is not None:  # None would mean that there is nothing to read after all
                selector.unregister(key.fileobj)
        if not selector.get_map() or sum(map(len, texts.values())) > MOST_BYTES:
            return
        wait_s = 0


def _has_ended(pid: int) -> bool:
    """Whether the process has ended; it is left unwaited for, which keeps its number from being given away."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
