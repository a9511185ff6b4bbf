"""Every test of the bench has its own runs folder and cache, and no network."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proflab import kernel_guard


@pytest.fixture(autouse=True)
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Own folders, no download, no strict mode, no mirror; returns the runs folder."""
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PROFLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PROFLAB_OFFLINE", "1")
    monkeypatch.delenv("PROFLAB_STRICT", raising=False)
    monkeypatch.delenv("PROFLAB_RECORDINGS", raising=False)
    # As if this process had its guard already: only a notebook's kernel needs one.
    monkeypatch.setenv(kernel_guard.VARIABLE, f"{os.getpid()}-0")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")  # the tests' own web server is never behind a proxy
    return tmp_path / "runs"
