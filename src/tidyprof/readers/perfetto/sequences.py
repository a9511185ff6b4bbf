"""What the packets of one Perfetto sequence share: names by number, defaults, slices not yet ended."""

from __future__ import annotations

from typing import Any

from tidyprof.readers.perfetto.annotations import Annotations

_CLEARED, NEEDED = 1, 2
"""Bits of TracePacket.sequence_flags (protos/perfetto/trace/trace_packet.proto)."""


class Sequence:
    """The state of one sequence of packets.

    number           -- trusted_packet_sequence_id.
    is_valid         -- whether names by number can be relied on: not before the first packet that says
                        so, nor after a gap.
    names, categories-- number in the file -> text.
    annotations      -- its abbreviations of annotations' names and texts.
    default_track    -- track of events that name none; default_clock likewise, 0 where there is none.
    open             -- track -> rows of slices that have begun and not ended, innermost last; -1 stands for one
                        that could not be used.
    gaps             -- how often packets of the sequence were lost.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_valid = False
        self.gaps = 0
        self.open: dict[int, list[int]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget what the sequence's later packets must say anew."""
        self.names: dict[int, str | bytes] = {}
        self.categories: dict[int, str | bytes] = {}
        self.annotations = Annotations()
        self.default_track = 0
        self.default_clock = 0

    def start_packet(self, packet: Any) -> bool:
        """Follow what a packet says about the state; whether its content can be used."""
        if packet.previous_packet_dropped and not packet.first_packet_on_sequence:
            self.gaps += 1
            self.is_valid = False
        flags = packet.sequence_flags
        if flags & _CLEARED or packet.incremental_state_cleared:
            self.clear()
            self.is_valid = True
        return self.is_valid or not flags & NEEDED

    def set_defaults(self, defaults: Any) -> None:
        """Take in what holds for packets that do not say it themselves."""
        self.default_clock = defaults.timestamp_clock_id
        self.default_track = defaults.track_event_defaults.track_uuid

    def learn(self, interned: Any) -> None:
        """Take in names by number."""
        self.names.update((entry.iid, entry.name) for entry in interned.event_names)
        self.categories.update((entry.iid, entry.name) for entry in interned.event_categories)
        self.annotations.learn(interned)
