"""Staging CIFAR-100: fetch, verify, unpack. Needs neither torch nor a GPU nor a job.

Run it where there is a network, usually on a login node, and once for everybody:
`python -m cifar_train --download-only --data-path FOLDER`. Set CIFAR100_URL to take the archive
from a mirror or a file:// address; its checksum is verified all the same. An archive that is
already in the folder is used without any network.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import shutil
import stat
import sys
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pooch
import requests
from tqdm import tqdm

from cifar_train.console import say
from cifar_train.data.cifar100 import FILE_MD5S, FOLDER, find_damage, is_absent, md5_of
from cifar_train.data.limited_download import limited
from tidyprof.errors import UserError
from tidyprof.whole_files import scratch_folder, whole_file

ARCHIVE_NAME = "cifar-100-python.tar.gz"
ARCHIVE_URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE_NAME}"
ARCHIVE_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
"""Address and checksum as in torchvision.datasets.CIFAR100."""

ARCHIVE_BYTES = 169_001_437
"""Size of the archive: what the progress bars in logs of torchvision and Keras count to."""

SPACE_NEEDED_MB = 360
"""The archive has 169 MB, and its contents have 186 MB."""

MEMBER_BYTES = 160_000_000
"""Largest file that is unpacked: the largest one in the archive has 155,249,918 bytes."""

URL_VARIABLE = "CIFAR100_URL"

SECONDS_PER_LINE = 10.0
"""How often a log gets a line on how far a transfer has come."""


def download_cifar100(
    data_path: Path,
    *,
    url: str | None = None,
    archive_md5: str = ARCHIVE_MD5,
    archive_bytes: int = ARCHIVE_BYTES,
    file_md5s: Mapping[str, str] = FILE_MD5S,
    timeout: float = 30.0,
) -> Path:
    """Stage CIFAR-100 in `data_path` and return the folder with its files.

    Returns at once if it is there and whole; damaged files are replaced. `url` is by default
    CIFAR100_URL from the environment, else the official address; at most `archive_bytes` are taken
    from there. `timeout` is the longest silence of the server, in seconds. Several processes may do
    this at once, and what a killed one left is removed. Raises UserError for an archive that cannot
    be fetched, stored or verified.
    """
    url = url or os.environ.get(URL_VARIABLE) or ARCHIVE_URL
    with _disk_errors_explained(data_path):
        damage = find_damage(data_path, file_md5s)
        if damage is not None:
            if not is_absent(data_path):
                say(f"{damage}; replacing it")
            data_path.mkdir(parents=True, exist_ok=True)
            _unpack(
                _archive(data_path, url, archive_md5, archive_bytes, timeout), data_path, file_md5s
            )
    already = "already " if damage is None else ""
    say(f"CIFAR-100 is {already}staged in {data_path / FOLDER}, checksums verified")
    return data_path / FOLDER


def _archive(
    data_path: Path, url: str, archive_md5: str, archive_bytes: int, timeout: float
) -> Path:
    """The verified archive: the one in `data_path`, or else a new one."""
    archive = data_path / ARCHIVE_NAME
    wrong = ""
    with suppress(FileNotFoundError):  # none there, or another process has just removed it
        found = md5_of(archive)
        if found == archive_md5:
            return archive
        wrong = f"{archive} has a wrong checksum: expected md5 {archive_md5}, found {found}; "
    say(f"{wrong}fetching {url} into {data_path}")
    _fetch(archive, url, archive_md5, archive_bytes, timeout)
    return archive


def _fetch(archive: Path, url: str, archive_md5: str, archive_bytes: int, timeout: float) -> None:
    pooch.get_logger().setLevel(logging.WARNING)
    bar = tqdm if sys.stderr.isatty() else _PlainLines
    progress = bar(
        total=1, unit="B", unit_scale=True, desc="CIFAR-100"
    )  # pooch knows the true total
    download = (
        _copy
        if url.startswith("file:")
        else pooch.HTTPDownloader(progressbar=progress, timeout=timeout)
    )
    download = limited(download, archive_bytes)
    try:
        with whole_file(archive) as partial:
            pooch.retrieve(
                url, f"md5:{archive_md5}", partial.name, partial.parent, downloader=download
            )
            partial.chmod(0o644)  # pooch makes it for its owner alone
    except requests.RequestException as error:
        # requests wraps the reason for a failed connection in two other errors.
        reason = getattr(error.args[0] if error.args else error, "reason", error)
        raise UserError(
            f"{url} could not be fetched: {reason}; run this again where there is network (compute"
            f" nodes often have none), or copy {ARCHIVE_NAME} into {archive.parent} from elsewhere,"
            f" or set {URL_VARIABLE} to a mirror"
        ) from error
    except ValueError as error:  # pooch names both checksums and has removed the file
        reason = str(error).split(" Deleted")[0].replace("but got", "but found")
        raise UserError(
            f"{reason} The file from {url} was cut short, changed or is another one, and has been"
            " removed; run this again, or take it from elsewhere"
        ) from error


def _copy(url: str, output_file: Any, pooch: Any) -> None:
    """pooch's downloader for file:// addresses."""
    source = Path(url2pathname(urlsplit(url).path))
    try:
        # Opening a pipe would wait for its writer.
        if not stat.S_ISREG(source.stat().st_mode):
            raise UserError(
                f"{url} is a folder, a pipe or a device; let {URL_VARIABLE} name the archive"
            )
        content = source.open("rb")
    except OSError as error:
        raise UserError(
            f"{url} could not be fetched: {error.strerror}; set {URL_VARIABLE} to another place"
        ) from error
    with content:
        shutil.copyfileobj(content, output_file)


