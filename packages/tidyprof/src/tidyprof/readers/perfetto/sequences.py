"""What the packets of one Perfetto sequence share: texts and arguments by number, defaults, slices
not yet ended.
"""

from __future__ import annotations

from typing import Any

from tidyprof.tables.codes import ABSENT


def text(value: str | bytes) -> str:
    """A text of a message. protobuf gives bytes where the field is declared so, or the text is
    broken UTF-8.
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
"""Name of an annotation in files of rocprofv3 and rocprof-sys -> the column that it becomes."""

LABELS = frozenset(_LABELS)
"""Columns of codes of texts, since the annotations are numbers in one tool and texts in the
other.
"""

_WHOLE_NUMBERS = ("uint_value", "int_value", "pointer_value")
_INT64 = range(-(2**63), 2**63)


class Annotations:
    """How one sequence of packets abbreviates names and texts of annotations.

    columns -- name of an annotation, or its number in this sequence -> column that it becomes.
    """

    def __init__(self) -> None:
        self.columns: dict[int | str, str] = dict(_COLUMNS)
        self._texts: dict[int, str] = {}

    def learn(self, interned: Any) -> None:
        """Take in names and texts by number."""
        for entry in interned.debug_annotation_names:
            self.columns[entry.iid] = _COLUMNS.get(text(entry.name), "")
        for entry in interned.debug_annotation_string_values:
            self._texts[entry.iid] = text(entry.str)

    def label(self, annotation: Any) -> str:
        """The text or whole number in an annotation, as text; "" for other values."""
        found = text(annotation.string_value) or self._texts.get(annotation.string_value_iid, "")
        number = ABSENT if found else number_of(annotation)
        return found if number == ABSENT else str(number)


def number_of(annotation: Any) -> int:
    """The value of an annotation that holds a whole number; ABSENT for others, and for a number of
    more than 64 bits.
    """
    value = annotation.uint_value or annotation.int_value or annotation.pointer_value
    is_number = value in _INT64 and (value or annotation.WhichOneof("value") in _WHOLE_NUMBERS)
    return value if is_number else ABSENT


_CLEARED, NEEDED = 1, 2
"""Bits of TracePacket.sequence_flags (protos/perfetto/trace/trace_packet.proto)."""


class Sequence:
    """The state of one sequence of packets.

    number           -- trusted_packet_sequence_id.
    is_valid         -- whether names by number can be relied on: not before the first packet that
                        says so, nor after a gap.
    names, categories-- number in the file -> text.
    annotations      -- its abbreviations of annotations' names and texts.
    default_track    -- track of events that name none; default_clock likewise, 0 where there is
                        none.
    open             -- track -> rows of slices that have begun and not ended, innermost last; -1
                        stands for one that could not be used.
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
        """Follow what a packet says about the state, and return whether its content can be used."""
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
