"""What the packets of one Perfetto sequence share: names by number, defaults, slices not yet ended."""

from __future__ import annotations

from typing import Any

from tidyprof.readers.perfetto.annotations import Annotations
from tidyprof.readers.perfetto.texts import text
from tidyprof.tables.codes import ABSENT

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
        self.pid = self.tid = ABSENT
        self.open: dict[int, list[int]] = {}
        self.clear()

    def clear(self) -> None:
        """Forget what the sequence's later packets must say anew."""
        self.names: dict[int, str | bytes] = {}
        self.categories: dict[int, str | bytes] = {}
        self.annotations = Annotations()
        self.functions: dict[int, str] = {}
        self.paths: dict[int, str] = {}
        self.mappings: dict[int, tuple[int, ...]] = {}
        self.frames: dict[int, tuple[int, int, int]] = {}
        self.callstacks: dict[int, tuple[int, ...]] = {}
        self._stacks: dict[int, tuple[str, ...] | None] = {}
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
        self.functions.update((entry.iid, text(entry.str)) for entry in interned.function_names)
        self.mappings.update((mapping.iid, tuple(mapping.path_string_ids)) for mapping in interned.mappings)
        self.frames.update((f.iid, (f.function_name_id, f.mapping_id, f.rel_pc)) for f in interned.frames)
        self.callstacks.update((stack.iid, tuple(stack.frame_ids)) for stack in interned.callstacks)
        self.paths.update((entry.iid, text(entry.str)) for entry in interned.mapping_paths)
        self._stacks.clear()

    def stack(self, number: int) -> tuple[str, ...] | None:
        """Function names of a call stack, outermost first; None where the file does not hold the stack."""
        if number not in self._stacks:
            frames = [self.frames.get(frame) for frame in self.callstacks.get(number, (0,))]
            self._stacks[number] = None if None in frames else tuple(self._function(*frame) for frame in frames)
        return self._stacks[number]

    def _function(self, function: int, mapping: int, offset: int) -> str:
        """The function's name, else the place in the binary."""
        name = self.functions.get(function)
        if name:
            return name
        path = [self.paths.get(part, "?") for part in self.mappings.get(mapping, ())]
        return f"{path[-1] if path else '?'}+{offset:#x}"
