"""The bytes of a file in pieces. Compression is recognized by content, and the size is bounded."""

from __future__ import annotations

import re
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import closing
from io import BufferedIOBase
from pathlib import Path
from typing import BinaryIO, TypeVar

from isal import igzip, isal_zlib

from tidyprof.errors import (
    DAMAGED,
    EMPTY,
    MISSING,
    NO_FILE,
    NOT_PERMITTED,
    TOO_LARGE,
    ProfileReadError,
)

SQLITE_MAGIC = b"SQLite format 3\x00"
"""The first bytes of every SQLite file (https://www.sqlite.org/fileformat2.html, section 1.3)."""

_PICKLE_PROTOCOL = 0x80
"""The first instruction of a pickle that states its protocol (`pickle.PROTO`)."""

NEWEST_PROTOCOL = 5
"""The newest protocol of Python 3.14 (documentation of `pickle`). Protocol 2 is the first that is
binary throughout.
"""


def is_pickle(head: bytes) -> bool:
    """Whether a file that starts with `head` is a pickle of protocol 2 or later."""
    return len(head) > 1 and head[0] == _PICKLE_PROTOCOL and 2 <= head[1] <= NEWEST_PROTOCOL


def holds_table(head: bytes, table: str) -> bool:
    """Whether the first bytes of a file are those of an SQLite file that creates this table.

    Profilers create their tables before they store events, so the definitions stand at the start.
    """
    return head.startswith(SQLITE_MAGIC) and table.encode() in head


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEAD_BYTES = 2**18
"""Uncompressed bytes at the start of a file by which its format is recognized."""

MAXIMUM_BYTES = 8 * 2**30
"""Uncompressed bytes that a reader accepts by default.

A guard against decompression bombs: some kilobytes can unpack to terabytes. The largest traces
that people report are a few gigabytes (https://github.com/pytorch/kineto/issues/595).
"""

MAXIMUM_HELD_BYTES = 2 * 2**30
"""The same for a file that is held in memory as a whole."""

LONGEST_LINE_BYTES = 16 * 2**20
"""Bytes that text made of lines may have without the end of a line; names of kernels have some
thousands.
"""

MANY_CELLS = 2**24
"""Cells that lines which are too short for their cells may make: 128 MiB of numbers. A larger file
must have at least a byte for each cell.
"""

CHUNK_BYTES = 2**19
"""Uncompressed bytes handed out at once: so few that the objects made of them stay in the cache."""

