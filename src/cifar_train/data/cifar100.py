"""The CIFAR-100 files: their names and checksums, whether they are there and whole, and how they
are read.

The data set and its Python format: Krizhevsky, Learning Multiple Layers of Features
from Tiny Images (2009), https://www.cs.toronto.edu/~kriz/cifar.html. The checksums
are those that torchvision.datasets.CIFAR100 lists. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidyprof.errors import UserError

if TYPE_CHECKING:
    import numpy as np

FOLDER = "cifar-100-python"
FILE_MD5S = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
CLASSES = 100
CHANNELS = 3
IMAGE_SIZE = 32
"""Pixels along one side of an image."""


def fetch_command(data_path: Path) -> str:
    """The command that stages CIFAR-100 in `data_path`."""
    where = "" if data_path == Path("data") else f" --data-path {shlex.quote(str(data_path))}"
    return f"python -m cifar_train --download-only{where}"


def is_absent(data_path: Path) -> bool:
    """Whether none of the files of CIFAR-100 is there."""
    return not any((data_path / FOLDER / name).exists() for name in FILE_MD5S)


def find_damage(data_path: Path, file_md5s: Mapping[str, str] = FILE_MD5S) -> str | None:
    """What is wrong with the staged files, in words; None if each of them is there and has its MD5
    checksum.
    """
    for name, expected in file_md5s.items():
        path = data_path / FOLDER / name
        if not path.is_file():
            return f"{path} is missing"
        if (found := md5_of(path)) != expected:
            return f"{path} has a wrong checksum: expected md5 {expected}, found {found}"
    return None


def verify_staged(data_path: Path) -> None:
    """Raise UserError unless every file of CIFAR-100 is there and has its checksum.

    It reads all files, 186 MB, which takes about half a second from a warm cache.
    """
    try:
        damage = find_damage(data_path)
    except OSError as error:
        raise UserError(
            f"{data_path / FOLDER} cannot be read ({error.strerror or error}); check the path and"
            " its permissions"
        ) from error
    if damage is not None:
        raise UserError(
            f"{damage}; the data set was cut short or changed, fetch it again:"
            f" {fetch_command(data_path)}"
        )


def md5_of(path: Path) -> str:
    """The MD5 checksum of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def read_images(data_path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The training images, uint8 [N, 3, 32, 32], and their fine labels 0 to 99, int64 [N].

    The checksum is that of the very bytes that are used, even if the file changes meanwhile. And a
    pickle runs no program here, even if it has that checksum. Raises UserError for a file that
    cannot be read, or has another checksum.
    """
    import numpy as np

    path = data_path / FOLDER / "train"
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror or error}); fetch it again"
        ) from error
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != FILE_MD5S["train"]:
        raise UserError(
            f"{path} was changed while it was in use: expected md5 {FILE_MD5S['train']}, found"
            f" {found}; look who may write there, and fetch it again: {fetch_command(data_path)}"
        )
    read = _Arrays(io.BytesIO(content), encoding="bytes").load()
    images = read[b"data"].reshape(-1, CHANNELS, IMAGE_SIZE, IMAGE_SIZE)
    return images, np.array(read[b"fine_labels"], dtype=np.int64)


class _Arrays(pickle.Unpickler):
    """Reads NumPy's arrays, and calls nothing else that a pickle asks for."""

    def find_class(self, module: str, name: str) -> Any:
        """What the pickle may call. Raises UserError for anything else."""
        if (module, name) not in _OF_ARRAYS:
            raise UserError(
                f"CIFAR-100's file asks for {module}.{name}, which has no place in it; it was"
                " not run"
            )
        return super().find_class(module, name)


_OF_ARRAYS = {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}
"""Module and name of all that NumPy 1 asks for in the official files."""
