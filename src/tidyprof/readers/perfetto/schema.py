"""The part of Perfetto's trace format that is read, as message classes of protobuf's C parser.

Field numbers are those of protos/perfetto/trace/*.proto in https://github.com/google/perfetto.
Fields that are not listed here are skipped by the parser. Three things differ from Perfetto's own
files without changing what is on the wire: text is declared as bytes, so that broken UTF-8 in one name
does not make a whole packet unreadable; enumerations are declared as integers; an event's annotations
are left as bytes, since most of them are not wanted and need no parsing.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FILE = "tidyprof/perfetto_trace.proto"
_PACKAGE = "tidyprof.readers.perfetto.reader"

_MESSAGES: dict[str, dict[str, tuple[int, str]]] = {
    "Trace": {"packet": (1, "TracePacket*")},
    "TracePacket": {
        "clock_snapshot": (6, "ClockSnapshot"),
        "timestamp": (8, "uint64"),
        "trusted_packet_sequence_id": (10, "uint32"),
        "track_event": (11, "TrackEvent"),
        "interned_data": (12, "InternedData"),
        "sequence_flags": (13, "uint32"),
        "trace_config": (33, "TraceConfig"),
        "trace_stats": (35, "TraceStats"),
        "synchronization_marker": (36, "bytes"),
        "incremental_state_cleared": (41, "bool"),
        "previous_packet_dropped": (42, "uint32"),
        "thread_descriptor": (44, "ThreadDescriptor"),
        "system_info": (45, "SystemInfo"),
        "compressed_packets": (50, "bytes"),
        "streaming_profile_packet": (54, "StreamingProfilePacket"),
        "timestamp_clock_id": (58, "uint32"),
        "trace_packet_defaults": (59, "TracePacketDefaults"),
        "track_descriptor": (60, "TrackDescriptor"),
        "perf_sample": (66, "PerfSample"),
        "service_event": (69, "ServiceEvent"),
        "first_packet_on_sequence": (87, "bool"),
        "trace_uuid": (89, "TraceUuid"),
    },
    "ServiceEvent": {},
    "TraceUuid": {"msb": (1, "int64"), "lsb": (2, "int64")},
    "TraceConfig": {"buffers": (1, "BufferConfig*")},
    "BufferConfig": {"size_kb": (1, "uint32"), "fill_policy": (4, "int32")},
    "SystemInfo": {
        "utsname": (1, "Utsname"),
        "tracing_service_version": (4, "bytes"),
        "num_cpus": (8, "uint32"),
    },
    "Utsname": {"sysname": (1, "bytes"), "release": (3, "bytes"), "machine": (4, "bytes")},
    "TraceStats": {
        "buffer_stats": (1, "BufferStats*"),
        "chunks_discarded": (8, "uint64"),
        "patches_discarded": (9, "uint64"),
        "invalid_packets": (10, "uint64"),
        "flushes_failed": (14, "uint64"),
    },
    "BufferStats": {
        "chunks_overwritten": (3, "uint64"),
        "patches_failed": (6, "uint64"),
        "abi_violations": (9, "uint64"),
        "chunks_discarded": (18, "uint64"),
        "trace_writer_packet_loss": (19, "uint64"),
    },
    "ClockSnapshot": {"clocks": (1, "Clock*"), "primary_trace_clock": (2, "int32")},
    "Clock": {
        "clock_id": (1, "uint32"),
        "timestamp": (2, "uint64"),
        "is_incremental": (3, "bool"),
        "unit_multiplier_ns": (4, "uint64"),
    },
    "TracePacketDefaults": {
        "track_event_defaults": (11, "TrackEventDefaults"),
        "timestamp_clock_id": (58, "uint32"),
    },
    "TrackEventDefaults": {"track_uuid": (11, "uint64")},
    "TrackDescriptor": {
        "uuid": (1, "uint64"),
        "name": (2, "bytes"),
        "process": (3, "ProcessDescriptor"),
        "thread": (4, "ThreadDescriptor"),
        "parent_uuid": (5, "uint64"),
        "counter": (8, "CounterDescriptor"),
        "static_name": (10, "bytes"),
    },
    "ProcessDescriptor": {"pid": (1, "int32"), "cmdline": (2, "bytes*"), "process_name": (6, "bytes")},
    "ThreadDescriptor": {"pid": (1, "int32"), "tid": (2, "int64"), "thread_name": (5, "bytes")},
    "CounterDescriptor": {
        "unit": (3, "int32"),
        "unit_multiplier": (4, "int64"),
        "is_incremental": (5, "bool"),
        "unit_name": (6, "bytes"),
    },
    "TrackEvent": {
        "category_iids": (3, "uint64*"),
        "debug_annotations": (4, "bytes*"),
        "type": (9, "int32"),
        "name_iid": (10, "uint64"),
        "track_uuid": (11, "uint64"),
        "categories": (22, "bytes*"),
        "name": (23, "bytes"),
        "counter_value": (30, "int64"),
        "double_counter_value": (44, "double"),
    },
    "DebugAnnotation": {
        "name_iid": (1, "uint64"),
        "bool_value": (2, "bool"),
        "uint_value": (3, "uint64"),
        "int_value": (4, "int64"),
        "double_value": (5, "double"),
        "string_value": (6, "bytes"),
        "pointer_value": (7, "uint64"),
        "legacy_json_value": (9, "bytes"),
        "name": (10, "bytes"),
        "dict_entries": (11, "DebugAnnotation*"),
        "array_values": (12, "DebugAnnotation*"),
        "string_value_iid": (17, "uint64"),
    },
    "InternedData": {
        "event_categories": (1, "InternedName*"),
        "event_names": (2, "InternedName*"),
        "debug_annotation_names": (3, "InternedName*"),
        "function_names": (5, "InternedName*"),
        "frames": (6, "Frame*"),
        "callstacks": (7, "Callstack*"),
        "mapping_paths": (17, "InternedName*"),
        "mappings": (19, "Mapping*"),
        "debug_annotation_string_values": (29, "InternedName*"),
    },
    "InternedName": {"iid": (1, "uint64"), "name": (2, "bytes")},
    "Frame": {
        "iid": (1, "uint64"),
        "function_name_id": (2, "uint64"),
        "mapping_id": (3, "uint64"),
        "rel_pc": (4, "uint64"),
    },
    "Callstack": {"iid": (1, "uint64"), "frame_ids": (2, "uint64*")},
    "Mapping": {"iid": (1, "uint64"), "path_string_ids": (7, "uint64*")},
    "StreamingProfilePacket": {"callstack_iid": (1, "uint64*"), "timestamp_delta_us": (2, "int64*")},
    "PerfSample": {"pid": (2, "uint32"), "tid": (3, "uint32"), "callstack_iid": (4, "uint64")},
}

_PAYLOADS = (
    "clock_snapshot",
    "track_event",
    "trace_config",
    "trace_stats",
    "synchronization_marker",
    "thread_descriptor",
    "system_info",
    "compressed_packets",
    "streaming_profile_packet",
    "track_descriptor",
    "perf_sample",
    "service_event",
    "trace_uuid",
)
"""Fields of TracePacket of which a packet has one (`oneof data`)."""

_ONE_OF = {
    ("TracePacket", "payload"): _PAYLOADS,
    ("DebugAnnotation", "value"): (
        "bool_value",
        "uint_value",
        "int_value",
        "double_value",
        "string_value",
        "pointer_value",
        "legacy_json_value",
        "string_value_iid",
    ),
}


def _described() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package=_PACKAGE, syntax="proto2")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        choices: dict[str, int] = {}
        for (owner, choice), members in _ONE_OF.items():
            if owner == message_name:
                choices |= dict.fromkeys(members, len(message.oneof_decl))
                message.oneof_decl.add(name=choice)
        for name, (number, kind) in fields.items():
            _describe_field(message, name, number, kind, choices.get(name))
    return file


def _describe_field(
    message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str, choice: int | None
) -> None:
    field = message.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if kind.endswith("*") else field.LABEL_OPTIONAL
    kind = kind.rstrip("*")
    if kind in _MESSAGES:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{_PACKAGE}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    if choice is not None:
        field.oneof_index = choice


_pool = descriptor_pool.DescriptorPool()
_pool.Add(_described())
Trace, DebugAnnotation = (
    message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
    for name in ("Trace", "DebugAnnotation")
)
"""A whole trace, or any part of it that holds whole packets; and one annotation of an event."""
