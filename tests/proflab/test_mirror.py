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
from tests.patience import PATIENCE_S
from tests.proflab.test_recording_sources import CONTENT, fill, tiny
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
def slow_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Answers only when both files are asked for."""
    yield from serve(fill(tmp_path / "web"), monkeypatch, together=2)


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
        assert capsys.readouterr().out == f"{folder}: 2 files are here, 34 B\n"
    assert held(folder) == CONTENT
    assert sorted(server.asked) == FILES


def test_several_come_at_once(slow_server: Server, folder: Path) -> None:
    assert mirror.main([]) == 0
    assert held(folder) == CONTENT


def test_what_could_not_be_had_is_a_line_each_and_only_that_is_fetched_again(
    server: Server, folder: Path, capsys
) -> None:
    (server.folder / "tiny/trace.json").unlink()
    assert mirror.main([]) == 2
    line, sum_of_them = capsys.readouterr().err.splitlines()
    address = f"{server.address}/tiny/trace.json"
    assert line.startswith(f"error: tiny/trace.json: {address} could not be had (HTTPError: 404 ")
    assert sum_of_them.startswith(f"error: {folder}: 1 of 2 files are missing; run it again")
    assert "make mirror FROM=FOLDER" in sum_of_them
    assert set(held(folder)) == {"tiny/reference/table.csv"}
    fill(server.folder)
    server.asked.clear()
    assert mirror.main([]) == 0
    assert server.asked == ["/tiny/trace.json"]
    assert held(folder) == CONTENT


def test_each_file_that_is_missing_has_its_line(server: Server, folder: Path, capsys) -> None:
    for path in CONTENT:
        (server.folder / path).unlink()
    assert mirror.main([]) == 2
    assert [line.split(": ")[1] for line in capsys.readouterr().err.splitlines()[:-1]] == [*CONTENT]


@pytest.mark.parametrize("wrong", [b"<html>portal</html>", b"x" * 10_000, b""])
def test_another_content_is_refused(server: Server, folder: Path, capsys, wrong: bytes) -> None:
    fill(server.folder, {"tiny/trace.json": wrong})
    assert mirror.main([]) == 2
    assert "tiny/trace.json" in capsys.readouterr().err
    assert set(held(folder)) == {"tiny/reference/table.csv"}


def test_a_damaged_file_of_the_mirror_is_fetched_again(server: Server, folder: Path) -> None:
    fill(folder, {"tiny/trace.json": b'{"traceEvents": {}}'})
    assert mirror.main([]) == 0
    assert held(folder) == CONTENT
    assert server.asked == ["/tiny/trace.json"]


def test_a_folder_at_hand_comes_before_the_network(server: Server, folder: Path, tmp_path) -> None:
    given = fill(tmp_path / "given", {"tiny/trace.json": b"damaged"})
    assert mirror.main(["--from", str(given)]) == 0
    assert held(folder) == CONTENT
    assert server.asked == ["/tiny/trace.json"]


def test_nobody_is_asked_where_downloads_are_forbidden(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("PROFLAB_OFFLINE", "1")
    assert mirror.main([]) == 2
    assert "PROFLAB_OFFLINE=1 forbids the download" in capsys.readouterr().err
    assert server.asked == []


def test_the_mirror_is_where_it_was_said_or_beside_or_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "BESIDE", tmp_path / "shared/recordings")
    assert mirror.mirror_folder() == tmp_path / "cache" / "mirror"
    (tmp_path / "shared/recordings").mkdir(parents=True)
    assert mirror.mirror_folder() == tmp_path / "shared/recordings"
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(tmp_path / "said"))
    assert mirror.mirror_folder() == tmp_path / "said"


def run_two_tests(folder: Path, **environment: str) -> tuple[int, list[str]]:
    """A test that reads a public recording and one that reads none, in a run of their own: its exit
    code and lines.
    """
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/gpumodel/test_write_rpd.py", "-k", TWO],
        cwd=REPOSITORY,
        env=os.environ | {"PROFLAB_RECORDINGS": str(folder), "CI": "", **environment},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


TWO = "test_tables_and_views_are_those_of_a_real_file or test_an_unknown_schema_is_refused"


def test_a_test_without_its_recording_waits_and_the_last_line_counts_it(folder: Path) -> None:
    code, lines = run_two_tests(folder)
    assert code == 0
    waited = "tests that waited for public recordings: 1; `make mirror` fetches them (18 MB)"
    assert lines[-2] == waited
    assert "1 passed, 1 skipped" in lines[-1]
    step = f"recording rpd-mi200-matmul is not here: `make mirror` gets it into {folder}"
    assert any(line.startswith("SKIPPED") and line.endswith(step) for line in lines)


def test_a_changed_recording_is_none_and_in_ci_nothing_waits(folder: Path) -> None:
    for file in load_manifest()["rpd-mi200-matmul"].files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_bytes(b"changed")
    assert "is damaged or changed" in "\n".join(run_two_tests(folder)[1])
    code, lines = run_two_tests(folder, CI="true")
    assert code == 1
    assert "1 failed, 1 passed" in lines[-1]
    assert any("CI must provide recording rpd-mi200-matmul" in line for line in lines)
