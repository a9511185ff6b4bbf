"""Downloads that end where the file is known to end, whatever the server sends after that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

Downloader = Callable[[str, Any, Any], Any]
"""A function that pooch calls with an address, a file to write to, and itself or None."""


def limited(download: Downloader, most_bytes: int) -> Downloader:
    """A downloader that raises ValueError as soon as more than `most_bytes` bytes have come; they
    are counted after any decompression.
    """

    def fetch(url: str, output_file: str, pooch: Any) -> None:
        with Path(output_file).open("wb") as file:
            download(url, _Limited(file, most_bytes), pooch)

    return fetch


class _Limited:
    """A file that refuses to grow beyond a size."""

    def __init__(self, file: BinaryIO, most_bytes: int) -> None:
        self._file = file
        self._most = self._left = most_bytes

    def write(self, content: bytes) -> int:
        self._left -= len(content)
        if self._left < 0:
            raise ValueError(f"More came than the {self._most:,} bytes that this file has.")
        return self._file.write(content)

    def flush(self) -> None:
        self._file.flush()