_TEXT_END = re.compile(rb'[^\\]"')
_GZIP_MAGIC = b"\x1f\x8b"
"""RFC 1952, section 2.3.1."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
"""RFC 8878, section 3.1.1."""

_DAMAGE = (EOFError, OSError, isal_zlib.error, zstd.ZstdError)


def compression_of(head: bytes) -> str:
    """`gzip`, `zstd` or `none`, from the first bytes of a file."""
    if head.startswith(_GZIP_MAGIC):
        return "gzip"
    return "zstd" if head.startswith(_ZSTD_MAGIC) else "none"


Piece = TypeVar("Piece", bound=Sized)
"""Bytes, or an array of bytes."""


class ByteStream:
    """The uncompressed content of one file.

    position -- bytes of the file (as stored) that were consumed so far.
    size     -- bytes of the file as stored.
    """

    def __init__(self, path: Path, maximum_bytes: int = MAXIMUM_BYTES) -> None:
        self.path = path
        self.position = 0
        self.size = 0
        self._maximum_bytes = maximum_bytes

    def chunks(self) -> Generator[bytes, None, None]:
        """Successive pieces of CHUNK_BYTES.

        Opening and damage are noticed while the pieces are taken: ProfileReadError if the file
        cannot be opened, its compressed data are damaged, or it unpacks to more than
        `maximum_bytes`.
        """
        return self._pieces(CHUNK_BYTES)

    def head(self, wanted: int) -> bytes:
        """The first `wanted` uncompressed bytes, or all if there are fewer; raises as `chunks`
        does.
        """
        collected = b""
        with closing(self._pieces(min(wanted, CHUNK_BYTES))) as pieces:
            for piece in pieces:
                collected += piece
                if len(collected) >= wanted:
                    break
        return collected[:wanted]

    def _pieces(self, at_once: int) -> Generator[bytes, None, None]:
        total = 0
        try:
            status = self.path.stat()
            if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
                # A pipe would keep its reader waiting, a device might never end.
                raise ProfileReadError(self.path, *NO_FILE)
            with self.path.open("rb") as file:
                self.size = status.st_size
                unpacked = _unpacked(file)
                while piece := unpacked.read(at_once):
                    total += len(piece)
                    if total > self._maximum_bytes:
                        raise self._too_large()
                    self.position = file.tell()
                    yield piece
        except FileNotFoundError:
            raise ProfileReadError(self.path, *MISSING) from None
        except PermissionError:
            raise ProfileReadError(self.path, *NOT_PERMITTED) from None
        except _DAMAGE as error:
            raise ProfileReadError(
                self.path, f"its data cannot be read or unpacked ({error})", *DAMAGED
            ) from None

    def _too_large(self) -> ProfileReadError:
        return ProfileReadError(
            self.path, f"more than {self._maximum_bytes} bytes when unpacked", *TOO_LARGE
        )


def _unpacked(file: BinaryIO) -> BinaryIO | BufferedIOBase:
    """A readable file of the uncompressed content."""
    compression = compression_of(file.read(4))
    file.seek(0)
    if compression == "gzip":
        return igzip.IGzipFile(fileobj=file)
    if compression == "zstd":
        return zstd.ZstdFile(file)
    return file


def head_or_nothing(path: Path, size: int) -> bytes:
    """The first `size` uncompressed bytes of a file, b"" where it cannot be read or unpacked."""
    try:
        return ByteStream(path).head(size)
    except ProfileReadError:
        return b""


def in_lines(path: Path, pieces: Iterable[Piece], columns: int = 2) -> Iterator[Piece]:
    """The pieces of a text of lines, as long as these are neither too long nor too short.

    Some kilobytes can unpack to one line of gigabytes, for which programs that read CSV take
    several times that memory; or to gigabytes of empty lines, which take as much as if all their
    cells were there.

    columns -- cells of a line. The shortest line is that many bytes long: commas and the line end.
    Raises ProfileReadError at LONGEST_LINE_BYTES or more without the end of a line, and at
    MANY_CELLS or more of lines that are on average too short.
    """
    without_end = lines = size = 0
    for piece in pieces:
        ends = bytes(piece).count(b"\n")
        without_end = 0 if ends else without_end + len(piece)
        lines, size = lines + ends, size + len(piece)
        if without_end >= LONGEST_LINE_BYTES:
            raise ProfileReadError(path, f"a line of {without_end} bytes or more", *DAMAGED)
        if lines * columns > max(size, MANY_CELLS):
            raise ProfileReadError(
                path, f"{lines} lines in {size} bytes, most of them empty or cut short", *DAMAGED
            )
        yield piece


def in_texts(path: Path, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces of JSON. Raises ProfileReadError at LONGEST_LINE_BYTES or more without the end of
    a text: some kilobytes can unpack to one text of gigabytes.
    """
    without_end, last = 0, b""
    for piece in pieces:
        # A quote behind a backslash, which may be in the piece before, ends no text.
        without_end = 0 if _TEXT_END.search(last + piece) else without_end + len(piece)
        last = piece[-1:]
        if without_end >= LONGEST_LINE_BYTES:
            raise ProfileReadError(path, f"a text of {without_end} bytes or more", *DAMAGED)
        yield piece


def read_bytes(
    path: Path,
    maximum_bytes: int = MAXIMUM_HELD_BYTES,
    guard: Callable[[Path, Iterable[bytes]], Iterable[bytes]] = lambda _, pieces: pieces,
) -> bytes:
    """The uncompressed content. Raises ProfileReadError if it cannot be read, is too large or has
    only spaces.

    guard -- looks at the pieces before they are held: `in_lines` or `in_texts`.
    """
    content = b"".join(guard(path, ByteStream(path, maximum_bytes).chunks()))
    if not content or content.isspace():
        raise ProfileReadError(path, *EMPTY)
    return content
