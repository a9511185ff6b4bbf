"""Staging CIFAR-100 from a server on this machine that misbehaves in every way that real ones do."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tarfile
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cifar_train.data import download, transfer
from cifar_train.data.cifar100 import find_damage
from cifar_train.data.download import ARCHIVE_NAME, download_cifar100
from cifar_train.errors import UserError
from tests.cifar_train.cifar_files import md5, write_archive, write_cifar100
from tests.patience import PATIENCE_S

PART = f"{ARCHIVE_NAME}.part"


@dataclass
class Server:
    """What the server on 127.0.0.1 sends and how; `requests` holds the Range header of each request."""

    content: bytes
    url: str = ""
    knows_ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    status: int | None = None
    silent: bool = False
    says_length: bool = True
    stop: threading.Event = field(default_factory=threading.Event)
    requests: list[str | None] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    server_state: Server

    def do_GET(self) -> None:
        state = self.server_state
        wanted = self.headers.get("Range")
        state.requests.append(wanted)
        if state.silent:
            state.stop.wait(20)
            return
        if state.status is not None:
            self.send_error(state.status)
            return
        first = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and state.knows_ranges else 0
        if first and first >= len(state.content):
            self.send_error(416)
            return
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(state.content) - 1}/{len(state.content)}")
        if state.says_length:
            self.send_header("Content-Length", str(len(state.content) - first))
        self.end_headers()
        last = first + state.cut_after.pop(0) if state.cut_after else len(state.content)
        self.wfile.write(state.content[first:last])

    def log_message(self, *_: object) -> None:
        """Keep the server's log out of the tests' output."""


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> tuple[bytes, dict[str, str]]:
    """A small archive in CIFAR-100's format and the checksums of its files."""
    folder = tmp_path_factory.mktemp("original")
    checksums = write_cifar100(folder, train=100, test=20)
    write_archive(folder, folder / "archive.tar.gz")
    return (folder / "archive.tar.gz").read_bytes(), checksums