class _PlainLines(tqdm):
    """A progress bar for logs: it writes a line now and then."""

    def __init__(self, **options: Any) -> None:
        shape = "{desc}: {n_fmt} of {total_fmt} ({percentage:.0f} %)"
        super().__init__(
            file=io.StringIO(), mininterval=SECONDS_PER_LINE, bar_format=shape, **options
        )

    def display(self, *_: Any, **__: Any) -> None:
        """Write where the transfer is, unless it has not begun."""
        if self.n:
            say(str(self))


def _unpack(archive: Path, data_path: Path, file_md5s: Mapping[str, str]) -> None:
    """Unpack beside the final place, verify, then rename: no process ever sees half a data set."""
    with scratch_folder(data_path) as scratch:
        try:
            _extract(archive, scratch, file_md5s)
            damage = find_damage(scratch, file_md5s)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            damage = f"{type(error).__name__}: {error}"
        if damage is not None:
            archive.unlink(missing_ok=True)
            reason = " ".join(damage.replace(f"{scratch}/", "").split())
            raise UserError(
                f"{archive} is corrupt ({reason}) and has been removed; run this again to fetch it"
                " anew"
            )
        _put_in_place(scratch / FOLDER, data_path / FOLDER, file_md5s)


def _put_in_place(verified: Path, target: Path, names: Mapping[str, str]) -> None:
    """Rename the folder, or its files into one that is there. Nothing is moved away first, so that
    other processes, which may stage or read the same files, find none of them missing meanwhile.
    """
    in_the_way = [target] if os.path.lexists(target) and not target.is_dir() else []
    in_the_way += [target / name for name in names if (target / name).is_dir()]
    if in_the_way:
        raise UserError(
            f"{in_the_way[0]} is none of CIFAR-100's files, but has the place of one; move it away,"
            " or give another --data-path"
        )
    try:
        verified.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        for name in names:
            (verified / name).replace(target / name)


def _extract(archive: Path, scratch: Path, names: Mapping[str, str]) -> None:
    """Write only the files that are wanted, so that no path in the archive can lead out of the
    folder.
    """
    (scratch / FOLDER).mkdir()
    wanted = {f"{FOLDER}/{name}": scratch / FOLDER / name for name in names}
    with tarfile.open(archive) as content:
        for member in content:
            if member.isfile() and member.name in wanted:
                if member.size > MEMBER_BYTES:
                    raise tarfile.ReadError(f"{member.name} has {member.size:,} bytes")
                with (
                    content.extractfile(member) as source,
                    wanted[member.name].open("wb") as target,
                ):
                    shutil.copyfileobj(source, target)


@contextmanager
def _disk_errors_explained(data_path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(data_path).free / 1e6
            raise UserError(
                f"{data_path}: the disk is full or your quota is used up ({error.strerror};"
                f" {free:,.0f} MB free on the disk, about {SPACE_NEEDED_MB} MB needed); free some"
                " space or give another --data-path, then run again"
            ) from error
        raise UserError(
            f"{data_path} cannot be used as data folder ({error.strerror or error}); "
            "give a --data-path that you may write to"
        ) from error
