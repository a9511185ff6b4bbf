"""The files of CIFAR-100: where they are, whether they are complete, and how to download them.

Nothing here imports torch or needs a GPU, because `--download-only` runs on a machine with a
network, usually a login node. The checksums come from torchvision.datasets.CIFAR100.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pooch

from cifar_train.console import say
from tidyprof.errors import UserError

FOLDER = "cifar-100-python"
FILE_MD5S = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
ARCHIVE = "cifar-100-python.tar.gz"
ARCHIVE_MD5 = "eb9058c3a382ffc7106e4002c42a8d85"
URL = f"https://www.cs.toronto.edu/~kriz/{ARCHIVE}"
URL_VARIABLE = "CIFAR100_URL"
"""Environment variable that names a mirror of the archive."""

CLASSES = 100
CHANNELS = 3
IMAGE_SIZE = 32
"""Pixels along one side of an image."""


def fetch_command(data_path: Path) -> str:
    """Return the command that stages CIFAR-100 in `data_path`."""
    where = "" if data_path == Path("data") else f" --data-path {shlex.quote(str(data_path))}"
    return f"python -m cifar_train --download-only{where}"


def is_absent(data_path: Path) -> bool:
    """Return True if all files of CIFAR-100 are missing."""
    return not any((data_path / FOLDER / name).exists() for name in FILE_MD5S)


def find_damage(data_path: Path) -> str | None:
    """Return what is wrong with the staged files, or None if all checksums match."""
    for name, expected in FILE_MD5S.items():
        path = data_path / FOLDER / name
        if not path.is_file():
            return f"{path} is missing"
        if pooch.file_hash(str(path), alg="md5") != expected:
            return f"{path} has a wrong checksum"
    return None


def download(data_path: Path) -> None:
    """Stage CIFAR-100 in `data_path`, unless it is already there and complete.

    If the archive is already there, no network is needed. Raises UserError for an archive that
    can't be downloaded or has a wrong checksum.
    """
    if find_damage(data_path):
        url = os.environ.get(URL_VARIABLE) or URL
        unpack = pooch.Untar(extract_dir=".")
        try:
            archive = pooch.retrieve(
                url, f"md5:{ARCHIVE_MD5}", ARCHIVE, data_path, progressbar=True
            )
            unpack(archive, "download", None)
        except (OSError, ValueError) as error:
            raise UserError(
                f"{url} couldn't be staged in {data_path} ({error}). Run this again on a machine"
                f" with a network, copy {ARCHIVE} to that folder, or set {URL_VARIABLE} to a"
                " mirror."
            ) from error
    say(f"CIFAR-100 is staged in {data_path / FOLDER}, and its checksums match")
