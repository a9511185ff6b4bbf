"""Location, verification and download of the CIFAR-100 files.

This module doesn't import torch or need a GPU, because `--download-only` usually runs on a login
node with a network. The checksums come from torchvision.datasets.CIFAR100.
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
"""Environment variable with the URL of an archive mirror."""

CLASSES = 100
CHANNELS = 3
IMAGE_SIZE = 32
"""Width and height of an image in pixels."""


def fetch_command(data_path: Path) -> str:
    """Return the command that downloads CIFAR-100 to `data_path`."""
    where = "" if data_path == Path("data") else f" --data-path {shlex.quote(str(data_path))}"
    return f"python -m cifar_train --download-only{where}"


def is_absent(data_path: Path) -> bool:
    """Return True if every CIFAR-100 file is missing."""
    return not any((data_path / FOLDER / name).exists() for name in FILE_MD5S)


def find_damage(data_path: Path) -> str | None:
    """Return a description of the damage, or None if all checksums match."""
    for name, expected in FILE_MD5S.items():
        path = data_path / FOLDER / name
        if not path.is_file():
            return f"{path} is missing"
        if pooch.file_hash(str(path), alg="md5") != expected:
            return f"{path} has a wrong checksum"
    return None


def download(data_path: Path) -> None:
    """Download and unpack CIFAR-100 in `data_path` if any file is missing or damaged.

    If the folder already contains the archive, the function doesn't need a network. Raises
    UserError if the archive can't be downloaded or has a wrong checksum.
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
