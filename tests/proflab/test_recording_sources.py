"""Where recordings come from: order of places, verification, download, and what a learner is
told.
"""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import proflab
from proflab import recordings as recordings_module
from proflab.recordings import (
    Cut,
    Entry,
    RecordedFile,
    RecordingUnavailable,
    fetch,
    load_manifest,
    places,
)
from tests.public_recordings import Mirror

CONTENT = {
    "tiny/trace.json": b'{"traceEvents": []}',
    "tiny/reference/table.csv": b"name,calls\nk,1\n",
}


CUT = {"tiny/trace.json": b'{"traceEvents":[]}'}


def tiny(base_url: str | None = "http://127.0.0.1:9", cut: bool = False) -> Entry:
    files = tuple(
        RecordedFile(
            path=path,
            sha256=hashlib.sha256(text).hexdigest(),
            bytes=len(text),
            role="reference" if "reference" in path else "recording",
            url=None if base_url is None else f"{base_url}/{path}",
        )
        for path, text in CONTENT.items()
    )
    texts = dict.fromkeys(
        ("kind", "tool", "workload", "licence", "licence_url", "copyright", "notes"), "text"
    )
    cuts = [
        RecordedFile(path, hashlib.sha256(text).hexdigest(), len(text), "recording")
        for path, text in CUT.items()
    ]
    texts |= {"cut": Cut("the trace", tuple(cuts)) if cut else None, "main": "trace.json"}
    return Entry(
        name="tiny",
        gpu="AMD Instinct MI300X (one)",
        rocm="HIP 6.4 (ROCm 6.4)",
        files=files,
        **texts,
    )


def fill(root: Path, changed: dict[str, bytes] | None = None, only: int = 99) -> Path:
    return write(root, dict(list({**CONTENT, **(changed or {})}.items())[:only]))


