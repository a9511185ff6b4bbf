"""Packets of a Perfetto trace, read in order from a stream of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tidyprof.errors import CUT_SHORT, DAMAGED, ProfileReadError

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
        end = _end_of_packet(data, start)
        if end is None or end > len(data):
            return start
        start, count = end, count + 1
    return start


def _end_of_packet(data: bytes, start: int) -> int | None:
    """Return the end of the packet at `start`, or None if `data` ends within the packet's length
    field.
    """
    if data[start] != _PACKET_TAG:
        raise NoPacketError(start)
    length = 0
    for index, byte in enumerate(data[start + 1 : start + 1 + _LONGEST_LENGTH]):
        # Each byte has seven bits of the number, lowest bits first. The eighth bit is set if
        # another byte follows.
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if length > MAXIMUM_PACKET_BYTES:
                raise NoPacketError(start)
            return start + 2 + index + length
    if len(data) - start > _LONGEST_LENGTH:
        raise NoPacketError(start)
    return None


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


class PacketReader:
    """A reader for the packets of one file. `count` is the number of packets that it has read."""

    def __init__(self, path: Path, chunks: Iterable[bytes]) -> None:
        self.path = path
        self.count = 0
        self._chunks = chunks
        self._offset = 0

    def batches(self) -> Iterator[Sequence[Any]]:
        """Yield TracePacket messages in batches of several thousand.

        Raises ProfileReadError if the bytes aren't a trace or if they end within a packet.
        """
        rest = b""
        for chunk in self._chunks:
            data = rest + chunk if rest else chunk
            end = self._whole(data)
            if end:
                packets = self._parsed(data[:end])
                self._refuse_hollow(end, len(packets))
                self.count += len(packets)
                yield packets
            self._offset += end
            rest = data[end:]
        if rest:
            raise ProfileReadError(
                self.path,
                f"the file ends {len(rest)} bytes into a packet, which starts at byte"
                f" {self._offset}",
                *CUT_SHORT,
            )

    def _refuse_hollow(self, size: int, packets: int) -> None:
        if packets > _MANY_PACKETS and size < _MIN_BYTES * packets:
            raise self._damage(f"{packets} packets in {size} bytes, and most are empty")

    def _whole(self, data: bytes) -> int:
        try:
            return whole_packets(data)
        except NoPacketError as error:
            start = data[error.position : error.position + _SHOWN_BYTES]
            where = self._offset + error.position
            raise ProfileReadError(
                self.path,
                f"there is no Perfetto packet at byte {where} ({start!r})",
                "the file was damaged after it was written" if where else _likely_tool(start),
                (
                    "copy it again from the original"
                    if where
                    else "pass a .pftrace or .proto file from the profiler"
                ),
            ) from None

    def _parsed(self, data: bytes) -> Sequence[Any]:
        try:
            return _parsed(data)
        except NoPacketError:
            raise self._damage("the packets can't be decoded") from None

    def _damage(self, what: str) -> ProfileReadError:
        return ProfileReadError(self.path, f"{what}, after byte {self._offset}", *DAMAGED)


def _likely_tool(start: bytes) -> str:
    """Return the likely reason why a file starts with these bytes instead of a packet."""
    if start.lstrip()[:1] in (b"{", b"["):
        return "the file is a JSON trace, such as one from torch.profiler"
    if start.startswith(b"SQLite format 3"):
        return "the file is a database, such as one from rocpd or rocmProfileData"
    return "another tool wrote the file, or its beginning is damaged"
