"""The machine as the doctor sees it: everything that a probe may ask, in one place, so that tests can fake it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proflab.doctor import commands
from proflab.doctor.commands import Answer

PATIENCE_S = 30.0
"""Longest wait for one program. Importing torch takes up to seven seconds, and much longer beside other work."""

MOST_TEXT = 1 << 20


@dataclass(frozen=True)
class Space:
    """Free bytes of the file system that holds a path, and whether files can be made there."""

    free: int
    writable: bool


class Machine:
    """This machine. Every method gives None or an empty value for what is not there or may not be read."""

    def __init__(self, environment: Mapping[str, str] | None = None, patience_s: float = PATIENCE_S) -> None:
        self.environment = dict(os.environ if environment is None else environment)
        self.patience_s = patience_s
        self._running: set[int] = set()

    def run(self, command: Sequence[str], **more_environment: str) -> Answer:
        """Run a program for at most `patience_s` seconds; its children are stopped with it."""
        environment = {**self.environment, "LC_ALL": "C", **more_environment}
        return commands.run(command, self.patience_s, environment, self._running)

    def stop_all(self) -> None:
        """Stop what is still running."""
        for pid in list(self._running):
            commands.stop(pid)

    def which(self, name: str) -> str | None:
        """Path of the program that PATH finds."""
        return shutil.which(name, path=self.environment.get("PATH", ""))

    def read(self, path: str | Path) -> str | None:
        """Text of a file, its first MiB; bytes that are not UTF-8 are replaced."""
        try:
            with open(path, "rb") as file:
                return file.read(MOST_TEXT).decode(errors="replace")
        except (OSError, ValueError):
            return None

    def exists(self, path: str | Path) -> bool:
        """Whether something is there."""
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
        """Whether this user may read and write it."""
        return os.access(path, os.R_OK | os.W_OK)

    def resolved(self, path: str | Path) -> str:
        """The path without symbolic links."""
        return os.path.realpath(path)

    def group_of(self, path: str | Path) -> str | None:
        """Name of the group that a file belongs to, or its number where it has no name here."""
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
        """Names of this process's groups, numbers for those without a name."""
        import grp

        found = set()
        for number in {os.getegid(), *os.getgroups()}:
            try:
                found.add(grp.getgrgid(number).gr_name)
            except KeyError:
                found.add(str(number))
        return frozenset(found)

    def space(self, path: str | Path) -> Space | None:
        """Space where `path` is, or would be: the nearest folder above it that exists."""
        place = Path(path).absolute()
        while not place.exists() and place != place.parent:
            place = place.parent
        try:
            usage = shutil.disk_usage(place)
        except OSError:
            return None
        return Space(usage.free, place.is_dir() and os.access(place, os.W_OK | os.X_OK))

    def cores(self) -> tuple[int | None, int | None]:
        """Logical cores of the machine, and those that this process may run on."""
        try:
            return os.cpu_count(), len(os.sched_getaffinity(0))
        except (AttributeError, OSError):
            return os.cpu_count(), None

    def connect(self, host: str, port: int, limit_s: float) -> str | None:
        """None if a connection is accepted, else the reason in a few words."""
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
        """What is wrong with CIFAR-100 in `data_path`, in words, None if its files are whole. Reads 186 MB."""
        from cifar_train.data import cifar100

        try:
            return cifar100.find_damage(data_path)
        except OSError as error:
            return f"{data_path / cifar100.FOLDER} cannot be read ({error.strerror})"

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder that is removed afterwards."""
        with tempfile.TemporaryDirectory(prefix="proflab-doctor-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
