"""The machine as the doctor sees it: files below a root, programs in PATH, and the environment.

The doctor never waits for another program without end: each is limited in time, and is stopped
together with its children.
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
"""Longest wait for one program, in seconds. Importing torch takes up to seven seconds, and much
longer next to other work.
"""

MAX_TEXT = 1 << 20


@dataclass(frozen=True)
class Answer:
    """The exit code of a program, None if it was stopped, and its output."""

    code: int | None
    text: str = ""

    @property
    def last_line(self) -> str:
        """The last line that is not empty, which is where errors usually are."""
        return (["no output", *filter(None, map(str.strip, self.text.splitlines()))])[-1]


class Machine:
    """This machine, or with another `root` the one whose files are there. A file that can't be read
    is empty.
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
        """Return the path of a file of this machine."""
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str:
        """Return the text of a file, at most its first MiB."""
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
        """Run a program for at most `patience_s` seconds; its children are stopped with it."""
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
        """Return the text of a file of an installed package, found without importing it."""
        import importlib.util

        found = importlib.util.find_spec(package)
        places = list(found.submodule_search_locations or ()) if found else []
        return Path(places[0], name).read_text(encoding="utf-8") if places else ""

    def space(self, folder: str) -> tuple[int, bool]:
        """Return the free bytes of a folder's file system, and whether files can be made there. If
        the folder does not exist, the nearest one above it counts.
        """
        place = self.path(folder) if os.path.isabs(folder) else Path(folder).absolute()
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free, os.access(place, os.W_OK | os.X_OK)

    def cores(self) -> int:
        """Return the number of cores that this process may use."""
        return len(os.sched_getaffinity(0))


def _stop(process: subprocess.Popen) -> None:
    """Kill the process group, which lives until its leader has been reaped or its children end."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
    process.wait()
