"""`make mirror`: what it fetches from a server on this machine, what it keeps, and how it fails."""

from __future__ import annotations

import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from proflab.recordings import load_manifest
from tests.conftest import REPOSITORY
from tests.proflab.test_recording_sources import CONTENT, fill, tiny
from tidyprof_tests.patience import PATIENCE_S
from tools import mirror

FILES = sorted(f"/{path}" for path in CONTENT)


class Server:
    """The address of a web server with a folder, and what it was asked for."""

    def __init__(self, folder: Path, together: int) -> None:
        asked = self.asked = []
        both_are_asked_for = threading.Barrier(together)

        class Handler(http.server.SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                both_are_asked_for.wait(PATIENCE_S)
                super().do_GET()

            def log_request(self, *arguments: object) -> None:
                asked.append(self.path)

            def log_error(self, *arguments: object) -> None:
                pass

        handler = partial(Handler, directory=str(folder))
        self.running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.folder, self.address = folder, f"http://127.0.0.1:{self.running.server_port}"


def serve(folder: Path, monkeypatch: pytest.MonkeyPatch, together: int) -> Iterator[Server]:
    server = Server(folder, together)
    entry = tiny(server.address)
    monkeypatch.setattr(mirror, "load_manifest", lambda: {entry.name: entry})
    monkeypatch.delenv("PROFLAB_OFFLINE")
    thread = threading.Thread(target=server.running.serve_forever)
    thread.start()
    with server.running:
        yield server
        server.running.shutdown()
        thread.join()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Serves a recording of two files, one at a time."""
    yield from serve(fill(tmp_path / "web"), monkeypatch, together=1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The mirror, which is not there yet."""
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(tmp_path / "mirror"))
    return tmp_path / "mirror"


def held(folder: Path) -> dict[str, bytes]:
    """What lies in the mirror, left-overs of a download too."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_all_files_come_to_their_places_and_once(server: Server, folder: Path, capsys) -> None:
    for _ in range(2):
        assert mirror.main([]) == 0
        out = capsys.readouterr().out
        assert all(part in out for part in (f"{folder}", "2 files", "34 B"))
    assert held(folder) == CONTENT
    assert sorted(server.asked) == FILES


@pytest.mark.parametrize("wrong", [b"<html>portal</html>", b"x" * 10_000, b""])
def test_another_content_is_refused(server: Server, folder: Path, capsys, wrong: bytes) -> None:
    fill(server.folder, {"tiny/trace.json": wrong})
    assert mirror.main([]) == 2
    assert "tiny/trace.json" in capsys.readouterr().err
    assert set(held(folder)) == {"tiny/reference/table.csv"}


def test_nobody_is_asked_where_downloads_are_forbidden(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("PROFLAB_OFFLINE", "1")
    assert mirror.main([]) == 2
    assert "PROFLAB_OFFLINE=1" in capsys.readouterr().err
    assert server.asked == []


def run_two_tests(folder: Path, **environment: str) -> tuple[int, list[str]]:
    """A test that reads a public recording and one that reads none, in a run of their own: its exit
    code and lines.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *TWO],
        cwd=REPOSITORY,
        env=os.environ | {"PROFLAB_RECORDINGS": str(folder), "CI": "", **environment},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


READERS = "packages/tidyprof/tests/tidyprof_tests/readers"
TWO = (
    f"{READERS}/test_rpd.py::test_the_same_run_converted_by_the_tool_itself",
    f"{READERS}/test_rpd.py::test_few_bad_rows_are_dropped_and_counted",
)


def test_a_changed_recording_is_none_and_in_ci_nothing_waits(folder: Path) -> None:
    for file in load_manifest()["rpd-mi200-matmul"].files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_bytes(b"changed")
    code, lines = run_two_tests(folder, CI="true")
    assert code == 1
    assert "1 failed, 1 passed" in lines[-1]
    assert any("CI must provide recording rpd-mi200-matmul" in line for line in lines)
