"""The machine as the doctor sees it: everything that a probe may ask, in one place, so that tests
can fake it.

The doctor never waits for another program without end: each is limited in time and output, and is
stopped together with its children.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PATIENCE_S = 30.0
"""Longest wait for one program, in seconds. Importing torch takes up to seven seconds, and much
longer beside other work.
"""

MOST_TEXT = 1 << 20


@dataclass(frozen=True)
class Space:
    """Free bytes of the file system that holds a path, and whether files can be made there."""

    free: int
    writable: bool


class Machine:
    """This machine. Every method gives None or an empty value for something that is not there or
    may not be read.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self.environment = dict(os.environ if environment is None else environment)
        self.patience_s = patience_s
        self._running: set[int] = set()

    def run(self, command: Sequence[str], **more_environment: str) -> Answer:
        """Run a program for at most `patience_s` seconds; its children are stopped with it."""
        environment = {**self.environment, "LC_ALL": "C", **more_environment}
        return run(command, self.patience_s, environment, self._running)

    def stop_all(self) -> None:
        """Stop all programs that are still running."""
        for pid in list(self._running):
            stop(pid)

    def which(self, name: str) -> str | None:
        """Path of the program that PATH finds under this name."""
        return shutil.which(name, path=self.environment.get("PATH", ""))

    def read(self, path: str | Path) -> str | None:
        """Text of a file, at most its first MiB; bytes that are not UTF-8 are replaced."""
        try:
            with open(path, "rb") as file:
                return file.read(MOST_TEXT).decode(errors="replace")
        except (OSError, ValueError):
            return None

    def exists(self, path: str | Path) -> bool:
        """Whether a file or folder is there."""
        try:
            return os.path.exists(path)
        except ValueError:
            return False

    def names(self, folder: str | Path) -> list[str]:
        """Sorted names in a folder."""
        try:
            return sorted(os.listdir(folder))
        except (OSError, ValueError):
            return []

    def may_use(self, path: str | Path) -> bool:
        """Whether this user may read and write the file."""
        return os.access(path, os.R_OK | os.W_OK)

    def resolved(self, path: str | Path) -> str:
        """The path without symbolic links."""
        return os.path.realpath(path)

    def group_of(self, path: str | Path) -> str | None:
        """Name of the group that owns a file, or its number if it has no name here."""
        import grp

        try:
            number = os.stat(path).st_gid
        except OSError:
            return None
        try:
            return grp.getgrgid(number).gr_name
        except KeyError:
            return str(number)

    def groups(self) -> frozenset[str]:
        """Names of this process's groups; the number of a group without a name."""
        import grp

        found = set()
        for number in {os.getegid(), *os.getgroups()}:
            try:
                found.add(grp.getgrgid(number).gr_name)
            except KeyError:
                found.add(str(number))
        return frozenset(found)

    def space(self, path: str | Path) -> Space | None:
        """Space in the file system of `path`; if `path` does not exist, of the nearest folder above
        it that does.
        """
        place = Path(path).absolute()
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            usage = shutil.disk_usage(place)
        except OSError:
            return None
        return Space(usage.free, place.is_dir() and os.access(place, os.W_OK | os.X_OK))

    def cores(self) -> tuple[int | None, int | None]:
        """Logical cores of the machine, and how many of them this process may use."""
        try:
            return os.cpu_count(), len(os.sched_getaffinity(0))
        except (AttributeError, OSError):
            return os.cpu_count(), None

    def connect(self, host: str, port: int, limit_s: float) -> str | None:
        """None if a connection is accepted within `limit_s` seconds, else the reason in a few
        words.
        """
        try:
            socket.create_connection((host, port), timeout=limit_s).close()
        except OSError as error:
            return error.strerror or str(error) or type(error).__name__
        return None

    def package_folder(self, name: str) -> Path | None:
        """Folder of an installed Python package, found without importing it."""
        import importlib.util

        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        places = list(found.submodule_search_locations or ()) if found else []
        return Path(places[0]) if places else None

    def damage_of_data(self, data_path: Path) -> str | None:
        """What is wrong with CIFAR-100 in `data_path`, in words; None if its files are whole. Reads
        186 MB.
        """
        from cifar_train.data import cifar100

        try:
            return cifar100.find_damage(data_path)
        except OSError as error:
            return f"{data_path / cifar100.FOLDER} cannot be read ({error.strerror})"

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder that is removed afterwards."""
        with tempfile.TemporaryDirectory(
            prefix="proflab-doctor-", ignore_cleanup_errors=True
        ) as folder:
            yield Path(folder)


MOST_BYTES = 1 << 20
"""Largest output in bytes: a program's version is a short line, so one that writes more is stopped.
"""

_PAUSE_S = 0.02


@dataclass(frozen=True)
class Answer:
    """How a program ended, and its output. `end` is exit, time-out, flood (too much output) or not
    started; `code` is set for exit.

    A program that was ended by a signal has a negative code, as in `subprocess`. Bytes that are not
    UTF-8 are replaced.
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
        """The last line that is not empty, which is where errors usually stand."""
        lines = [
            line.strip()
            for line in (*self.out.splitlines(), *self.err.splitlines())
            if line.strip()
        ]
        return lines[-1] if lines else ""


def run(
    command: Sequence[str],
    limit_s: float,
    environment: Mapping[str, str],
    running: set[int] | None = None,
) -> Answer:
    """Run `command` for at most `limit_s` seconds, without input, in a session of its own.

    `running` holds the process's id while it runs, so that another thread can stop it.
    """
    running = set() if running is None else running
    # Files, not pipes: a child that keeps a pipe open would be waited for.
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
    """How it ended: by itself, too late, or after too much output. `deadline` is in seconds of
    time.monotonic.
    """
    while True:
        # The process is not reaped here, so the system can't give its number to another process.
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
    """Kill the process group of `pid`, and those of its descendants that have left the group for a
    session of their own.

    The group lives until its leader has been reaped, so its number can't belong to another program.
    """
    leavers = _descendants(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    for child in leavers:
        # It may have just ended by itself, or there is no /proc to tell.
        with contextlib.suppress(Exception):
            child.kill()


def _descendants(pid: int) -> list:
    import psutil

    try:
        return psutil.Process(pid).children(recursive=True)
    except Exception:
        # Without /proc psutil fails in several ways; the group is killed all the same.
        return []
