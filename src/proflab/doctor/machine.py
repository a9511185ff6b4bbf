"""The machine as the doctor sees it: files below a root, programs in PATH, and the environment.

The doctor never waits forever for another program. Each program has a time limit, and the doctor
stops it together with its child processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 30.0
"""Longest wait for one program, in seconds.

Importing torch takes up to seven seconds, and much longer on a busy machine.
"""

MAX_TEXT = 1 << 20


@dataclass(frozen=True)
class Answer:
    """The output and exit code of a program. The exit code is None if the program was stopped."""

    code: int | None
    text: str = ""

    @property
    def last_line(self) -> str:
        """The last line that isn't empty. Errors are usually there."""
        return (["no output", *filter(None, map(str.strip, self.text.splitlines()))])[-1]


class Machine:
    """This machine or, with another `root`, the machine whose files are below it.

    A file that can't be read counts as empty.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        patience_s: float = PATIENCE_S,
        root: Path = Path("/"),
    ) -> None:
        self.environment = dict(os.environ if environment is None else environment)
        self.patience_s = patience_s
        self.root = root

    def path(self, name: str) -> Path:
        """Return the path of a file on this machine."""
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str:
        """Return at most the first MiB of a file's text."""
        try:
            with self.path(name).open(errors="replace") as file:
                return file.read(MAX_TEXT).strip()
        except OSError:
            return ""

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError:
            return []

    def may_use(self, name: str) -> bool:
        """Return True if this user may read and write the file."""
        return os.access(self.path(name), os.R_OK | os.W_OK)

    def which(self, program: str) -> str | None:
        """Return the path of the program that PATH finds."""
        return shutil.which(program, path=self.environment.get("PATH", ""))

    def run(self, *command: str) -> Answer:
        """Run a program and its child processes for at most `patience_s` seconds."""
        environment = {**self.environment, "LC_ALL": "C"}
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                return Answer(127, str(error))
            try:
                code: int | None = process.wait(self.patience_s)
            except subprocess.TimeoutExpired:
                code = None
            _stop(process)
            said.seek(0)
            return Answer(code, said.read(MAX_TEXT).decode(errors="replace"))

    def module_file(self, package: str, name: str) -> str:
        """Return the text of a file in an installed package without importing the package."""
        import importlib.util

        found = importlib.util.find_spec(package)
        places = list(found.submodule_search_locations or ()) if found else []
        return Path(places[0], name).read_text(encoding="utf-8") if places else ""

    def space(self, folder: str) -> tuple[int, bool]:
        """Return the free bytes of a folder's file system, and whether files can be created there.

        If the folder doesn't exist, check its nearest parent that does.
        """
        place = self.path(folder) if os.path.isabs(folder) else Path(folder).absolute()
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free, os.access(place, os.W_OK | os.X_OK)

    def cores(self) -> int:
        """Return the number of CPU cores that this process may use."""
        return len(os.sched_getaffinity(0))


def _stop(process: subprocess.Popen) -> None:
    """Kill the process group, which exists until its leader is reaped or its children exit."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    process.wait()
