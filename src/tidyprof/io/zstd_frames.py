"""Whether a zstd file is whole: the decompressor takes one that was cut off for one that ends."""

from __future__ import annotations

import os
from typing import BinaryIO

_MAGIC = 0xFD2FB528
_SKIPPABLE_MAGIC = 0x184D2A50
_DICTIONARY_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_RUN_LENGTH_BLOCK = 1


def ends_with_a_frame(file: BinaryIO) -> bool:
    """Whether the last frame of a zstd file is complete, from the headers of frames and blocks (RFC 8878, section 3).

    Only for content that could be decompressed as far as it goes. The position in the file is moved.
    """
    size = file.seek(0, os.SEEK_END)
    place = 0
    while 0 <= place < size:
        place = _after_frame(file, place)
    return place == size


def _after_frame(file: BinaryIO, place: int) -> int:
    """Where the frame at `place` ends; -1 if the file ends within its headers."""
    file.seek(place)
    magic = _number(file, 4)
    if magic & ~0xF == _SKIPPABLE_MAGIC:
        length = _number(file, 4)
        return -1 if length < 0 else place + 8 + length
    descriptor = _number(file, 1)
    if magic != _MAGIC or descriptor < 0:
        return -1
    is_single_segment = bool(descriptor & 0x20)
    header = 5 + (not is_single_segment) + _DICTIONARY_BYTES[descriptor & 3]
    header += _CONTENT_SIZE_BYTES[descriptor >> 6] or is_single_segment
    end = _after_blocks(file, place + header)
    return -1 if end < 0 else end + (4 if descriptor & 4 else 0)


def _after_blocks(file: BinaryIO, place: int) -> int:
    """Where the last of the blocks from `place` on ends; -1 if the file ends before its header."""
    is_last = False
    while not is_last:
        file.seek(place)
        header = _number(file, 3)
        if header < 0:
            return -1
        is_last, kind, length = bool(header & 1), header >> 1 & 3, header >> 3
        place += 3 + (1 if kind == _RUN_LENGTH_BLOCK else length)
    return place


def _number(file: BinaryIO, length: int) -> int:
    """The next little-endian number, -1 if the file ends before."""
    data = file.read(length)
    return int.from_bytes(data, "little") if len(data) == length else -1
