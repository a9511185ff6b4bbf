"""A Python that has imported torch already: a program starts in a tenth of a second instead of ten.

`python` beside this file is used in place of an interpreter. It hands its arguments, environment,
folder and open files to a server that has the libraries loaded; the server forks, and the copy runs
the module or the script. Signals are passed on, the end of the one is the end of the other, and the
exit code is the same. Tests of importing itself, and of what libraries read when they are imported,
take the real interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent
PYTHON = str(FOLDER / "python")
SOCKET = "TESTS_WARM_PYTHON"
"""Environment variable with the server's socket and the real interpreter, by which the program
finds them.
"""
OPTIMIZER = "torch._dynamo"
"""What torch's own optimizers import in their first step."""
COURSE = (
    OPTIMIZER,
    *(f"transformers.models.{name}.modeling_{name}" for name in ("resnet", "vit", "swinv2")),
    "cifar_train.train",
    "proflab.tapes.player",
)
"""Modules that the trainer and the player need."""


@contextmanager
def warm_python(
    folder: Path, modules: Sequence[str] = COURSE, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Start a server with these modules, which ends with the block or with this process; gives the
    value of SOCKET.
    """
    path = folder / "socket"
    command = [sys.executable, str(FOLDER / "server.py"), str(path), *modules]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as server:
        try:
            assert server.stdout.readline() == b"listening\n"
            yield f"{path}:{sys.executable}"
        finally:
            server.stdin.close()


@contextmanager
def shared_python() -> Iterator[str]:
    """The value of SOCKET for the server that this process has, by inheritance where it is a worker
    of pytest.
    """
    if SOCKET in os.environ:
        yield os.environ[SOCKET]
        return
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tests-warm-"))
        socket = stack.enter_context(warm_python(Path(folder)))
        stack.enter_context(pytest.MonkeyPatch.context()).setenv(SOCKET, socket)
        yield socket


def share(config: pytest.Config) -> None:
    """Start the server of a session with several workers before they start, so that all have
    one.
    """
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        stack = ExitStack()
        stack.enter_context(shared_python())
        config.add_cleanup(stack.close)