@pytest.fixture
def server(original, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("CIFAR100_URL", raising=False)
    # The archive is small; so are the pieces, or every transfer would be over at once.
    monkeypatch.setattr(transfer, "PIECE", 4096)
    state = Server(original[0])
    handler = type("StatefulHandler", (Handler,), {"server_state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        state.url = f"http://127.0.0.1:{running.server_port}/{ARCHIVE_NAME}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        state.stop.set()
        running.shutdown()
        thread.join()


@pytest.fixture
def fetch(original, server, tmp_path):
    """Stage from the server into tmp_path/data; keyword arguments change the call."""
    content, checksums = original

    def call(**changes) -> Path:
        arguments = {
            "data_path": tmp_path / "data",
            "url": server.url,
            "archive_md5": md5(content),
            "file_md5s": checksums,
            "progress": False,
            "timeout": 5.0,
        }
        return download_cifar100(**(arguments | changes))

    return call


def one_line(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# When all is well


def test_stages_a_verified_copy(fetch, server, tmp_path, original, capsys):
    folder = fetch()
    assert folder == tmp_path / "data" / "cifar-100-python"
    assert find_damage(tmp_path / "data", original[1]) is None
    assert names(tmp_path / "data") == {"cifar-100-python", ARCHIVE_NAME}
    assert server.requests == [None]
    assert f"fetching {server.url}" in capsys.readouterr().out


def test_a_second_call_says_so_and_asks_nobody(fetch, server, capsys):
    fetch()
    capsys.readouterr()
    fetch()
    assert len(server.requests) == 1
    assert "already staged" in capsys.readouterr().out


def test_staged_data_in_a_folder_without_write_permission_is_fine(fetch, tmp_path, monkeypatch):
    fetch()

    def refuse(*_args, **_keywords):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(os, "open", refuse)
    assert fetch() == tmp_path / "data" / "cifar-100-python"


def test_other_people_may_read_what_was_staged(fetch, tmp_path):
    before = os.umask(0o022)
    try:
        folder = fetch()
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o755
    for path in [*folder.iterdir(), tmp_path / "data" / ARCHIVE_NAME]:
        assert path.stat().st_mode & 0o444 == 0o444


def test_address_from_the_environment(fetch, server, monkeypatch, capsys):
    monkeypatch.setenv("CIFAR100_URL", server.url)
    fetch(url=None)
    assert server.requests == [None]
    assert f"fetching {server.url}" in capsys.readouterr().out


def test_official_address_and_checksum_are_those_of_torchvision():
    from torchvision.datasets import CIFAR100

    assert (CIFAR100.url, CIFAR100.tgz_md5) == (download.ARCHIVE_URL, download.ARCHIVE_MD5)
    assert CIFAR100.filename == download.ARCHIVE_NAME


def test_file_address(fetch, server, original, tmp_path):
    mirror = tmp_path / "mirror.tar.gz"
    mirror.write_bytes(original[0])
    fetch(url=mirror.as_uri())
    assert server.requests == []
    with pytest.raises(UserError, match="No such file") as error:
        fetch(url=(tmp_path / "nowhere.tar.gz").as_uri(), data_path=tmp_path / "other")
    one_line(error)


def test_an_archive_that_was_copied_by_hand_needs_no_network(fetch, server, original, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ARCHIVE_NAME).write_bytes(original[0])
    fetch()
    assert server.requests == []


def test_a_broken_archive_that_was_copied_by_hand_is_replaced(fetch, server, original, tmp_path, capsys):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ARCHIVE_NAME).write_bytes(original[0][:-100])
    fetch()
    assert server.requests == [None]
    assert f"expected md5 {md5(original[0])}, found {md5(original[0][:-100])}" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["change", "remove"])
def test_damaged_files_are_replaced(fetch, original, tmp_path, damage, capsys):
    path = fetch() / "train"
    path.write_bytes(b"short") if damage == "change" else path.unlink()
    fetch()
    assert find_damage(tmp_path / "data", original[1]) is None
    assert names(tmp_path / "data") == {"cifar-100-python", ARCHIVE_NAME}
    assert "replacing it" in capsys.readouterr().out


# Progress


def test_a_log_gets_a_line_for_each_tenth(fetch, server, capsys):
    fetch(progress=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if "MB (" in line]
    assert len(lines) == 10
    assert lines[-1].endswith("(100 %)")
    assert "\r" not in "".join(lines)


def test_a_terminal_gets_a_bar(fetch, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fetch(progress=None)
    shown = capsys.readouterr().err
    assert "\r" in shown
    assert "100%" in shown


def test_without_a_terminal_lines_are_the_default(fetch, capsys):
    fetch(progress=None)
    assert "(100 %)" in capsys.readouterr().out


def test_unknown_length(fetch, server, original, tmp_path):
    server.says_length = False
    fetch()
    assert find_damage(tmp_path / "data", original[1]) is None


# Cut-off transfers


def test_a_cut_transfer_goes_on_where_it_stopped(fetch, server, original, tmp_path, capsys):
    server.cut_after = [50_000, 70_000]
    fetch()
    assert server.requests == [None, "bytes=50000-", "bytes=120000-"]
    assert find_damage(tmp_path / "data", original[1]) is None
    assert "connection lost" in capsys.readouterr().out


def test_a_later_run_goes_on_with_what_an_earlier_one_left(fetch, server, original, tmp_path):
    server.cut_after = [50_000, 0]
    with pytest.raises(UserError, match=r"50,000 of [\d,]+ bytes") as error:
        fetch()
    assert str(tmp_path / "data" / PART) in one_line(error)
    assert (tmp_path / "data" / PART).read_bytes() == original[0][:50_000]
    fetch()
    assert server.requests[-1] == "bytes=50000-"
    assert names(tmp_path / "data") == {"cifar-100-python", ARCHIVE_NAME}


def test_a_server_without_ranges_sends_everything_again(fetch, server, original, tmp_path, capsys):
    server.knows_ranges = False
    server.cut_after = [50_000]
    fetch()
    assert server.requests == [None, "bytes=50000-"]
    assert "starting again" in capsys.readouterr().out
    assert find_damage(tmp_path / "data", original[1]) is None


def test_a_server_without_ranges_that_always_fails_is_given_up(fetch, server):
    server.knows_ranges = False
    server.cut_after = [50_000] * 20
    with pytest.raises(UserError, match="could not be fetched"):
        fetch()
    assert len(server.requests) == 2


@pytest.mark.parametrize("surplus", [0, 10])
def test_a_partial_file_that_is_too_long_is_thrown_away(fetch, server, original, tmp_path, surplus):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / PART).write_bytes(b"x" * (len(original[0]) + surplus))
    fetch()
    assert server.requests == [f"bytes={len(original[0]) + surplus}-", None]
    assert find_damage(tmp_path / "data", original[1]) is None


def test_a_partial_file_of_something_else_is_found_out_and_removed(fetch, server, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / PART).write_bytes(b"something else")
    with pytest.raises(UserError, match="expected md5:"):
        fetch()
    assert names(tmp_path / "data") == set()
    fetch()
    assert server.requests == ["bytes=14-", None]


# What goes wrong, in one line each


def test_wrong_bytes(fetch, server, original, tmp_path):
    server.content = original[0][:-1] + bytes([original[0][-1] ^ 1])
    with pytest.raises(UserError) as error:
        fetch()
    text = one_line(error)
    assert f"expected md5:{md5(original[0])} but found {md5(server.content)}" in text
    assert server.url in text
    assert names(tmp_path / "data") == set()


def test_no_network(fetch, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = unused.getsockname()[1]
        with pytest.raises(UserError, match=r"no connection to 127\.0\.0\.1 \(Connection refused\)") as error:
            fetch(url=f"http://127.0.0.1:{closed}/x")
    text = one_line(error)
    assert "run this again where there is network" in text
    assert f"copy {ARCHIVE_NAME} into {tmp_path / 'data'}" in text


def test_unknown_host(fetch, monkeypatch):
    def unknown(*_args, **_keywords):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(UserError, match=r"no connection to no\.such\.host \(Name or service not known\)"):
        fetch(url="http://no.such.host/x")


def test_time_out(fetch, server):
    server.silent = True
    with pytest.raises(UserError, match=r"time-out, 127\.0\.0\.1 sent nothing for 0\.2 s") as error:
        fetch(timeout=0.2)
    one_line(error)


@pytest.mark.parametrize("status", [403, 404, 503])
def test_http_errors(fetch, server, status):
    server.status = status
    with pytest.raises(UserError, match=f"the server answered {status} ") as error:
        fetch()
    assert server.url in one_line(error)


def test_not_an_address(fetch):
    with pytest.raises(UserError, match="not an address"):
        fetch(url="cifar-100-python.tar.gz")


def test_disk_full(fetch, tmp_path):
    (tmp_path / "data").mkdir()
    # /dev/full answers every write as a full disk does.
    (tmp_path / "data" / PART).symlink_to("/dev/full")
    with pytest.raises(UserError, match="disk is full") as error:
        fetch()
    assert "No space left on device" in one_line(error)
    assert "MB free" in one_line(error)


def test_disk_full_while_unpacking_leaves_nothing_behind(fetch, tmp_path, monkeypatch):
    def full(*_args, **_keywords):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractfile", full)
    with pytest.raises(UserError, match="disk is full"):
        fetch()
    assert names(tmp_path / "data") == {ARCHIVE_NAME}


def test_path_that_cannot_be_written(fetch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot be used as data folder") as error:
        fetch(data_path=tmp_path / "file" / "data")
    assert str(tmp_path / "file" / "data") in one_line(error)


def archive_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (b"this is no archive", "ReadError"),
        (archive_of({"cifar-100-python/train": bytes(3000)})[:60], "EOFError"),
        (archive_of({"something/else": b"1"}), "train is missing"),
        (archive_of({"cifar-100-python/train": b"1"}), "train has a wrong checksum"),
        (archive_of({"../outside": b"1"}), "train is missing"),
        (archive_of({"/tmp/outside": b"1", "cifar-100-python/train": b"1"}), "wrong checksum"),
    ],
    ids=["text", "cut", "another", "damaged", "above", "absolute"],
)
def test_corrupt_archives(fetch, server, tmp_path, content, finding):
    server.content = content
    with pytest.raises(UserError, match=f"is corrupt .*{finding}") as error:
        fetch(archive_md5=md5(content))
    assert "run this again" in one_line(error)
    assert names(tmp_path / "data") == set()
    assert not (tmp_path / "outside").exists()


# Several at once


def fetch_in_a_process(data_path: Path, url: str, archive_md5: str, checksums: dict[str, str], results) -> None:
    try:
        download_cifar100(data_path, url=url, archive_md5=archive_md5, file_md5s=checksums, progress=False, timeout=5.0)
        results.put("staged")
    except BaseException as error:
        results.put(repr(error))


@pytest.mark.parametrize("locks", [True, False])
def test_several_processes_at_once(server, original, tmp_path, monkeypatch, locks):
    if not locks:
        monkeypatch.setattr(download, "_lock", lambda folder: False)
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    arguments = (tmp_path / "data", server.url, md5(original[0]), original[1], results)
    processes = [fork.Process(target=fetch_in_a_process, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=PATIENCE_S) for _ in processes]
    for process in processes:
        process.join()
    assert outcomes == ["staged"] * 4
    assert find_damage(tmp_path / "data", original[1]) is None
    assert names(tmp_path / "data") == {"cifar-100-python", ARCHIVE_NAME}
    if locks:
        assert server.requests == [None]


def test_the_lock_is_held_by_one_at_a_time(tmp_path):
    first, second = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    assert download._lock(first)
    waiting = threading.Thread(target=download._lock, args=(second,))
    waiting.start()
    waiting.join(timeout=0.2)
    assert waiting.is_alive()
    os.close(first)
    waiting.join(timeout=PATIENCE_S)
    assert not waiting.is_alive()
    os.close(second)


def test_fetching_needs_no_torch(tmp_path):
    code = (
        "import sys; from pathlib import Path; from cifar_train.data.download import download_cifar100\n"
        "try: download_cifar100(Path(sys.argv[1]), url='file:///nowhere')\n"
        "except Exception as error: assert type(error).__name__ == 'UserError', error\n"
        "else: sys.exit('no error')\n"
        "sys.exit('torch' in sys.modules or 'torchvision' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code, tmp_path], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
