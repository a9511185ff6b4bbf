"""Where recordings come from: order of places, verification, and download."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import proflab
from proflab import recordings as module
from proflab.errors import CourseError
from proflab.recordings import Cut, Entry, RecordedFile, RecordingUnavailable, fetch

CONTENT = {
    "tiny/trace.json": b'{"traceEvents": []}',
    "tiny/reference/table.csv": b"name,calls\nk,1\n",
}
SHORTENED = {"tiny/trace.json": b'{"traceEvents":[]}'}


def files(content: dict[str, bytes], base_url: str | None = None) -> tuple[RecordedFile, ...]:
    return tuple(
        RecordedFile(
            path,
            hashlib.sha256(text).hexdigest(),
            len(text),
            "recording",
            base_url and f"{base_url}/{path}",
        )
        for path, text in content.items()
    )


def tiny(base_url: str | None = None) -> Entry:
    names = ("kind", "tool", "workload", "license", "license_url", "copyright", "notes")
    return Entry(
        name="tiny",
        gpu="AMD Instinct MI300X (one)",
        rocm="HIP 6.4 (ROCm 6.4)",
        files=files(CONTENT, base_url),
        main="trace.json",
        cut=Cut("the trace", files(SHORTENED)),
        **dict.fromkeys(names, "text"),
    )


def write(root: Path, content: dict[str, bytes]) -> None:
    for path, text in content.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text)


def fill(root: Path, changed: dict[str, bytes] | None = None) -> Path:
    write(root, CONTENT | (changed or {}))
    return root


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The (empty) folders that are searched for the only recording there is."""
    found = {name: tmp_path / name for name in ("shipped", "cache", "mirror")}
    monkeypatch.setattr(module, "load_manifest", lambda: {"tiny": tiny()})
    monkeypatch.setattr(module, "shipped_folder", lambda: found["shipped"])
    monkeypatch.setenv("PROFLAB_CACHE", str(found["cache"]))
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(found["mirror"]))
    return found | {"cut": found["shipped"] / "cuts"}


def test_places_are_searched_in_order(folders: dict[str, Path]) -> None:
    with pytest.raises(RecordingUnavailable):
        proflab.recording("tiny")
    for name in ("cut", "mirror", "cache", "shipped"):
        write(folders[name], SHORTENED if name == "cut" else CONTENT)
        found = proflab.recording("tiny")
        assert (found.source, found.path) == (name, folders[name] / "tiny" / "trace.json")
        assert ("shortened" in str(found.origin)) == (name == "cut")
        assert "AMD Instinct MI300X, ROCm 6.4" in str(found.origin)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_copy_is_not_used(folders: dict[str, Path], damage: str) -> None:
    write(folders["cache"], CONTENT)
    write(folders["mirror"], CONTENT)
    file = folders["cache"] / "tiny/reference/table.csv"
    assert proflab.recording("tiny").source == "cache"
    file.write_bytes(b"other") if damage == "changed" else file.unlink()
    with pytest.warns(UserWarning, match=r"table\.csv"):
        assert proflab.recording("tiny").source == "mirror"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(CourseError):
        proflab.recording("no-such-thing")


@pytest.fixture
def server(tmp_path: Path, folders, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a web server on this machine, where the recording is published."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    folder = tmp_path / "web"
    folder.mkdir()
    handler = partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        entry = tiny(f"http://127.0.0.1:{running.server_port}")
        monkeypatch.setattr(module, "load_manifest", lambda: {"tiny": entry})
        monkeypatch.setenv("PROFLAB_OFFLINE", "0")
        yield folder
        running.shutdown()
        thread.join()


def test_only_fetch_downloads_and_it_verifies(server: Path, folders, monkeypatch) -> None:
    write(server, CONTENT | {"tiny/reference/table.csv": b"other"})
    with pytest.raises(RecordingUnavailable):
        proflab.recording("tiny")
    with pytest.raises(RecordingUnavailable):
        fetch("tiny")
    write(folders["cut"], SHORTENED)
    write(server, CONTENT)
    monkeypatch.setenv("PROFLAB_OFFLINE", "1")
    with pytest.raises(RecordingUnavailable):
        fetch("tiny")
    monkeypatch.setenv("PROFLAB_OFFLINE", "0")
    found = fetch("tiny")
    assert found.source == "cache"
    assert {name: path.read_bytes() for name, path in found.files.items()} == {
        path.removeprefix("tiny/"): text for path, text in CONTENT.items()
    }
    assert proflab.recording("tiny").source == "cache"
