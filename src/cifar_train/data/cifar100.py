"""The CIFAR-100 files: names, checksums, whether they are there and whole, and how they are read.

The data set and its Python format: Krizhevsky, Learning Multiple Layers of Features
from Tiny Images (2009), https://www.cs.toronto.edu/~kriz/cifar.html. The checksums
are those that torchvision.datasets.CIFAR100 lists. Nothing here imports torch.
"""

from __future__ import annotations

import hashlib
import pickle
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cifar_train.errors import UserError

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


def find_damage(data_path: Path, file_md5s: Mapping[str, str] | None = FILE_MD5S) -> str | None:
    """What is wrong with the staged files, in words, or None if they are whole.

    `file_md5s` maps each file's name to its MD5 checksum; None checks only that the
    files are there.
    """
    for name in FILE_MD5S if file_md5s is None else file_md5s:
        path = data_path / FOLDER / name
        if not path.is_file():
            return f"{path} is missing"
        if file_md5s is None:
            continue
        found = md5_of(path)
        if found != file_md5s[name]:
            return f"{path} has a wrong checksum: expected md5 {file_md5s[name]}, found {found}"
    return None


def verify_staged(data_path: Path, file_md5s: Mapping[str, str] | None = FILE_MD5S) -> None:
    """Raise UserError unless every file of CIFAR-100 is there with its checksum.

    Reads all files, 186 MB, which takes about half a second from a warm cache.
    """
    try:
        damage = find_damage(data_path, file_md5s)
    except OSError as error:
        raise _unreadable(data_path / FOLDER, error) from error
    if damage is not None:
        raise UserError(f"{damage}; the data set was cut short or changed, fetch it again: {fetch_command(data_path)}")


def md5_of(path: Path) -> str:
    """The MD5 checksum of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def read_images(data_path: Path, split: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """The images and labels of one split, "train" or "test".

    Returns uint8 [N, 3, 32, 32] and int64 [N] with the fine labels 0 to 99. Raises
    UserError for a file that is not CIFAR-100's Python format.
    """
    import numpy as np

    path = data_path / FOLDER / split
    content = _unpickle(path)
    images = content.get(b"data")
    labels = content.get(b"fine_labels")
    pixels = CHANNELS * IMAGE_SIZE * IMAGE_SIZE
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != (pixels,):
        raise _malformed(path, f"no uint8 array of rows of {pixels} pixels under b'data'")
    if not isinstance(labels, list) or len(labels) != len(images) or len(labels) == 0:
        raise _malformed(path, f"not one fine label for each of {len(images)} images")
    if not all(isinstance(label, int) and 0 <= label < CLASSES for label in labels):
        raise _malformed(path, f"fine labels other than whole numbers from 0 to {CLASSES - 1}")
    images = np.require(images.reshape(-1, CHANNELS, IMAGE_SIZE, IMAGE_SIZE), requirements=["C", "W"])
    return images, np.array(labels, dtype=np.int64)


class _ArrayUnpickler(pickle.Unpickler):
    """Loads numpy arrays and plain values and nothing else: a pickle could otherwise run any program."""

    _allowed = frozenset(
        {
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
            ("numpy._core.multiarray", "_reconstruct"),
            # Protocol 2 of Python 3 stores bytes as a latin-1 string and this function.
            ("_codecs", "encode"),
        }
    )

    def find_class(self, module: str, name: str) -> Any:
        # numpy.core became numpy._core in NumPy 2; the official files are older.
        module = module.replace("numpy.core.", "numpy._core.")
        if (module, name) not in self._allowed:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no image file needs")
        return super().find_class(module, name)


def _unpickle(path: Path) -> dict[bytes, Any]:
    try:
        with path.open("rb") as file:
            content = _ArrayUnpickler(file, encoding="bytes").load()
    except OSError as error:
        raise _unreadable(path, error) from error
    except Exception as error:  # damaged pickles raise nearly anything
        raise _malformed(path, f"no readable pickle ({type(error).__name__}: {error})") from error
    if not isinstance(content, dict):
        raise _malformed(path, f"a {type(content).__name__} instead of a dictionary")
    return content


def _unreadable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path} cannot be read ({error.strerror or error}); check the path and its permissions")


def _malformed(path: Path, found: str) -> UserError:
    reason = " ".join(found.split())
    return UserError(
        f"{path} is not CIFAR-100's Python format: {reason}; "
        f"it is damaged or another file, fetch it again: {fetch_command(path.parent.parent)}"
    )
