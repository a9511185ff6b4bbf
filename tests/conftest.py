"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Machines are noisy: how long an example takes says nothing on whether it is right.
settings.register_profile("course", deadline=None)
settings.load_profile("course")

REPOSITORY = Path(__file__).resolve().parent.parent


def require(condition: bool, what: str) -> None:
    """Skip where an optional part is missing; fail instead in CI, so that no gap goes unseen."""
    if condition:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must provide {what}")
    pytest.skip(f"{what} is not here")


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Folder with the public recordings and their manifest.json."""
    folder = Path(os.environ.get("PROFLAB_RECORDINGS", REPOSITORY.parent / "shared" / "recordings"))
    require((folder / "manifest.json").is_file(), "the mirror folder of recordings (PROFLAB_RECORDINGS)")
    return folder
