"""Staging CIFAR-100: fetch, verify, unpack. Needs neither torch nor a GPU nor a job.

Run it where there is network, usually on a login node, and once for everybody:
`python -m cifar_train --download-only --data-path FOLDER`. Set CIFAR100_URL to take
the archive from a mirror or a file:// address; its checksum is verified all the same.
An archive that already lies in the folder is used without any network.
"""

from __future__ import annotations

import errno
import gzip
import logging
import os
import shutil
import socket
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cifar_train.console import say
from cifar_train.data.cifar100 import FILE_MD5S, FOLDER, find_damage, is_absent, md5_of
from cifar_train.data.transfer import ResumingDownloader
from cifar_train.errors import UserError

ARCHIVE_NAME = "cifar-100-python.tar.gz"
ARCHIVE_URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE_NAME}"
ARCHIVE_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
"""Address and checksum as in torchvision.datasets.CIFAR100."""

SPACE_NEEDED_MB = 360
"""Archive, 169 MB, and its contents, 186 MB."""

URL_VARIABLE = "CIFAR100_URL"


def download_cifar100(
    data_path: Path,
    *,
    progress: bool | None = None,
    url: str | None = None,
    archive_md5: str = ARCHIVE_MD5,
    file_md5s: Mapping[str, str] = FILE_MD5S,
    timeout: float = 30.0,
) -> Path:
    """Stage CIFAR-100 in `data_path` and return the folder with its files.

    Returns at once if it is there and whole; damaged files are replaced. `progress`
    True draws a bar, False prints plain lines, None takes the bar on a terminal.
    `url` is by default CIFAR100_URL from the environment, else the official address.
    `timeout` is the longest silence of the server in seconds. Several processes may
    do this at once. Raises UserError.
    """
    url = url or os.environ.get(URL_VARIABLE) or ARCHIVE_URL
    with _disk_errors_explained(data_path):
        if find_damage(data_path, file_md5s) is None:
            return _staged(data_path, "already ")
        data_path.mkdir(parents=True, exist_ok=True)
        with _partial_file(data_path) as part:
            # Another process may have done it while this one waited.
            damage = find_damage(data_path, file_md5s)
            if damage is not None:
                if not is_absent(data_path):
                    say(f"{damage}; replacing it")
                downloader = ResumingDownloader(part, timeout, progress, _advice(data_path))
                _unpack(_fetch(data_path, url, archive_md5, downloader), data_path, file_md5s)
    return _staged(data_path)


def _staged(data_path: Path, already: str = "") -> Path:
    say(f"CIFAR-100 is {already}staged in {data_path / FOLDER}, checksums verified")
    return data_path / FOLDER


def _advice(data_path: Path) -> str:
    return (
        "run this again where there is network (compute nodes often have none), "
        f"or copy {ARCHIVE_NAME} into {data_path} from elsewhere, or set {URL_VARIABLE} to a mirror"
    )


def _fetch(data_path: Path, url: str, archive_md5: str, downloader: ResumingDownloader) -> Path:
    """The verified archive: the one that lies in `data_path`, or else a new one."""
    import pooch

    archive = data_path / ARCHIVE_NAME
    if not archive.exists():
        say(f"fetching {url} into {data_path}")
    elif (found := md5_of(archive)) != archive_md5:
        say(f"{archive} has a wrong checksum: expected md5 {archive_md5}, found {found}; fetching {url} instead")
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        pooch.retrieve(url, known_hash=f"md5:{archive_md5}", fname=ARCHIVE_NAME, path=data_path, downloader=downloader)
    except ValueError as error:  # pooch names both checksums and has removed the file
        reason = str(error).split(" Deleted")[0].replace("but got", "but found")
        raise UserError(
            f"{reason} The file from {url} was cut short, changed or is another one, and has been removed; "
            "run this again, or take it from elsewhere"
        ) from error
    return archive


def _unpack(archive: Path, data_path: Path, file_md5s: Mapping[str, str]) -> None:
    """Unpack beside the final place, verify, then rename: nobody ever sees half a data set."""
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=data_path) as name:
        scratch = Path(name)
        try:
            with tarfile.open(archive) as content:
                _extract_named(content, scratch, file_md5s)
            damage = find_damage(scratch, file_md5s)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            damage = f"{type(error).__name__}: {error}"
        if damage is not None:
            archive.unlink(missing_ok=True)
            reason = " ".join(damage.replace(f"{scratch}/", "").split())
            raise UserError(f"{archive} is corrupt ({reason}) and has been removed; run this again to fetch it anew")
        _put_in_place(scratch, data_path, file_md5s)


def _extract_named(content: tarfile.TarFile, scratch: Path, names: Iterable[str]) -> None:
    """Write the files that are wanted and nothing else, so that no path in the archive can lead elsewhere."""
    (scratch / FOLDER).mkdir()
    wanted = {f"{FOLDER}/{name}": scratch / FOLDER / name for name in names}
    for member in content:
        if member.isfile() and member.name in wanted:
            with content.extractfile(member) as source, wanted[member.name].open("wb") as target:
                shutil.copyfileobj(source, target)


def _put_in_place(scratch: Path, data_path: Path, file_md5s: Mapping[str, str]) -> None:
    target = data_path / FOLDER
    if target.exists():
        target.rename(scratch / "replaced")
    try:
        (scratch / FOLDER).rename(target)
    except OSError:
        # Without locks another process may have come first; then its files are as good.
        if find_damage(data_path, file_md5s) is not None:
            raise


@contextmanager
def _partial_file(data_path: Path) -> Iterator[Path]:
    """The name under which the archive is collected; processes take turns with it.

    Where the file system has no locks, each process gets a name of its own, which
    cannot be resumed and is removed at the end.
    """
    folder = os.open(data_path, os.O_RDONLY)
    try:
        if _lock(folder):
            yield data_path / f"{ARCHIVE_NAME}.part"
            return
        private = data_path / f"{ARCHIVE_NAME}.{socket.gethostname()}-{os.getpid()}.part"
        try:
            yield private
        finally:
            private.unlink(missing_ok=True)
    finally:
        os.close(folder)


def _lock(folder: int) -> bool:
    """Lock an open folder until it is closed, waiting for others; False where that is not possible."""
    try:
        import fcntl

        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching CIFAR-100 into this folder; waiting for it")
            fcntl.flock(folder, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return False
    return True


@contextmanager
def _disk_errors_explained(data_path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(data_path).free / 1e6
            raise UserError(
                f"{data_path}: the disk is full or your quota is used up ({error.strerror}; {free:,.0f} MB free on the "
                f"disk, about {SPACE_NEEDED_MB} MB needed); free some space or give another --data-path, then run again"
            ) from error
        raise UserError(
            f"{data_path} cannot be used as data folder ({error.strerror or error}); "
            "give a --data-path that you may write to"
        ) from error