def write(root: Path, files: dict[str, bytes]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(text)
    return root


@pytest.fixture
def places_to_fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A manifest with one tiny recording, and the (empty) folders that are searched for it."""
    use(monkeypatch, tiny())
    folders = {name: tmp_path / name for name in ("shipped", "cache", "mirror")}
    monkeypatch.setattr(recordings_module, "shipped_folder", lambda: folders["shipped"])
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(folders["mirror"]))
    return folders


def use(monkeypatch: pytest.MonkeyPatch, entry: Entry) -> None:
    monkeypatch.setattr(recordings_module, "load_manifest", lambda: {entry.name: entry})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """A web server on this machine: its address, its folder and the paths asked for."""
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            asked.append(self.path)

    folder = tmp_path / "web"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(folder))
    ) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", folder, asked
        running.shutdown()
        thread.join()


def test_all_recordings_of_the_mirror_verify_in_place(
    recordings: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings.whole()))
    for name, entry in load_manifest().items():
        found = proflab.recording(name)
        assert found.path.exists()
        assert found.path.is_relative_to(found.root / name)
        assert len(found.files) == len(entry.files)
        assert found.source == ("mirror" if entry.has_address else "shipped")


def test_path_is_the_main_file_or_the_folder(
    recordings: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings.whole()))
    assert proflab.recording("rpd-mi200-matmul").path.name == "matmul_result.rpd"
    assert (
        proflab.recording("torch-mi300-ddp-4ranks-fused").path.name == "merged_all_events.json.gz"
    )
    ranks = proflab.recording("torch-nvidia-hta-2of128-ranks")
    assert ranks.path.is_dir()
    assert set(ranks.files) == {"sampled_rank-0.json.gz", "sampled_rank-1.json.gz"}


def test_origin_says_gpu_rocm_and_publisher(
    recordings: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFLAB_RECORDINGS", str(recordings.whole()))
    origin = proflab.recording("torch-mi300x-resnet-ddp-rank0").origin
    assert str(origin) == "recorded: AMD Instinct MI300X, ROCm 6.4, AMD-AGI/TraceLens"
    silent = proflab.recording("rocprofv3-json-mi350x-torch-training").origin
    assert "ROCm" not in str(silent)


def test_order_is_shipped_cache_mirror_cut(
    places_to_fill: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(cut=True))
    write(places_to_fill["shipped"] / "cuts", CUT)
    assert proflab.recording("tiny").source == "cut"
    for source in ("mirror", "cache", "shipped"):
        fill(places_to_fill[source])
        found = proflab.recording("tiny")
        assert (found.source, found.root) == (source, places_to_fill[source])
        assert found.files["trace.json"].read_bytes() == CONTENT["tiny/trace.json"]


def test_a_cut_says_that_it_is_one(
    places_to_fill: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(cut=True))
    folder = write(places_to_fill["shipped"] / "cuts", CUT)
    found = proflab.try_recording("tiny")
    assert found.path == folder / "tiny/trace.json"
    assert list(found.files) == ["trace.json"]
    assert str(found.origin) == "recorded: AMD Instinct MI300X, ROCm 6.4, shortened for the lessons"
    assert "(cut, 18 B)" in repr(found)


def test_a_damaged_cut_is_not_used(
    places_to_fill: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(cut=True))
    write(places_to_fill["shipped"] / "cuts", {"tiny/trace.json": b"{}"})
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(RecordingUnavailable):
        proflab.recording("tiny")


def test_fetch_takes_no_cut_for_the_recording(
    places_to_fill: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(cut=True))
    write(places_to_fill["shipped"] / "cuts", CUT)
    with pytest.raises(RecordingUnavailable, match="PROFLAB_OFFLINE=1 forbids the download"):
        fetch("tiny")
    fill(places_to_fill["mirror"])
    assert fetch("tiny").source == "mirror"


def test_damaged_file_is_refused_and_the_next_place_used(places_to_fill: dict[str, Path]) -> None:
    fill(places_to_fill["cache"], {"tiny/trace.json": b'{"traceEvents": {}}'})
    fill(places_to_fill["mirror"])
    with pytest.warns(UserWarning, match=r"tiny/trace.json is damaged or changed"):
        assert proflab.recording("tiny").source == "mirror"


def test_change_after_verification_is_noticed(places_to_fill: dict[str, Path]) -> None:
    fill(places_to_fill["mirror"])
    assert proflab.recording("tiny").source == "mirror"
    fill(places_to_fill["mirror"], {"tiny/trace.json": b"{}"})
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(RecordingUnavailable):
        proflab.recording("tiny")


def test_incomplete_folder_is_not_used(places_to_fill: dict[str, Path]) -> None:
    fill(places_to_fill["mirror"], only=1)
    with (
        pytest.warns(UserWarning, match=r"reference/table.csv is missing \(1 of 2 files\)"),
        pytest.raises(RecordingUnavailable),
    ):
        proflab.recording("tiny")


def test_unavailable_is_one_line_with_the_next_step(places_to_fill: dict[str, Path]) -> None:
    with pytest.raises(RecordingUnavailable) as caught:
        proflab.recording("tiny")
    text = str(caught.value)
    assert "\n" not in text
    assert "tiny (34 B)" in text
    assert "only `proflab fetch` downloads" in text
    assert "PROFLAB_RECORDINGS" in text
    assert "python -m proflab fetch tiny" in text
    assert caught.value._render_traceback_() == [f"RecordingUnavailable: {text}"]


def test_try_recording_says_why_and_goes_on(
    places_to_fill: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert proflab.try_recording("tiny") is None
    assert "Recording not here: recording tiny (34 B) is not here" in capsys.readouterr().out
    fill(places_to_fill["mirror"])
    assert proflab.try_recording("tiny").source == "mirror"


def test_a_lesson_downloads_nothing(
    places_to_fill: dict[str, Path],
    server: tuple[str, Path, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, folder, asked = server
    use(monkeypatch, tiny(address))
    fill(folder)
    monkeypatch.delenv("PROFLAB_OFFLINE")
    with pytest.raises(RecordingUnavailable):
        proflab.recording("tiny")
    assert asked == []


def test_download_is_verified_and_done_once(
    places_to_fill: dict[str, Path],
    server: tuple[str, Path, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address, folder, asked = server
    use(monkeypatch, tiny(address))
    fill(folder)
    with pytest.raises(RecordingUnavailable, match="PROFLAB_OFFLINE"):
        fetch("tiny")
    assert asked == []
    monkeypatch.delenv("PROFLAB_OFFLINE")
    for get in (fetch, fetch, proflab.recording):
        found = get("tiny")
        assert (found.source, found.root) == ("cache", places_to_fill["cache"])
        assert (
            found.files["reference/table.csv"].read_bytes() == CONTENT["tiny/reference/table.csv"]
        )
    assert sorted(asked) == ["/tiny/reference/table.csv", "/tiny/trace.json"]
    shown, on_red = capsys.readouterr()
    assert "tiny: " in shown
    assert on_red == ""


def test_download_with_another_checksum_is_refused(
    places_to_fill: dict[str, Path],
    server: tuple[str, Path, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, folder, _ = server
    use(monkeypatch, tiny(address))
    fill(folder, {"tiny/trace.json": b"<html>captive portal</html>"})
    monkeypatch.delenv("PROFLAB_OFFLINE")
    with pytest.raises(RecordingUnavailable, match=r"the download failed \(ValueError"):
        fetch("tiny")
    assert places(tiny(address))[1].problem is not None
    assert not (places_to_fill["cache"] / "tiny/trace.json").exists()


def test_more_than_the_known_size_is_cut_off(
    places_to_fill: dict[str, Path],
    server: tuple[str, Path, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, folder, _ = server
    use(monkeypatch, tiny(address))
    fill(folder, {"tiny/trace.json": bytes(10_000_000)})
    monkeypatch.delenv("PROFLAB_OFFLINE")
    with pytest.raises(RecordingUnavailable, match="More came than the 19 bytes"):
        fetch("tiny")
    assert [path for path in places_to_fill["cache"].rglob("*") if path.is_file()] == []


def test_no_network_is_one_line(
    places_to_fill: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROFLAB_OFFLINE")
    with pytest.raises(
        RecordingUnavailable, match=r"the download failed \(ConnectionError"
    ) as caught:
        fetch("tiny")  # port 9 of this machine answers nobody
    assert "\n" not in str(caught.value)


def test_shipped_recording_that_is_missing_has_no_download(
    places_to_fill: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, tiny(base_url=None))
    monkeypatch.delenv("PROFLAB_OFFLINE")
    for get in (fetch, proflab.recording):
        with pytest.raises(RecordingUnavailable, match="reinstall the course"):
            get("tiny")
