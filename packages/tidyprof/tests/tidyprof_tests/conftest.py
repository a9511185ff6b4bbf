"""Fixtures and hooks shared by all tests: those of tidyprof, and those of the course, whose own
conftest takes them from here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tidyprof_tests.processes import no_process_stays  # noqa: F401 - a fixture for every test

# Tests run side by side. Threads of torch that wait for each other spin, and would take the other
# tests' processors.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The compiler's cache of another run may hold code for other instructions: torch 2.15 takes it, and
# crashes.
COMPILED = tempfile.TemporaryDirectory(prefix="tests-inductor-")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = COMPILED.name

HOUSE = Path(__file__).resolve().parents[2]
"""The folder of tidyprof, with its `pyproject.toml`, `docs` and `tests`."""
REPOSITORY = HOUSE.parents[1]
"""The folder that the course and tidyprof are in."""


def of_the_course(path: str) -> Path:
    """Return a path of the course. In a copy of tidyprof alone, skip the test, or fail in CI."""
    require((REPOSITORY / "lessons").is_dir(), "the course")
    return REPOSITORY / path


THIRD_PARTY = HOUSE / "tests" / "third_party"
"""Programs and traces of authors who had not read the rules of triage."""

LONG = os.environ.get("PROFLAB_LONG") == "1"
"""Whether this is `make long`: tests marked long run too, and ten times as many random cases are
tried.
"""

# Machines are noisy: how long an example takes says nothing on whether it is right.
settings.register_profile("course", deadline=None, max_examples=100 if LONG else 10)
settings.load_profile("course")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked long, unless asked for, and begin with the programs below `tidyprof
    run`.
    """
    # A worker takes a file at a time, and these take minutes: at the end the others would wait.
    items.sort(key=lambda item: item.path.parent.name != "running")
    left = [item for item in items if not LONG and item.get_closest_marker("long")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def others_later(names: Iterable[str], now: Container[str]) -> list[Any]:
    """The names as parameters of a test, of which those that are not in `now` wait for the long
    run.
    """
    return [name if name in now else pytest.param(name, marks=pytest.mark.long) for name in names]


def require(condition: bool, what: str, step: str = "") -> None:
    """Skip where an optional part is missing, with the step that brings it; fail instead in CI, so
    that no gap goes unseen.
    """
    if condition:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must provide {what}{step}")
    pytest.skip(f"{what} is not here{step}")


if not (REPOSITORY / "conftest.py").is_file():

    @pytest.fixture(scope="session")
    def recordings() -> None:
        """The public recordings, which only the course has: in a copy of tidyprof alone, tests that
        need them are skipped.
        """
        require(False, "the course with its public recordings")

    @pytest.fixture(scope="session")
    def manifest(recordings: None) -> None:
        """What is known of the public recordings."""
