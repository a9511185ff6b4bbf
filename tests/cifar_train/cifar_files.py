"""Small data sets in CIFAR-100's own files, for tests of the real reader and the real command
line.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

PIXELS = 3 * 32 * 32


class _Python2Pickler(pickle._Pickler):
    """Writes what Python 2 wrote for the official files: protocol 2, and every string as bytes
    without an encoding.
    """

    dispatch = pickle._Pickler.dispatch.copy()

    def save_bytes(self, value: bytes) -> None:
        if len(value) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(value)]) + value)
        else:
            self.write(pickle.BINSTRING + len(value).to_bytes(4, "little") + value)
        self.memoize(value)

    def save_str(self, value: str) -> None:
        self.save_bytes(value.encode("ascii"))

    dispatch[bytes] = save_bytes
    dispatch[str] = save_str


def python2_pickle(value: Any) -> bytes:
    """The bytes of a pickle as Python 2 and NumPy 1 wrote it."""
    buffer = io.BytesIO()
    _Python2Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def make_split(count: int, seed: int, name: str) -> dict[bytes, Any]:
    """The dictionary of one split: `count` random images, no two alike, labels from all over 0 to
    99.
    """
    random = np.random.default_rng(seed)
    labels = [(7 * number + seed) % 100 for number in range(count)]
    return {
        b"filenames": [f"{name}_{number:06}.png".encode() for number in range(count)],
        b"batch_label": f"{name} batch 1 of 1".encode(),
        b"fine_labels": labels,
        b"coarse_labels": [label // 5 for label in labels],
        b"data": random.integers(0, 256, (count, PIXELS), dtype=np.uint8),
    }


def write_cifar100(
    data_path: Path, train: int = 50, test: int = 10, seed: int = 0
) -> dict[str, str]:
    """Write a small CIFAR-100 into `data_path` and return the MD5 checksums of its files by
    name.
    """
    folder = data_path / "cifar-100-python"
    folder.mkdir(parents=True, exist_ok=True)
    meta = {
        b"fine_label_names": [f"fine {number}".encode() for number in range(100)],
        b"coarse_label_names": [f"coarse {number}".encode() for number in range(20)],
    }
    contents = {
        "train": make_split(train, seed, "train"),
        "test": make_split(test, seed + 1, "test"),
        "meta": meta,
    }
    for name, content in contents.items():
        (folder / name).write_bytes(python2_pickle(content))
    return {name: md5((folder / name).read_bytes()) for name in contents}


def write_archive(data_path: Path, target: Path) -> str:
    """Pack the data set of `data_path` as the official archive is packed; returns the MD5 checksum
    of `target`.
    """
    with tarfile.open(target, "w:gz") as archive:
        archive.add(data_path / "cifar-100-python", arcname="cifar-100-python")
    return md5(target.read_bytes())


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
