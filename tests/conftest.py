"""Fixtures shared by all tests."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Container, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.processes import no_process_stays  # noqa: F401 - a fixture for every test
from tests.public_recordings import GET, Mirror, truths
from tests.warm import PYTHON, share, shared_python
from tools.mirror import mirror_folder

# Tests run side by side. Threads of torch that wait for each other spin, and would take the other
# tests' processors.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# The compiler's cache of another run may hold code for other instructions: torch 2.15 takes it, and
# crashes.
COMPILED = tempfile.TemporaryDirectory(prefix="tests-inductor-")
os.environ["TORCHINDUCTOR_CACHE_DIR"] = COMPILED.name

SNIPPETS = "tests/snippets/"
REPOSITORY = Path(__file__).resolve().parent.parent

LONG = os.environ.get("PROFLAB_LONG") == "1"
"""Whether this is `make long`: tests marked long run too, and ten times as many random cases are
tried.
"""

# Machines are noisy: how long an example takes says nothing on whether it is right.
settings.register_profile("course", deadline=None, max_examples=100 if LONG else 10)
settings.load_profile("course")


def pytest_configure(config: pytest.Config) -> None:
    """Workers side by side have one warm interpreter."""
    share(config)


class OneServerForSnippets(LoadFileScheduling):
    """Files go to whichever worker is free, but those on snippets to one, which alone starts a
    server for them.
    """

    def _split_scope(self, nodeid: str) -> str:
        return SNIPPETS if nodeid.startswith(SNIPPETS) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling | None:
    """Change `--dist loadfile`, and nothing else."""
    return OneServerForSnippets(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked long, unless asked for."""
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


@pytest.fixture(scope="session")
def warm() -> Iterator[str]:
    """An interpreter that has torch imported already (tests.warm)."""
    with shared_python():
        yield PYTHON


@pytest.fixture(scope="session")
def recordings() -> Mirror:
    """Folder with the public recordings; a test that asks for one that is not here waits for it."""
    return Mirror(mirror_folder())


@pytest.fixture(scope="session")
def manifest() -> dict[str, dict]:
    """What is known of each public recording, by name; `truth` holds what a reader must find."""
    entries = json.loads((REPOSITORY / "recordings/manifest.json").read_text(encoding="utf-8"))
    return {
        entry["name"]: {**truths()[entry["name"]], **entry}
        for entry in entries
        if entry["name"] in truths()
    }


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Say behind all else how many tests waited for recordings, so that no gap goes unseen."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    if count := sum(GET in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(
            f"tests that waited for public recordings: {count}; `make mirror` fetches them (18 MB)"
        )
