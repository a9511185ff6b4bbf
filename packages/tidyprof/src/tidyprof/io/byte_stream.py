"""The content of a file in chunks. The compression is detected from the content, and the size is
limited.
"""

from __future__ import annotations

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
"""The newest protocol in Python 3.14, according to the documentation of `pickle`. Protocol 2 is the
first fully binary protocol.
"""


def is_pickle(head: bytes) -> bool:
    """Return True if a file that starts with `head` is a pickle of protocol 2 or later."""
    return len(head) > 1 and head[0] == _PICKLE_PROTOCOL and 2 <= head[1] <= NEWEST_PROTOCOL


def holds_table(head: bytes, table: str) -> bool:
    """Return True if a file that starts with `head` is an SQLite file whose schema contains this
    table.

    The table definitions are at the start of the file because profilers create their tables before
    they store events.
    """
    return head.startswith(SQLITE_MAGIC) and table.encode() in head


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEAD_BYTES = 2**18
"""Number of uncompressed bytes that are read from the start of a file to recognize its format."""

MAXIMUM_BYTES = 8 * 2**30
"""Default size limit in uncompressed bytes.

The limit protects against decompression bombs, because a few kilobytes can unpack to terabytes. The
largest traces that people report have a size of a few gigabytes
(https://github.com/pytorch/kineto/issues/595).
"""

MAXIMUM_HELD_BYTES = 2 * 2**30
"""Default size limit for a file that must be in memory as a whole."""

LONGEST_LINE_BYTES = 16 * 2**20
"""Maximum length of a line or string in bytes. Kernel names have up to a few thousand bytes."""

MANY_CELLS = 2**24
"""Maximum number of cells in a file whose lines are too short for their cells (128 MiB of numbers).
Beyond this limit, a file must have at least one byte per cell.
"""

CHUNK_BYTES = 2**19
"""Number of uncompressed bytes per chunk. The objects from such a small chunk stay in the CPU
cache.
"""

_GZIP_MAGIC = b"\x1f\x8b"
"""RFC 1952, section 2.3.1."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
"""RFC 8878, section 3.1.1."""

_DAMAGE = (EOFError, OSError, isal_zlib.error, zstd.ZstdError)


def compression_of(head: bytes) -> str:
    """Return `gzip`, `zstd` or `none`, depending on the first bytes of a file."""
    if head.startswith(_GZIP_MAGIC):
        return "gzip"
    return "zstd" if head.startswith(_ZSTD_MAGIC) else "none"


Piece = TypeVar("Piece", bound=Sized)


class ByteStream:
    """The uncompressed content of one file."""

    def __init__(self, path: Path, maximum_bytes: int = MAXIMUM_BYTES) -> None:
        self.path = path
        self._maximum_bytes = maximum_bytes

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the content in chunks of CHUNK_BYTES.

        Raises ProfileReadError during iteration if the file can't be opened, if its compressed data
        is damaged, or if it unpacks to more than `maximum_bytes`.
        """
        return self._pieces(CHUNK_BYTES)

    def head(self, wanted: int) -> bytes:
        """Return the first `wanted` uncompressed bytes, or all bytes if there are fewer. Raises
        ProfileReadError under the same conditions as `chunks`.
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
                # A pipe would block the reader, and a device might never end.
                raise ProfileReadError(self.path, *NO_FILE)
            with self.path.open("rb") as file:
                unpacked = _unpacked(file)
                while piece := unpacked.read(at_once):
                    total += len(piece)
                    if total > self._maximum_bytes:
                        raise self._too_large()
                    yield piece
        except FileNotFoundError:
            raise ProfileReadError(self.path, *MISSING) from None
        except PermissionError:
            raise ProfileReadError(self.path, *NOT_PERMITTED) from None
        except _DAMAGE as error:
            raise ProfileReadError(
                self.path, f"its data can't be read or unpacked ({error})", *DAMAGED
            ) from None

    def _too_large(self) -> ProfileReadError:
        return ProfileReadError(
            self.path, f"the file unpacks to more than {self._maximum_bytes} bytes", *TOO_LARGE
        )


def _unpacked(file: BinaryIO) -> BinaryIO | BufferedIOBase:
    compression = compression_of(file.read(4))
    file.seek(0)
    if compression == "gzip":
        return igzip.IGzipFile(fileobj=file)
    if compression == "zstd":
        return zstd.ZstdFile(file)
    return file


def head_or_nothing(path: Path, size: int) -> bytes:
    """Return the first `size` uncompressed bytes of a file, or b"" if the file can't be read."""
    try:
        return ByteStream(path).head(size)
    except ProfileReadError:
        return b""


def is_in_folder(folder: Path, patterns: Iterable[str], is_format: Callable[[bytes], bool]) -> bool:
    """Return True if a file that matches a pattern has a format.

    - is_format: returns True if a file that starts with these bytes has the format.
    """
    files = (file for pattern in patterns for file in folder.glob(pattern) if file.is_file())
    return any(is_format(head_or_nothing(file, HEAD_BYTES)) for file in files)


def in_lines(path: Path, pieces: Iterable[Piece], columns: int = 2) -> Iterator[Piece]:
    """Yield the chunks of a text that consists of lines, and check the length of the lines.

    A few kilobytes can unpack to a line of several gigabytes, and CSV readers need several times
    that memory to read the line. A few kilobytes can also unpack to gigabytes of empty lines, which
    need as much memory as complete lines.

    - columns: the number of cells per line. Each line must have at least this many bytes because it
      contains commas and a newline.

    Raises ProfileReadError if there is no newline within LONGEST_LINE_BYTES. Also raises
    ProfileReadError after MANY_CELLS cells if the lines are too short on average.
    """
    without_end = lines = size = 0
    for piece in pieces:
        ends = bytes(piece).count(b"\n")
        without_end = 0 if ends else without_end + len(piece)
        lines, size = lines + ends, size + len(piece)
        if without_end >= LONGEST_LINE_BYTES:
            raise ProfileReadError(path, f"a line has at least {without_end} bytes", *DAMAGED)
        if lines * columns > max(size, MANY_CELLS):
            raise ProfileReadError(
                path, f"most of the {lines} lines in {size} bytes are empty or cut short", *DAMAGED
            )
        yield piece


def read_bytes(
    path: Path,
    maximum_bytes: int = MAXIMUM_HELD_BYTES,
    guard: Callable[[Path, Iterable[bytes]], Iterable[bytes]] = lambda _, pieces: pieces,
) -> bytes:
    """Return the uncompressed content. Raises ProfileReadError if the content can't be read, is too
    large or consists only of white space.

    - guard: a function that checks the chunks before they are kept, such as `in_lines`.
    """
    content = b"".join(guard(path, ByteStream(path, maximum_bytes).chunks()))
    if not content or content.isspace():
        raise ProfileReadError(path, *EMPTY)
    return content
