"""Fixtures shared by the course's tests; those of `tidyprof_tests.conftest` are among them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.warm import PYTHON, share, shared_python
from tidyprof_tests.conftest import (  # noqa: F401 - what both houses have
    LONG,
    REPOSITORY,
    no_process_stays,
    others_later,
    pytest_collection_modifyitems,
    require,
)

SNIPPETS = "tests/snippets/"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a test of a report replace its expected output."""
    parser.addoption("--accept-output", action="store_true", help="write the outputs of snippets")


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


@pytest.fixture(scope="session")
def warm() -> Iterator[str]:
    """An interpreter that has torch imported already (tests.warm)."""
    with shared_python():
        yield PYTHON
