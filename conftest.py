"""What the tests of both projects find here: the public recordings, which `make mirror` fetches."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.public_recordings import GET, Mirror, truths
from tools.mirror import mirror_folder

REPOSITORY = Path(__file__).resolve().parent


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
