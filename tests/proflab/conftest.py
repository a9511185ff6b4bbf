"""Every test of the bench has its own runs folder and cache, and no network."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Own folders, no download, no strict mode, no mirror; returns the runs folder."""
    monkeypatch.setenv("PROFLAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PROFLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PROFLAB_OFFLINE", "1")
    monkeypatch.delenv("PROFLAB_STRICT", raising=False)
    monkeypatch.delenv("PROFLAB_RECORDINGS", raising=False)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")  # the tests' own web server is never behind a proxy
    return tmp_path / "runs"
