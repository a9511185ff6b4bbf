"""State that packets of one Perfetto sequence share: numbered strings and arguments, defaults, and
open slices.
"""

from __future__ import annotations

from typing import Any

from tidyprof.tables.codes import ABSENT


def text(value: str | bytes) -> str:
    """Decode a string in a message. protobuf returns bytes if the field has that type or if the
    UTF-8 is invalid.
    """
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


_NUMBERS = {
    "correlation_id": "corr_id stack_id",
    "launch_thread": "tid",
    "stream": "stream_id stream_ID",
    "queue": "queue",
    "kernel_id": "kernel_id",
    "dispatch_id": "dispatch_id",
    "bytes": "bytes copy_bytes allocation_size",
    "lds_bytes": "group_segment_size LDS_Block_Size",
    "scratch_bytes": "private_segment_size Scratch_Size",
    "vgprs": "VGPR_Count",
    "accum_vgprs": "Accum_VGPR_Count",
    "sgprs": "SGPR_Count",
    "memory_device": "agent_id",
}
_LABELS = {
    "agent": "agent",
    "source": "src_agent src_agent_id",
    "destination": "dst_agent dst_agent_id",
    "block": "workgroup_size",
    "grid": "grid_size",
}
_COLUMNS = {
    name: column for column, names in (_NUMBERS | _LABELS).items() for name in names.split()
}
"""Annotation name in files from rocprofv3 and rocprof-sys -> column."""

LABELS = frozenset(_LABELS)
"""Columns with string codes, because one tool writes these annotations as numbers and the other
as strings.
"""

_WHOLE_NUMBERS = ("uint_value", "int_value", "pointer_value")
_INT64 = range(-(2**63), 2**63)


class Annotations:
    """Annotation names and strings that a packet sequence abbreviates by numbers.

    columns -- annotation name, or its number in this sequence -> column.
    """

    def __init__(self) -> None:
        self.columns: dict[int | str, str] = dict(_COLUMNS)
        self._texts: dict[int, str] = {}

    def learn(self, interned: Any) -> None:
        """Add numbered names and strings."""
        for entry in interned.debug_annotation_names:
            self.columns[entry.iid] = _COLUMNS.get(text(entry.name), "")
        for entry in interned.debug_annotation_string_values:
            self._texts[entry.iid] = text(entry.str)

    def label(self, annotation: Any) -> str:
        """Return an annotation's string or integer as a string, or "" for other values."""
        found = text(annotation.string_value) or self._texts.get(annotation.string_value_iid, "")
        number = ABSENT if found else number_of(annotation)
        return found if number == ABSENT else str(number)


def number_of(annotation: Any) -> int:
    """Return an annotation's integer, or ABSENT if it isn't an integer of up to 64 bits."""
    value = annotation.uint_value or annotation.int_value or annotation.pointer_value
    is_number = value in _INT64 and (value or annotation.WhichOneof("value") in _WHOLE_NUMBERS)
    return value if is_number else ABSENT


_CLEARED, NEEDED = 1, 2
"""Bits of TracePacket.sequence_flags (protos/perfetto/trace/trace_packet.proto)."""


class Sequence:
    """State of one packet sequence.

    number           -- trusted_packet_sequence_id.
    is_valid         -- True if numbered names are reliable. False before the first packet that
                        resets the state, and after a gap.
    names, categories-- number in the file -> string.
    annotations      -- abbreviated annotation names and strings.
    default_track    -- track of events that don't name one; 0 if there is no default.
    default_clock    -- clock of packets that don't name one; 0 if there is no default.
    open             -- track -> rows of open slices, innermost last; -1 for an unusable slice.
    gaps             -- number of times that packets were lost.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_valid = False
        self.gaps = 0
        self.open: dict[int, list[int]] = {}
        self.clear()

    def clear(self) -> None:
        """Reset the state that later packets of the sequence must define again."""
        self.names: dict[int, str | bytes] = {}
        self.categories: dict[int, str | bytes] = {}
        self.annotations = Annotations()
        self.default_track = 0
        self.default_clock = 0

    def start_packet(self, packet: Any) -> bool:
        """Update the state from a packet, and return True if its content can be used."""
        if packet.previous_packet_dropped and not packet.first_packet_on_sequence:
            self.gaps += 1
            self.is_valid = False
        flags = packet.sequence_flags
        if flags & _CLEARED or packet.incremental_state_cleared:
            self.clear()
            self.is_valid = True
        return self.is_valid or not flags & NEEDED

    def set_defaults(self, defaults: Any) -> None:
        """Set default values for packets that don't have these values."""
        self.default_clock = defaults.timestamp_clock_id
        self.default_track = defaults.track_event_defaults.track_uuid

    def learn(self, interned: Any) -> None:
        """Add numbered names."""
        self.names.update((entry.iid, entry.name) for entry in interned.event_names)
        self.categories.update((entry.iid, entry.name) for entry in interned.event_categories)
        self.annotations.learn(interned)
