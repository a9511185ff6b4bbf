"""Staging CIFAR-100 from a server on this machine that misbehaves in every way that real ones
do.
"""

from __future__ import annotations

import gzip
import io
import multiprocessing
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cifar_train.data import download
from cifar_train.data.cifar100 import find_damage
from cifar_train.data.download import ARCHIVE_NAME, download_cifar100
from tests.cifar_train.cifar_files import md5, write_archive, write_cifar100
from tidyprof.errors import UserError
from tidyprof_tests.patience import PATIENCE_S


@dataclass
class Server:
    """What the server on 127.0.0.1 sends and how, and how often it was asked."""

    content: bytes
    url: str = ""
    cut_after: int | None = None
    status: int | None = None
    reason: str | None = None
    encoding: str | None = None
    silent: bool = False
    hold: bool = False
    sent: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    requests: int = 0


class Handler(BaseHTTPRequestHandler):
    server_state: Server

    def do_GET(self) -> None:
        state = self.server_state
        state.requests += 1
        if state.silent:
            state.stop.wait(20)
            return
        if state.status is not None:
            self.send_error(state.status, state.reason)
            return
        self.send_response(200)
        if state.encoding:
            self.send_header("Content-Encoding", state.encoding)
        self.send_header("Content-Length", str(len(state.content)))
        self.end_headers()
        with suppress(ConnectionError):  # who has had enough does not listen
            self.wfile.write(state.content[: state.cut_after])
        state.sent.set()
        if state.hold:
            state.stop.wait(PATIENCE_S)

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
            "timeout": PATIENCE_S,
        }
        return download_cifar100(**(arguments | changes))

    return call


