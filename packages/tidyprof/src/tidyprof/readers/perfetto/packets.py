"""Packets of a Perfetto trace, read in order from a stream of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tidyprof.errors import CUT_SHORT, DAMAGED, EMPTY, ProfileReadError

MAXIMUM_PACKET_BYTES = 64 * 2**20
"""Maximum packet size. AMD's tools write packets of a few kilobytes, so a larger packet is a sign
of damage.
"""

_PACKET_TAG = 0x0A
"""Tag of field 1 (`packet`), which comes before the packet's length. A trace contains only this
field.
"""

_LONGEST_LENGTH = 10
"""Maximum length of a number in bytes (https://protobuf.dev/programming-guides/encoding)."""

_MIN_BYTES = 8
"""Minimum average packet size in bytes. Even the smallest event is larger, because it has a time, a
track and a type.

Millions of empty two-byte packets compress to a few kilobytes, but reading them would take a
minute.
"""

_MANY_PACKETS = 10_000
_EXAMINED_PACKETS = 20
_SHOWN_BYTES = 24


class NoPacketError(ValueError):
    """Error that is raised if the bytes at `position` aren't a packet."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def whole_packets(data: bytes, most: int | None = None) -> int:
    """Return the end of the last complete packet in `data`. If `most` is given, stop after that
    many packets.

    Raises NoPacketError if a byte isn't part of a packet.
    """
    start, count = 0, 0
    while start < len(data) and count != most:
        if data[start] != _PACKET_TAG:
            raise NoPacketError(start)
        length, position, shift = 0, start + 1, 0
        # Each byte has seven bits of the length, lowest bits first. The eighth bit is set if
        # another byte follows.
        while position < len(data):
            length |= (data[position] & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if data[position - 1] < 0x80:
                break
            if shift > 7 * _LONGEST_LENGTH:
                raise NoPacketError(start)
        else:
            return start
        if length > MAXIMUM_PACKET_BYTES:
            raise NoPacketError(start)
        if position + length > len(data):
            return start
        start, count = position + length, count + 1
    return start


def looks_like_trace(head: bytes) -> bool:
    """Return True if a file that starts with `head` is a Perfetto trace."""
    try:
        packets = _parsed(head[: whole_packets(head, _EXAMINED_PACKETS)])
    except NoPacketError:
        return False
    known = sum(
        bool(packet.WhichOneof("data") or packet.trusted_packet_sequence_id) for packet in packets
    )
    return known > 0 and 2 * known >= len(packets)


def _parsed(data: bytes) -> Sequence[Any]:
    """Return the packets in these bytes. Raises NoPacketError if the bytes are invalid."""
    # Importing the message classes takes 0.1 s, so other formats shouldn't have to wait for it.
    from google.protobuf.message import DecodeError
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    try:
        return Trace.FromString(data).packet
    except (DecodeError, UnicodeDecodeError):
        raise NoPacketError(0) from None


def batches(path: Path, chunks: Iterable[bytes]) -> Iterator[Sequence[Any]]:
    """Yield TracePacket messages in batches of several thousand.

    Raises ProfileReadError if the bytes aren't a trace or if they end within a packet.
    """
    rest, offset = b"", 0
    for chunk in chunks:
        data = rest + chunk if rest else chunk
        try:
            end = whole_packets(data)
            packets = _parsed(data[:end])
        except NoPacketError as error:
            start = data[error.position : error.position + _SHOWN_BYTES]
            raise ProfileReadError(
                path,
                f"there is no sound Perfetto packet at byte {offset + error.position} ({start!r})",
                "another tool wrote the file, or it was damaged after it was written",
                "copy it again from the original, or pass a .pftrace or .proto file",
            ) from None
        if len(packets) > _MANY_PACKETS and end < _MIN_BYTES * len(packets):
            what = f"{len(packets)} packets in {end} bytes after byte {offset}, and most are empty"
            raise ProfileReadError(path, what, *DAMAGED)
        if end:
            yield packets
        offset += end
        rest = data[end:]
    if rest:
        raise ProfileReadError(
            path,
            f"the file ends {len(rest)} bytes into a packet, which starts at byte {offset}",
            *CUT_SHORT,
        )
    if not offset:
        raise ProfileReadError(path, *EMPTY)
