"""The doctor's view of a machine: files below a root, programs in PATH and environment variables.

The doctor never waits forever for another program. Each program has a time limit. When the limit
expires, the doctor stops the program and its child processes.
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
"""Maximum wait for one program, in seconds. Importing torch takes up to seven seconds, or much
longer on a busy machine.
"""

MAX_TEXT = 1 << 20


@dataclass(frozen=True)
class Answer:
    """Output and exit code of a program. The exit code is None if the program was stopped."""

    code: int | None
    text: str = ""

    @property
    def last_line(self) -> str:
        """Last nonempty line, which usually contains the error message."""
        return (["no output", *filter(None, map(str.strip, self.text.splitlines()))])[-1]


class Machine:
    """This machine, or the machine whose files are below `root`.

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
        """Return a file's path below the root."""
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str:
        """Return the first MiB of a file's text."""
        try:
            with self.path(name).open(errors="replace") as file:
                return file.read(MAX_TEXT).strip()
        except OSError:
            return ""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError:
            return []

    def may_use(self, name: str) -> bool:
        """Return True if this user may read and write the file."""
        return os.access(self.path(name), os.R_OK | os.W_OK)

    def which(self, program: str) -> str | None:
        """Return the path of a program in PATH, or None if PATH doesn't contain it."""
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
        """Return the text of an installed package's file without importing the package."""
        import importlib.util

        found = importlib.util.find_spec(package)
        places = list(found.submodule_search_locations or ()) if found else []
        return Path(places[0], name).read_text(encoding="utf-8") if places else ""

    def space(self, folder: str) -> tuple[int, bool]:
        """Return the free bytes of a folder's file system, and True if files can be created in the
        folder.

        If the folder doesn't exist, the function checks its nearest existing parent.
        """
        place = self.path(folder) if os.path.isabs(folder) else Path(folder).absolute()
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free, os.access(place, os.W_OK | os.X_OK)

    def cores(self) -> int:
        """Return the number of CPU cores that this process may use."""
        return len(os.sched_getaffinity(0))


def _stop(process: subprocess.Popen) -> None:
    """Kill a program's process group and reap the program."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    process.wait()
