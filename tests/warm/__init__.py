"""A Python that has imported torch already: a program starts in a tenth of a second instead of ten.

`python` beside this file is used in place of an interpreter. It hands its arguments, environment, folder and open
files to a server that has the libraries loaded; the server forks, and the copy runs the module or the script. Signals
are passed on, the end of the one is the end of the other, and the exit code is the same. Tests of importing itself,
and of what libraries read when they are imported, take the real interpreter.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PYTHON = str(FOLDER / "python")
SOCKET = "TESTS_WARM_PYTHON"
"""Environment variable with the server's socket and the real interpreter, by which the program finds them."""
OPTIMIZER = "torch._dynamo"
"""What torch's own optimizers import in their first step."""
TRAINER = (OPTIMIZER, *(f"transformers.models.{name}.modeling_{name}" for name in ("resnet", "vit", "swinv2")),
           "cifar_train.train")  # fmt: skip
"""Modules that the trainer needs."""


@contextmanager
def warm_python(
    folder: Path, modules: Sequence[str] = TRAINER, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Start a server with these modules, which ends with the block or with this process; gives the value of SOCKET."""
    path = folder / "socket"
    command = [sys.executable, str(FOLDER / "server.py"), str(path), *modules]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as server:
        try:
            assert server.stdout.readline() == b"ready\n"
            yield f"{path}:{sys.executable}"
        finally:
            server.stdin.close()