@pytest.fixture
def pipe(tmp_path) -> Iterator[Path]:
    """A named pipe, which is empty for who reads it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=[b""])
    writer.start()
    yield path
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    writer.join()


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
    assert server.requests == 1
    assert f"fetching {server.url}" in capsys.readouterr().out


def test_a_second_call_says_so_and_asks_nobody(fetch, server, capsys):
    fetch()
    capsys.readouterr()
    fetch()
    assert server.requests == 1
    assert "already staged" in capsys.readouterr().out


def test_staged_data_in_a_folder_without_write_permission_is_fine(fetch, tmp_path, monkeypatch):
    fetch()

    def refuse(*_args, **_keywords):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
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
    assert server.requests == 1
    assert f"fetching {server.url}" in capsys.readouterr().out


def test_official_address_and_checksum_are_those_of_torchvision():
    from torchvision.datasets import CIFAR100

    assert (CIFAR100.url, CIFAR100.tgz_md5) == (download.ARCHIVE_URL, download.ARCHIVE_MD5)
    assert CIFAR100.filename == download.ARCHIVE_NAME


def test_file_address(fetch, server, original, tmp_path):
    mirror = tmp_path / "mirror.tar.gz"
    mirror.write_bytes(original[0])
    fetch(url=mirror.as_uri())
    assert server.requests == 0
    with pytest.raises(UserError, match="No such file") as error:
        fetch(url=(tmp_path / "nowhere.tar.gz").as_uri(), data_path=tmp_path / "other")
    one_line(error)


def test_an_address_that_is_no_file_is_named_at_once(fetch, pipe, tmp_path):
    for place in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(
            UserError, match="is a folder, a pipe or a device; let CIFAR100_URL name"
        ) as error:
            fetch(url=place.as_uri())
        assert one_line(error).startswith(place.as_uri())


def test_an_archive_that_was_copied_by_hand_needs_no_network(fetch, server, original, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ARCHIVE_NAME).write_bytes(original[0])
    fetch()
    assert server.requests == 0


def test_a_broken_archive_that_was_copied_by_hand_is_replaced(
    fetch, server, original, tmp_path, capsys
):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ARCHIVE_NAME).write_bytes(original[0][:-100])
    fetch()
    assert server.requests == 1
    found = f"expected md5 {md5(original[0])}, found {md5(original[0][:-100])}"
    assert found in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("damage", ["change", "remove"])
def test_damaged_files_are_replaced(fetch, original, tmp_path, damage, capsys):
    path = fetch() / "train"
    path.write_bytes(b"short") if damage == "change" else path.unlink()
    fetch()
    assert find_damage(tmp_path / "data", original[1]) is None
    assert names(tmp_path / "data") == {"cifar-100-python", ARCHIVE_NAME}
    assert "replacing it" in capsys.readouterr().out


# Progress


def test_a_terminal_gets_a_bar(fetch, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    fetch()
    shown = capsys.readouterr().err
    assert "\r" in shown
    assert "100%" in shown


def test_a_log_gets_plain_lines(fetch, capsys):
    fetch()
    shown = capsys.readouterr()
    assert "\r" not in shown.out + shown.err
    assert "(100 %)\n" in shown.out


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
        with pytest.raises(UserError, match="Connection refused") as error:
            fetch(url=f"http://127.0.0.1:{closed}/x")
    text = one_line(error)
    assert "run this again where there is network" in text
    assert f"copy {ARCHIVE_NAME} into {tmp_path / 'data'}" in text


def test_time_out(fetch, server):
    server.silent = True
    with pytest.raises(UserError, match=r"Read timed out. \(read timeout=0\.2\)") as error:
        fetch(timeout=0.2)
    one_line(error)


def test_a_cut_transfer_leaves_nothing_behind(fetch, server, tmp_path):
    server.cut_after = 50_000
    with pytest.raises(UserError, match="50000 bytes read") as error:
        fetch()
    one_line(error)
    assert names(tmp_path / "data") == set()


@pytest.mark.parametrize("status", [403, 404, 503])
def test_http_errors(fetch, server, status):
    server.status = status
    with pytest.raises(UserError, match=f"{status} (Client|Server) Error") as error:
        fetch()
    assert server.url in one_line(error)


def test_a_reason_with_control_characters_cannot_command_the_terminal(fetch, server):
    server.status, server.reason = 403, "\x1b[2J\x1b]0;owned\x07\x9b"
    with pytest.raises(UserError) as error:
        fetch()
    assert one_line(error).isprintable()
    assert r"\x1b[2J" in one_line(error)


@pytest.mark.parametrize("encoding", [None, "gzip"])
def test_more_than_the_known_size_is_cut_off(fetch, server, original, tmp_path, encoding):
    """Many times the archive, as it is or unpacked from few bytes."""
    content = original[0] + bytes(10_000_000)
    server.content, server.encoding = (gzip.compress(content) if encoding else content), encoding
    with pytest.raises(UserError, match=f"More came than the {len(original[0]):,} bytes") as error:
        fetch(archive_bytes=len(original[0]))
    assert server.url in one_line(error)
    assert names(tmp_path / "data") == set()


def test_not_an_address(fetch):
    with pytest.raises(UserError, match="Invalid URL"):
        fetch(url="cifar-100-python.tar.gz")


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


def odd_member(kind: bytes, target: str = "") -> bytes:
    """An archive whose file of images is a link to `target`, or a device."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        header = tarfile.TarInfo("cifar-100-python/train")
        header.type, header.linkname = kind, target
        archive.addfile(header)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_a_member_that_is_no_file_is_not_unpacked(fetch, server, tmp_path, kind):
    (tmp_path / "outside").write_text("mine")
    server.content = odd_member(kind, str(tmp_path / "outside"))
    with pytest.raises(UserError, match=r"is corrupt .*train is missing"):
        fetch(archive_md5=md5(server.content))
    assert (tmp_path / "outside").read_text() == "mine"
    assert names(tmp_path / "data") == set()


def test_a_member_that_would_fill_the_disk_is_not_unpacked(fetch, server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "MEMBER_BYTES", 3000)
    server.content = archive_of({"cifar-100-python/train": bytes(3001)})
    with pytest.raises(UserError, match=r"is corrupt .*train has 3,001 bytes"):
        fetch(archive_md5=md5(server.content))
    assert names(tmp_path / "data") == set()


