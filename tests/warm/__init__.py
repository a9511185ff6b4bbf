"""A Python that has imported torch already: the trainer starts in a tenth of a second instead of ten.

`python` beside this file is used in place of an interpreter. It hands its arguments, environment, folder and open
files to a server that has the libraries loaded; the server forks, and the copy runs the module or the script. Signals
are passed on, the end of the one is the end of the other, and the exit code is the same. Tests of importing itself,
and of what libraries read when they are imported, take the real interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PYTHON = str(FOLDER / "python")
SOCKET = "TESTS_WARM_PYTHON"
"""Environment variable with the server's socket and the real interpreter, by which the program finds them."""


@contextmanager
def warm_python(folder: Path) -> Iterator[None]:
    """Start the server, and let all that this process starts find it; it ends with the block or with this process."""
    path = folder / "socket"
    command = [sys.executable, "-m", "tests.warm.server", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=FOLDER.parents[1]) as server:
        try:
            assert server.stdout.readline() == b"ready\n"
            os.environ[SOCKET] = f"{path}:{sys.executable}"
            yield
        finally:
            os.environ.pop(SOCKET, None)
            server.stdin.close()
