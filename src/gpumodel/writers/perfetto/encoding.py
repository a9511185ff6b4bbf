"""The wire format of protocol buffers, as far as a Perfetto trace needs it.

Source: https://protobuf.dev/programming-guides/encoding. A generated message class would take some twenty
microseconds for each event; with a hundred thousand events that is too slow, so parts that many events share
are encoded once and joined.
"""

from __future__ import annotations

import struct

_NUMBER, _EIGHT_BYTES, _BLOCK = 0, 1, 2
_UNSIGNED = 2**64
_SHORT = [bytes((number,)) for number in range(0x80)]


def varint(number: int) -> bytes:
    """A whole number, seven bits in a byte; negative ones as their two's complement in 64 bits."""
    if 0 <= number <= 0x7F:
        return _SHORT[number]
    number %= _UNSIGNED
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def number(field: int, value: int) -> bytes:
    """A field of a whole number, a truth value or an enumeration."""
    return varint(field << 3 | _NUMBER) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field of a floating-point number."""
    return varint(field << 3 | _EIGHT_BYTES) + struct.pack("<d", value)


def fixed(field: int, value: int) -> bytes:
    """A field of a whole number in eight bytes."""
    return varint(field << 3 | _EIGHT_BYTES) + struct.pack("<Q", value % _UNSIGNED)


def block(field: int, content: bytes | str) -> bytes:
    """A field of text, or of a message that is encoded already."""
    content = content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content
    return varint(field << 3 | _BLOCK) + varint(len(content)) + content