# Several at once, or killed


def test_what_a_killed_one_left_goes_with_the_next(fetch, server, original, tmp_path):
    server.cut_after, server.hold = 50_000, True
    arguments = (tmp_path / "data", server.url, md5(original[0]), original[1], None)
    killed = multiprocessing.get_context("fork").Process(target=fetch_in_a_process, args=arguments)
    killed.start()
    assert server.sent.wait(PATIENCE_S)
    killed.kill()
    killed.join()
    assert len(names(tmp_path / "data")) == 2
    server.cut_after, server.hold = None, False
    fetch()
    assert names(tmp_path / "data") == {"cifar-100-python", ARCHIVE_NAME}


def fetch_in_a_process(
    data_path: Path, url: str, archive_md5: str, checksums: dict[str, str], results
) -> None:
    try:
        download_cifar100(
            data_path, url=url, archive_md5=archive_md5, file_md5s=checksums, timeout=PATIENCE_S
        )
        results.put("staged")
    except BaseException as error:
        results.put(repr(error))


def test_several_processes_at_once(server, original, tmp_path):
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


def test_what_another_process_staged_meanwhile_is_never_missing(
    fetch, original, tmp_path, monkeypatch
):
    """A third process may look at any moment: none of the renames takes a whole set away."""
    damage_seen = []

    def watched(rename):
        def call(*paths, **options):
            rename(*paths, **options)
            damage_seen.append(find_damage(tmp_path / "data", original[1]))

        return call

    def extract_while_another_stages(*arguments):
        extract(*arguments)
        write_cifar100(tmp_path / "data", train=100, test=20)
        monkeypatch.setattr(os, "rename", watched(os.rename))
        monkeypatch.setattr(os, "replace", watched(os.replace))

    extract = download._extract
    monkeypatch.setattr(download, "_extract", extract_while_another_stages)
    fetch()
    assert damage_seen
    assert set(damage_seen) == {None}


def test_an_archive_that_another_process_removes_is_fetched(
    fetch, server, original, tmp_path, monkeypatch
):
    def removed_before_it_is_read(path):
        path.unlink()
        monkeypatch.setattr(download, "md5_of", md5_of)
        return md5_of(path)

    md5_of = download.md5_of
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / ARCHIVE_NAME).write_bytes(original[0])
    monkeypatch.setattr(download, "md5_of", removed_before_it_is_read)
    fetch()
    assert server.requests == 1
    assert find_damage(tmp_path / "data", original[1]) is None


@pytest.mark.parametrize("taken", ["cifar-100-python", "cifar-100-python/train/mine"])
def test_what_is_no_file_of_the_data_set_is_kept_and_named(fetch, tmp_path, taken):
    path = tmp_path / "data" / taken
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with pytest.raises(UserError, match=r"none of CIFAR-100's files.*move it away"):
        fetch()
    assert path.read_text() == "mine"
    assert names(tmp_path / "data") == {"cifar-100-python", ARCHIVE_NAME}


def test_a_folder_that_is_a_link_to_a_shared_one_stays_a_link(fetch, original, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cifar-100-python").symlink_to(tmp_path / "shared")
    fetch()
    assert (tmp_path / "data" / "cifar-100-python").is_symlink()
    assert names(tmp_path / "shared") == set(original[1])


def test_fetching_needs_no_torch(tmp_path):
    code = (
        "import sys; from pathlib import Path; from cifar_train.data.download import"
        " download_cifar100\ntry: download_cifar100(Path(sys.argv[1]),"
        " url='file:///nowhere')\nexcept Exception as error: assert type(error).__name__ =="
        " 'UserError', error\nelse: sys.exit('no error')\nsys.exit('torch' in sys.modules or"
        " 'torchvision' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path], check=False, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
