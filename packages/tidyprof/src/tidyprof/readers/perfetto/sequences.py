"""The state that the packets of one Perfetto sequence share: numbered strings and arguments,
default values, and open slices.
"""

from __future__ import annotations

from typing import Any

from tidyprof.tables.codes import ABSENT


def text(value: str | bytes) -> str:
    """Decode a string in a message. protobuf returns bytes if the field contains bytes or invalid
    UTF-8.
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
"""Column for each annotation name in files from rocprofv3 and rocprof-sys."""

LABELS = frozenset(_LABELS)
"""Columns that contain string codes. One tool writes these annotations as numbers, and the other
tool writes strings.
"""

_WHOLE_NUMBERS = ("uint_value", "int_value", "pointer_value")
_INT64 = range(-(2**63), 2**63)


class Annotations:
    """Annotation names and strings that a packet sequence abbreviates as numbers.

    - columns: column of each annotation, by the annotation's name or its number in this sequence
    """

    def __init__(self) -> None:
        self.columns: dict[int | str, str] = dict(_COLUMNS)
        self._texts: dict[int, str] = {}

    def learn(self, interned: Any) -> None:
        """Add numbered names and strings from a packet."""
        for entry in interned.debug_annotation_names:
            self.columns[entry.iid] = _COLUMNS.get(text(entry.name), "")
        for entry in interned.debug_annotation_string_values:
            self._texts[entry.iid] = text(entry.str)

    def label(self, annotation: Any) -> str:
        """Return the string in an annotation. Integers are converted to strings. For other values,
        return "".
        """
        found = text(annotation.string_value) or self._texts.get(annotation.string_value_iid, "")
        number = ABSENT if found else number_of(annotation)
        return found if number == ABSENT else str(number)


def number_of(annotation: Any) -> int:
    """Return an annotation's integer, or ABSENT if the value isn't a 64-bit integer."""
    value = annotation.uint_value or annotation.int_value or annotation.pointer_value
    is_number = value in _INT64 and (value or annotation.WhichOneof("value") in _WHOLE_NUMBERS)
    return value if is_number else ABSENT


_CLEARED, NEEDED = 1, 2
"""Bits of TracePacket.sequence_flags (protos/perfetto/trace/trace_packet.proto)."""


class Sequence:
    """The state of one packet sequence.

    - number: the sequence's trusted_packet_sequence_id
    - is_valid: True if numbered names can be trusted. The value is False before the first packet
      that resets the state, and after a gap.
    - names: slice name for each number in the file
    - categories: category for each number in the file
    - annotations: annotation names and strings that are abbreviated as numbers
    - default_track: track of events that don't specify a track, or 0 if there is no default
    - default_clock: clock of packets that don't specify a clock, or 0 if there is no default
    - open: rows of the open slices on each track, with the innermost slice last. An unusable slice
      has row -1.
    - gaps: number of gaps, at each of which packets were lost
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_valid = False
        self.gaps = 0
        self.open: dict[int, list[int]] = {}
        self.clear()

    def clear(self) -> None:
        """Reset the state. Later packets of the sequence must define the state again."""
        self.names: dict[int, str | bytes] = {}
        self.categories: dict[int, str | bytes] = {}
        self.annotations = Annotations()
        self.default_track = 0
        self.default_clock = 0

    def start_packet(self, packet: Any) -> bool:
        """Update the state from a packet. Return True if the contents of the packet can be used."""
        if packet.previous_packet_dropped and not packet.first_packet_on_sequence:
            self.gaps += 1
            self.is_valid = False
        flags = packet.sequence_flags
        if flags & _CLEARED or packet.incremental_state_cleared:
            self.clear()
            self.is_valid = True
        return self.is_valid or not flags & NEEDED

    def set_defaults(self, defaults: Any) -> None:
        """Set the default values for packets that lack these values."""
        self.default_clock = defaults.timestamp_clock_id
        self.default_track = defaults.track_event_defaults.track_uuid

    def learn(self, interned: Any) -> None:
        """Add the names in a packet, keyed by their numbers."""
        self.names.update((entry.iid, entry.name) for entry in interned.event_names)
        self.categories.update((entry.iid, entry.name) for entry in interned.event_categories)
        self.annotations.learn(interned)
