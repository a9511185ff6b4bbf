"""No test leaves a process behind: what it started is known by a mark in the environment, and ended
with the test.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from tidyprof_tests.patience import PATIENCE_S

MARK = "TESTS_STARTED_BY"
"""Environment variable with the test that a process was started in; processes of its processes
inherit it.
"""

BEGINNINGS = ("subprocess.Popen", "os.fork", "os.posix_spawn", "os.forkpty")
"""Audit events of a new process (Python's table of audit events)."""

GRACE_S = 20.0
"""What was told to end just before the test's own end may still be ending."""

_begun = [False]


def _watch(event: str, _: object) -> None:
    if event in BEGINNINGS:
        _begun[0] = True


sys.addaudithook(_watch)


@pytest.fixture(autouse=True)
def no_process_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves processes, and end them: they would slow down all that follows."""
    mark = f"{os.getpid()} {request.node.nodeid}"
    os.environ[MARK] = mark
    _begun[0] = False
    yield
    del os.environ[MARK]
    # Most tests start nothing, and looking at all processes takes some milliseconds.
    if not _begun[0]:
        return
    _, left = psutil.wait_procs(list(_started_by(mark)), timeout=GRACE_S)
    names = [" ".join(_words(process))[:200] for process in left]
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(left, timeout=PATIENCE_S)
    assert not names, f"still running after the test: {names}"


def _started_by(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # ended just now, or another user's
            if process.environ().get(
                MARK
            ) == mark and "multiprocessing.resource_tracker" not in str(_words(process)):
                yield process


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []
