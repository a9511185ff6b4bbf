"""Debug annotations of a Perfetto trace's events: the arguments that AMD's profilers attach to slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tidyprof.readers.perfetto.texts import text
from tidyprof.tables.codes import ABSENT

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
_COLUMNS = {name: column for column, names in (_NUMBERS | _LABELS).items() for name in names.split()}
"""Name of an annotation in files of rocprofv3 and rocprof-sys -> column that it becomes."""

LABELS = frozenset(_LABELS)
"""Columns whose annotations are numbers in one tool and texts in another; they hold codes of texts."""

_WHOLE_NUMBERS = ("uint_value", "int_value", "pointer_value")
_INT64 = range(-(2**63), 2**63)


class Annotations:
    """How one sequence of packets abbreviates names and texts of annotations.

    columns -- name of an annotation, or its number in this sequence -> column that it becomes.
    """

    def __init__(self) -> None:
        self.columns: dict[int | str, str] = dict(_COLUMNS)
        self._names: dict[int, str] = {}
        self._texts: dict[int, str] = {}

    def learn(self, interned: Any) -> None:
        """Take in names and texts by number."""
        for entry in interned.debug_annotation_names:
            name = self._names[entry.iid] = text(entry.name)
            self.columns[entry.iid] = _COLUMNS.get(name, "")
        for entry in interned.debug_annotation_string_values:
            self._texts[entry.iid] = text(entry.str)

    def name(self, annotation: Any) -> str:
        """The name of an annotation, nothing where the file does not hold it."""
        return text(annotation.name) or self._names.get(annotation.name_iid, "")

    def label(self, annotation: Any) -> str:
        """The value of an annotation that holds a text or a whole number, as text; nothing for others."""
        found = text(annotation.string_value) or self._texts.get(annotation.string_value_iid, "")
        number = ABSENT if found else number_of(annotation)
        return found if number == ABSENT else str(number)

    def flattened(self, annotation: Any, path: str) -> Iterator[tuple[str, Any]]:
        """Names and values of an annotation; members of a dictionary are `a.b`, those of a list `a[0]`."""
        for entry in annotation.dict_entries:
            yield from self.flattened(entry, f"{path}.{self.name(entry)}")
        for place, entry in enumerate(annotation.array_values):
            yield from self.flattened(entry, f"{path}[{place}]")
        kind = annotation.WhichOneof("value")
        if kind == "string_value_iid":
            yield path, self._texts.get(annotation.string_value_iid, "")
        elif kind and kind != "nested_value":
            value = getattr(annotation, kind)
            yield path, text(value) if isinstance(value, bytes) else value


def number_of(annotation: Any) -> int:
    """The value of an annotation that holds a whole number, ABSENT for others and for what needs more bits."""
    value = annotation.uint_value or annotation.int_value or annotation.pointer_value
    is_number = value in _INT64 and (value or annotation.WhichOneof("value") in _WHOLE_NUMBERS)
    return value if is_number else ABSENT
