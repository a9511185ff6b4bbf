"""Packets of a Perfetto trace, one after the other, from a stream of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tidyprof.errors import CUT_SHORT, DAMAGED, ProfileReadError

MAXIMUM_PACKET_BYTES = 64 * 2**20
"""Longer packets are damage; those of the tools read here have some kilobytes."""

_PACKET_TAG = 0x0A
"""The tag of field 1 (`packet`), followed by a length: a trace consists of nothing else."""

_LONGEST_LENGTH = 10
"""Bytes of the longest number (https://protobuf.dev/programming-guides/encoding)."""

_MIN_BYTES = 8
"""Bytes that packets have at least on average: an event with no more than a time, a track and a
type has more.

Packets of two bytes, which hold nothing, would take a minute to read though they unpack from some
kilobytes.
"""

_MANY_PACKETS = 10_000
_EXAMINED_PACKETS = 20
_SHOWN_BYTES = 24


class NoPacketError(ValueError):
    """The bytes at `position` are no packet."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def whole_packets(data: bytes, most: int | None = None) -> int:
    """The end of the last whole packet in `data`, or of packet number `most`. Raises
    NoPacketError.
    """
    start, count = 0, 0
    while start < len(data) and count != most:
        end = _end_of_packet(data, start)
        if end is None or end > len(data):
            return start
        start, count = end, count + 1
    return start


def _end_of_packet(data: bytes, start: int) -> int | None:
    """The end of the packet at `start`; None where `data` ends within the number that is its
    length.
    """
    if data[start] != _PACKET_TAG:
        raise NoPacketError(start)
    length = 0
    for index, byte in enumerate(data[start + 1 : start + 1 + _LONGEST_LENGTH]):
        # Each byte has seven bits of the number, the lowest first. The eighth bit says that another
        # byte follows.
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if length > MAXIMUM_PACKET_BYTES:
                raise NoPacketError(start)
            return start + 2 + index + length
    if len(data) - start > _LONGEST_LENGTH:
        raise NoPacketError(start)
    return None


def looks_like_trace(head: bytes) -> bool:
    """Whether a file that starts with `head` is a Perfetto trace."""
    try:
        packets = _parsed(head[: whole_packets(head, _EXAMINED_PACKETS)])
    except NoPacketError:
        return False
    known = sum(
        bool(packet.WhichOneof("data") or packet.trusted_packet_sequence_id) for packet in packets
    )
    return known > 0 and 2 * known >= len(packets)


def _parsed(data: bytes) -> Sequence[Any]:
    """The packets that bytes consist of; raises NoPacketError."""
    # The message classes take a tenth of a second to import, which other formats need not wait for.
    from google.protobuf.message import DecodeError
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    try:
        return Trace.FromString(data).packet
    except (DecodeError, UnicodeDecodeError):
        raise NoPacketError(0) from None


class PacketReader:
    """The packets of one file; `count` is how many there were so far."""

    def __init__(self, path: Path, chunks: Iterable[bytes]) -> None:
        self.path = path
        self.count = 0
        self._chunks = chunks
        self._offset = 0

    def batches(self) -> Iterator[Sequence[Any]]:
        """Packets (TracePacket messages), some thousands at once.

        Raises ProfileReadError where the bytes are no trace or end within a packet.
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
                f"the file ends within a packet, {len(rest)} bytes after byte {self._offset} where"
                " it starts",
                *CUT_SHORT,
            )

    def _refuse_hollow(self, size: int, packets: int) -> None:
        if packets > _MANY_PACKETS and size < _MIN_BYTES * packets:
            raise self._damage(f"{packets} packets in {size} bytes, most of them empty")

    def _whole(self, data: bytes) -> int:
        try:
            return whole_packets(data)
        except NoPacketError as error:
            start = data[error.position : error.position + _SHOWN_BYTES]
            where = self._offset + error.position
            raise ProfileReadError(
                self.path,
                f"no packet of a Perfetto trace at byte {where} ({start!r})",
                "the file was damaged after it was written" if where else _likely_tool(start),
                (
                    "copy it again from the original"
                    if where
                    else "pass a .pftrace or .proto file of the profiler"
                ),
            ) from None

    def _parsed(self, data: bytes) -> Sequence[Any]:
        try:
            return _parsed(data)
        except NoPacketError:
            raise self._damage("packets that cannot be decoded") from None

    def _damage(self, what: str) -> ProfileReadError:
        return ProfileReadError(self.path, f"{what}, after byte {self._offset}", *DAMAGED)


def _likely_tool(start: bytes) -> str:
    """The tool that may have written a file which starts like this and is no Perfetto trace."""
    if start.lstrip()[:1] in (b"{", b"["):
        return "it is a trace in JSON, as torch.profiler writes it"
    if start.startswith(b"SQLite format 3"):
        return "it is a database, as rocpd or rocmProfileData write it"
    return "another tool wrote it, or it was damaged at its start"
