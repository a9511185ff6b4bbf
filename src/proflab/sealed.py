"""Content that cannot be looked into: packed, encrypted, or text of two bytes a letter; also in the
middle of a file.
"""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Callable, Iterator

_AT_THE_START = {
    b"\xff\xfe": "text in UTF-16 or UTF-32",
    b"\xfe\xff": "text in UTF-16",
    b"\x00\x00\xfe\xff": "text in UTF-32",
    b"BZh": "bzip2",
    b"\x1f\x9d": "compress",
    b"\x89LZO": "lzop",
    b"LZIP": "lzip",
    b"\x89PNG": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"PAR1": "Parquet",
    b"ARROW1": "Feather",
    b"FEA1": "Feather",
    b"\x89HDF": "HDF5",
    b"hsqs": "a file system",
    b"MSCF": "a cabinet",
    b"%PDF": "PDF",
}
"""First bytes of files that are packed, as a whole or in pieces, or whose letters have several
bytes.
"""

_ANYWHERE = {
    b"PK\x03\x04": "zip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ\x00": "xz",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!\x1a\x07": "rar",
    b"\x04\x22\x4d\x18": "LZ4",
    b"\xff\x06\x00\x00sNaPpY": "snappy",
    **{b"BZh%d1AY&SY" % level: "bzip2" for level in range(1, 10)},
}
"""First bytes of packed parts, so long that they don't occur by chance."""

_UNPACKERS: dict[bytes, tuple[str, Callable[[], zlib._Decompress | lzma.LZMADecompressor]]] = {
    b"\x1f\x8b\x08": ("gzip", lambda: zlib.decompressobj(16 + zlib.MAX_WBITS)),
    b"\x5d\x00\x00": ("LZMA", lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=2**28)),
    **{
        b"\x78" + level: ("zlib", zlib.decompressobj)
        for level in (b"\x01", b"\x5e", b"\x9c", b"\xda")
    },
}
"""The same, but so short that the bytes after them must unpack, too."""

_WIDE = re.compile(rb"(?:[\w\s./:-]\x00){8}|(?:[\w\s./:-]\x00{3}){8}")
"""Letters of two or four bytes."""

_ENOUGH = 4096
"""Number of bytes that unpack without fault only if they were packed, never by chance; a shorter
part has to unpack to its end, with its checksum.
"""

_BLOCK, _DENSE = 65536, 0.97
"""Size of a block in bytes, and the ratio of compression above which a block is taken for packed or
encrypted: text in base64 comes to 0.76.
"""


def sealed_part(content: bytes) -> str:
    """The part that nobody can look into, in words; "" if there is none."""
    for begin, name in _AT_THE_START.items():
        if content.startswith(begin):
            return name
    for begin, name in _ANYWHERE.items():
        if begin in content:
            return name
    for begin, (name, unpacker) in _UNPACKERS.items():
        if any(_unpacks(unpacker(), content, place) for place in _places(begin, content)):
            return name
    if b"\x00" in content and _WIDE.search(content):
        return "text in UTF-16 or UTF-32"
    # The quick searches come first: compressing takes longest.
    blocks = (content[start : start + _BLOCK] for start in range(0, len(content), _BLOCK))
    is_dense = any(
        len(zlib.compress(block, 1)) > _DENSE * len(block)
        for block in blocks
        if len(block) > _ENOUGH
    )
    return "packed or encrypted" if is_dense else ""


def _places(begin: bytes, content: bytes) -> Iterator[int]:
    place = content.find(begin)
    while place >= 0:
        yield place
        place = content.find(begin, place + 1)


def _unpacks(
    unpacker: zlib._Decompress | lzma.LZMADecompressor, content: bytes, start: int
) -> bool:
    """Whether packed bytes begin there."""
    size = 0
    try:
        for place in range(start, len(content), _ENOUGH):
            size += len(unpacker.decompress(content[place : place + _ENOUGH], _ENOUGH))
            if unpacker.eof or size >= _ENOUGH:
                return size > 0
    except (zlib.error, lzma.LZMAError):
        pass
    return False
