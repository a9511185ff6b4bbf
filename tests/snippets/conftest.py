"""An environment with nothing of the course in it."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.warm import OPTIMIZER, PYTHON, SOCKET, warm_python
from tidyprof_tests.patience import PATIENCE_S

SNIPPETS = REPOSITORY / "snippets"
WORK_PACKAGES = ("torch", "pandas", "matplotlib")
"""What a snippet may count on, with all that these packages need."""
NAMESPACES = {"backports"}
"""Names that several packages share: setuptools, which torch.compile uses, carries such modules
inside.
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@cache
def refused_modules() -> frozenset[str]:
    """Modules of this environment that one with WORK_PACKAGES alone would not have."""
    needed = set(_with_needs(*WORK_PACKAGES))
    owners = importlib.metadata.packages_distributions()
    own = {"cifar_train", "tidyprof", "proflab", "tests", "tidyprof_tests", "tools"}
    others = {
        module for module, names in owners.items() if not needed & {_plain(name) for name in names}
    }
    return frozenset(own | others - NAMESPACES)


def _with_needs(*names: str) -> set[str]:
    found: set[str] = set()
    waiting = [_plain(name) for name in names]
    while waiting:
        name = waiting.pop()
        try:
            needs = [] if name in found else importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # for another platform
            continue
        found.add(name)
        waiting += [
            _plain(re.match(r"[\w.-]+", need)[0]) for need in needs if "extra ==" not in need
        ]
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="session")
def bare_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What makes an environment one with WORK_PACKAGES alone, whose `python` runs scripts in a warm copy
    (tests.warm).
    """
    own = {
        "REFUSED_MODULES": ",".join(sorted(refused_modules())),
        "MPLBACKEND": "agg",
        "OMP_NUM_THREADS": "1",
    }
    own["PYTHONPATH"] = str(Path(__file__).parent / "bare")
    modules = (OPTIMIZER, "pandas", "matplotlib.pyplot")
    with warm_python(tmp_path_factory.mktemp("warm"), modules, os.environ | own) as socket:
        yield own | {SOCKET: socket}


@pytest.fixture
def bare(tmp_path: Path, bare_environment: dict[str, str]) -> Run:
    """Run a command in an empty folder with torch, pandas and matplotlib alone; what it starts has
    no more either.

    The word `python` is this Python, and a word that begins with `snippets/` the file there.
    """

    def run(
        *command: str | Path, check: bool = True, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        words = [
            str(SNIPPETS.parent / word) if str(word).startswith("snippets/") else str(word)
            for word in command
        ]
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PROFLAB_")
        }
        environment |= bare_environment | variables
        environment["PATH"] = os.pathsep.join([str(Path(PYTHON).parent), environment["PATH"]])
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert not check or done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done

    return run
