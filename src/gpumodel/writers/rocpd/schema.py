"""Tables and views of a rocpd database, schema version 3 as of ROCm 7.0.

Column names: source/share/rocprofiler-sdk-rocpd of https://github.com/ROCm/rocm-systems (projects/rocprofiler-sdk).
A table's name ends in the recording's identifier; a view without that ending exists for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator

SCHEMA_VERSION = "3"

TABLES = {
    "metadata": "tag value",
    "string": "string",
    "info_node": "hash machine_id system_name hostname release version hardware_name domain_name",
    "info_process": "nid ppid pid init fini start end command environment extdata",
    "info_thread": "nid ppid pid tid name start end extdata",
    "info_agent": "nid pid type absolute_index logical_index type_index uuid name model_name vendor_name product_name "
    "user_name extdata",
    "info_queue": "nid pid name extdata",
    "info_stream": "nid pid name extdata",
    "info_pmc": "nid pid agent_id target_arch event_code instance_id name symbol description long_description "
    "component units value_type block expression is_constant is_derived extdata",
    "info_code_object": "nid pid agent_id uri load_base load_size load_delta storage_type extdata",
    "info_kernel_symbol": "nid pid code_object_id kernel_name display_name kernel_object kernarg_segment_size "
    "kernarg_segment_alignment group_segment_size private_segment_size sgpr_count arch_vgpr_count accum_vgpr_count "
    "extdata",
    "track": "nid pid tid name_id extdata",
    "event": "category_id stack_id parent_stack_id correlation_id call_stack line_info extdata",
    "arg": "event_id position type name value extdata",
    "pmc_event": "event_id pmc_id value extdata",
    "region": "nid pid tid start end name_id event_id extdata",
    "sample": "track_id timestamp event_id extdata",
    "kernel_dispatch": "nid pid tid agent_id kernel_id dispatch_id queue_id stream_id start end private_segment_size "
    "group_segment_size workgroup_size_x workgroup_size_y workgroup_size_z grid_size_x grid_size_y grid_size_z "
    "region_name_id event_id extdata",
    "memory_copy": "nid pid tid start end name_id dst_agent_id dst_address src_agent_id src_address size queue_id "
    "stream_id region_name_id event_id extdata",
    "memory_allocate": "nid pid tid agent_id type level start end address size queue_id stream_id event_id extdata",
}
"""Columns of each table (without `rocpd_`) after `id` and, except in metadata, `guid`."""

_REFERENCES = {
    "nid": "info_node", "pid": "info_process", "tid": "info_thread", "agent_id": "info_agent",
    "dst_agent_id": "info_agent", "src_agent_id": "info_agent", "queue_id": "info_queue", "stream_id": "info_stream",
    "name_id": "string", "category_id": "string", "region_name_id": "string", "event_id": "event",
    "kernel_id": "info_kernel_symbol", "code_object_id": "info_code_object", "track_id": "track", "pmc_id": "info_pmc",
}  # fmt: skip
_SYSTEM_NUMBERS = {("info_process", "pid"), ("info_thread", "tid")}
_JSON = {"environment", "extdata", "call_stack", "line_info"}
_TEXTS = {
    "tag", "string", "machine_id", "system_name", "hostname", "release", "version", "hardware_name", "domain_name",
    "command", "name", "type", "model_name", "vendor_name", "product_name", "user_name", "target_arch", "symbol",
    "description", "long_description", "component", "units", "value_type", "block", "expression", "uri",
    "storage_type", "kernel_name", "display_name", "level",
}  # fmt: skip
_TYPES = {("metadata", "value"): "TEXT NOT NULL", ("arg", "value"): "TEXT", ("pmc_event", "value"): "REAL DEFAULT 0.0"}
_TYPES[("string", "string")] = "TEXT NOT NULL UNIQUE ON CONFLICT ABORT"


def table_name(table: str, suffix: str) -> str:
    """The full name of a table of TABLES."""
    return f"rocpd_{table}{suffix}"


def definitions(suffix: str, guid: str) -> Iterator[str]:
    """The statements that make an empty database; suffix is `_` and the GUID with underscores."""
    for table, columns in TABLES.items():
        parts = ['"id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT']
        if table != "metadata":
            parts.append(f"\"guid\" TEXT DEFAULT '{guid}' NOT NULL")
        parts += [f'"{column}" {_type(table, column)}' for column in columns.split()]
        for column in columns.split():
            if column in _REFERENCES and (table, column) not in _SYSTEM_NUMBERS:
                other = table_name(_REFERENCES[column], suffix)
                parts.append(f'FOREIGN KEY ("{column}") REFERENCES "{other}" ("id") ON UPDATE CASCADE')
        yield f'CREATE TABLE "{table_name(table, suffix)}" ({", ".join(parts)})'
        yield f'CREATE VIEW "rocpd_{table}" AS SELECT * FROM "{table_name(table, suffix)}"'
    for view, query in VIEWS.items():
        yield f'CREATE VIEW "{view}" AS {query}'


def _type(table: str, column: str) -> str:
    if (table, column) in _TYPES:
        return _TYPES[table, column]
    if column in _JSON:
        return "JSONB DEFAULT '{}' NOT NULL"
    return "TEXT" if column in _TEXTS else "BIGINT"


def _agent(alias: str, prefix: str) -> str:
    return ", ".join(
        f"{alias}.{column} AS {prefix}_{short}"
        for column, short in (
            ("absolute_index", "abs_index"),
            ("logical_index", "log_index"),
            ("type_index", "type_index"),
            ("type", "type"),
        )
    )


_PROCESS = "JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid"
_THREAD = f"{_PROCESS} JOIN rocpd_info_thread T ON T.id = X.tid AND T.guid = X.guid"
_EVENT = """JOIN rocpd_event E ON E.id = X.event_id AND E.guid = X.guid
 LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid"""
_NAME = "JOIN rocpd_string N ON N.id = X.name_id AND N.guid = X.guid"
_QUEUES = """LEFT JOIN rocpd_info_queue Q ON Q.id = X.queue_id AND Q.guid = X.guid
 LEFT JOIN rocpd_info_stream S ON S.id = X.stream_id AND S.guid = X.guid"""
_SPAN = 'X.start, X."end", X."end" - X.start AS duration'
_STACK = "E.stack_id, E.parent_stack_id, E.correlation_id AS corr_id"
_NODE = """O.id AS nid, O.machine_id, O.system_name, O.hostname, O.release AS system_release,
 O.version AS system_version"""
_SUMMARY = """COUNT(*) AS total_calls, SUM(duration) / 1000.0 AS total_duration,
 (SUM(duration) / COUNT(*)) / 1000.0 AS average"""

VIEWS = {
    "code_objects": """SELECT X.id, X.guid, X.nid, P.pid, A.absolute_index AS agent_abs_index, X.uri, X.load_base,
 X.load_size, X.load_delta, X.storage_type AS storage_type_str, json_extract(X.extdata, '$.size') AS code_object_size,
 json_extract(X.extdata, '$.storage_type') AS storage_type, json_extract(X.extdata, '$.memory_base') AS memory_base,
 json_extract(X.extdata, '$.memory_size') AS memory_size
 FROM rocpd_info_code_object X JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid """
    + _PROCESS,
    "kernel_symbols": """SELECT X.id, X.guid, X.nid, P.pid, X.code_object_id, X.kernel_name, X.display_name,
 X.kernel_object, X.kernarg_segment_size, X.kernarg_segment_alignment, X.group_segment_size, X.private_segment_size,
 X.sgpr_count, X.arch_vgpr_count, X.accum_vgpr_count, json_extract(X.extdata, '$.size') AS kernel_symbol_size,
 json_extract(X.extdata, '$.kernel_id') AS kernel_id,
 json_extract(X.extdata, '$.kernel_code_entry_byte_offset') AS kernel_code_entry_byte_offset,
 json_extract(X.extdata, '$.formatted_kernel_name') AS formatted_kernel_name,
 json_extract(X.extdata, '$.demangled_kernel_name') AS demangled_kernel_name,
 json_extract(X.extdata, '$.truncated_kernel_name') AS truncated_kernel_name,
 json_extract(X.extdata, '$.kernel_address.handle') AS kernel_address
 FROM rocpd_info_kernel_symbol X """
    + _PROCESS,
    "processes": f"""SELECT {_NODE}, P.guid, P.ppid, P.pid, P.init, P.start, P."end", P.fini, P.command
 FROM rocpd_info_process P JOIN rocpd_info_node O ON O.id = P.nid AND O.guid = P.guid""",
    "threads": f"""SELECT {_NODE}, P.guid, P.ppid, P.pid, X.tid, X.start, X."end", X.name
 FROM rocpd_info_thread X {_PROCESS} JOIN rocpd_info_node O ON O.id = X.nid AND O.guid = X.guid""",
    "regions": f"""SELECT X.id, X.guid, C.string AS category, N.string AS name, X.nid, P.pid, T.tid, {_SPAN},
 X.event_id, {_STACK}, E.extdata, E.call_stack, E.line_info
 FROM rocpd_region X {_EVENT} {_NAME} {_THREAD}""",
    "region_args": """SELECT R.id, R.guid, R.nid, P.pid, A.type, A.name, A.value FROM rocpd_region R
 JOIN rocpd_arg A ON A.event_id = R.event_id AND A.guid = R.guid
 JOIN rocpd_info_process P ON P.id = R.pid AND P.guid = R.guid""",
    "samples": f"""SELECT Y.id, Y.guid, C.string AS category, N.string AS name, X.nid, P.pid, T.tid, Y.timestamp,
 Y.event_id, {_STACK}, E.extdata, E.call_stack, E.line_info
 FROM rocpd_sample Y JOIN rocpd_track X ON X.id = Y.track_id AND X.guid = Y.guid
 {_EVENT.replace("X.event_id", "Y.event_id")} {_NAME} {_THREAD}""",
    "sample_regions": """SELECT id, guid, category, name, nid, pid, tid, timestamp AS start, timestamp AS "end",
 0 AS duration, event_id, stack_id, parent_stack_id, corr_id, extdata, call_stack, line_info FROM samples""",
    "regions_and_samples": "SELECT * FROM regions UNION ALL SELECT * FROM sample_regions",
    "kernels": f"""SELECT X.id, X.guid, T.tid, C.string AS category, R.string AS region, K.display_name AS name, X.nid,
 P.pid, {_agent("A", "agent")}, K.code_object_id, X.kernel_id, X.dispatch_id, X.stream_id, X.queue_id,
 Q.name AS queue, S.name AS stream, {_SPAN}, X.grid_size_x AS grid_x, X.grid_size_y AS grid_y, X.grid_size_z AS grid_z,
 X.workgroup_size_x AS workgroup_x, X.workgroup_size_y AS workgroup_y, X.workgroup_size_z AS workgroup_z,
 X.group_segment_size AS lds_size, X.private_segment_size AS scratch_size, K.arch_vgpr_count AS vgpr_count,
 K.accum_vgpr_count, K.sgpr_count, K.group_segment_size AS static_lds_size,
 K.private_segment_size AS static_scratch_size, {_STACK}
 FROM rocpd_kernel_dispatch X {_EVENT} {_THREAD} {_QUEUES}
 JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid
 JOIN rocpd_info_kernel_symbol K ON K.id = X.kernel_id AND K.guid = X.guid
 LEFT JOIN rocpd_string R ON R.id = X.region_name_id AND R.guid = X.guid""",
    "memory_copies": f"""SELECT X.id, X.guid, C.string AS category, X.nid, P.pid, T.tid, {_SPAN}, N.string AS name,
 R.string AS region_name, X.stream_id, X.queue_id, S.name AS stream_name, Q.name AS queue_name, X.size,
 D.name AS dst_device, {_agent("D", "dst_agent")}, X.dst_address, F.name AS src_device, {_agent("F", "src_agent")},
 X.src_address, {_STACK} FROM rocpd_memory_copy X {_EVENT} {_NAME} {_THREAD} {_QUEUES}
 LEFT JOIN rocpd_string R ON R.id = X.region_name_id AND R.guid = X.guid
 JOIN rocpd_info_agent D ON D.id = X.dst_agent_id AND D.guid = X.guid
 JOIN rocpd_info_agent F ON F.id = X.src_agent_id AND F.guid = X.guid""",
    "memory_allocations": f"""SELECT X.id, X.guid, C.string AS category, X.nid, P.pid, T.tid, {_SPAN}, X.type, X.level,
 A.name AS agent_name, {_agent("A", "agent")}, X.address, X.size, X.queue_id, Q.name AS queue_name, X.stream_id,
 S.name AS stream_name, {_STACK} FROM rocpd_memory_allocate X {_EVENT} {_THREAD} {_QUEUES}
 LEFT JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid""",
    "scratch_memory": f"""SELECT X.id, X.guid, X.nid, P.pid, X.type AS operation, A.name AS agent_name,
 {_agent("A", "agent")}, X.queue_id, T.tid, json_extract(X.extdata, '$.flags') AS alloc_flags, {_SPAN}, X.size,
 X.address, E.correlation_id, {_STACK}, C.string AS category, E.extdata AS event_extdata
 FROM rocpd_memory_allocate X {_EVENT} {_THREAD}
 LEFT JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid WHERE X.level = 'SCRATCH'""",
    "events_args": """SELECT E.id AS event_id, C.string AS category, E.stack_id, E.parent_stack_id, E.correlation_id,
 A.position AS arg_position, A.type AS arg_type, A.name AS arg_name, A.value AS arg_value, E.call_stack, E.line_info,
 A.extdata FROM rocpd_event E JOIN rocpd_arg A ON A.event_id = E.id AND A.guid = E.guid
 LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid""",
    "stream_args": """SELECT A.id AS argument_id, A.event_id, A.position AS arg_position, A.type AS arg_type,
 A.value AS arg_value, json_extract(A.extdata, '$.stream_id') AS stream_id, S.nid, P.pid, S.name AS stream_name,
 A.extdata FROM rocpd_arg A
 JOIN rocpd_info_stream S ON S.id = json_extract(A.extdata, '$.stream_id') AND S.guid = A.guid
 JOIN rocpd_info_process P ON P.id = S.pid AND P.guid = S.guid WHERE A.name = 'stream'""",
    "pmc_info": """SELECT X.id, X.guid, X.nid, P.pid, A.absolute_index AS agent_abs_index, X.is_constant, X.is_derived,
 X.name, X.description, X.block, X.expression FROM rocpd_info_pmc X
 JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid """
    + _PROCESS,
    "pmc_events": """SELECT V.id, V.guid, V.pmc_id, V.event_id, C.string AS category, K.display_name AS name, X.nid,
 P.pid, X.dispatch_id, X.start, X."end", X."end" - X.start AS duration, I.name AS counter_name, V.value AS counter_value
 FROM rocpd_pmc_event V JOIN rocpd_info_pmc I ON I.id = V.pmc_id AND I.guid = V.guid
 JOIN rocpd_kernel_dispatch X ON X.event_id = V.event_id AND X.guid = V.guid
 JOIN rocpd_info_kernel_symbol K ON K.id = X.kernel_id AND K.guid = X.guid """
    + f"{_EVENT} {_PROCESS}",
    "counters_collection": f"""SELECT MIN(V.id) AS id, V.guid, X.dispatch_id, X.kernel_id, V.event_id, E.correlation_id,
 E.stack_id, E.parent_stack_id, P.pid, T.tid, X.agent_id, {_agent("A", "agent")}, X.queue_id, X.grid_size_x,
 X.grid_size_y, X.grid_size_z, X.grid_size_x * X.grid_size_y * X.grid_size_z AS grid_size,
 K.display_name AS kernel_name, R.string AS kernel_region, X.workgroup_size_x, X.workgroup_size_y, X.workgroup_size_z,
 X.workgroup_size_x * X.workgroup_size_y * X.workgroup_size_z AS workgroup_size,
 X.group_segment_size AS lds_block_size, X.private_segment_size AS scratch_size, K.arch_vgpr_count AS vgpr_count,
 K.accum_vgpr_count, K.sgpr_count, I.name AS counter_name, I.symbol AS counter_symbol, I.component, I.description,
 I.block, I.expression, I.value_type, I.id AS counter_id, SUM(V.value) AS value, X.start, X."end", I.is_constant,
 I.is_derived, X."end" - X.start AS duration, C.string AS category, X.nid, E.extdata, K.code_object_id
 FROM rocpd_pmc_event V JOIN rocpd_info_pmc I ON I.id = V.pmc_id AND I.guid = V.guid
 JOIN rocpd_kernel_dispatch X ON X.event_id = V.event_id AND X.guid = V.guid
 JOIN rocpd_info_kernel_symbol K ON K.id = X.kernel_id AND K.guid = X.guid
 JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid {_EVENT} {_THREAD}
 LEFT JOIN rocpd_string R ON R.id = X.region_name_id AND R.guid = X.guid GROUP BY V.guid, X.dispatch_id, I.name""",
    "busy": """SELECT G.agent_id, A.type, G.GpuTime, W.WallTime, G.GpuTime * 1.0 / W.WallTime AS Busy
 FROM (SELECT agent_id, guid, SUM("end" - start) AS GpuTime
 FROM (SELECT agent_id, guid, start, "end" FROM rocpd_kernel_dispatch
 UNION ALL SELECT dst_agent_id, guid, start, "end" FROM rocpd_memory_copy) GROUP BY agent_id, guid) G
 JOIN (SELECT MAX("end") - MIN(start) AS WallTime FROM (SELECT start, "end" FROM rocpd_kernel_dispatch
 UNION ALL SELECT start, "end" FROM rocpd_memory_copy)) W
 JOIN rocpd_info_agent A ON A.id = G.agent_id AND A.guid = G.guid""",
    "top_kernels": f"""SELECT name, {_SUMMARY},
 SUM(duration) * 100.0 / (SELECT SUM(duration) FROM kernels) AS percentage
 FROM kernels GROUP BY name ORDER BY total_duration DESC""",
    "top": f"""WITH everything AS (SELECT name, duration FROM kernels UNION ALL SELECT name, duration FROM memory_copies
 UNION ALL SELECT name, duration FROM regions)
 SELECT name, {_SUMMARY}, SUM(duration) * 100.0 / (SELECT SUM(duration) FROM everything) AS percentage
 FROM everything GROUP BY name ORDER BY total_duration DESC""",
}
"""The data and summary views, in the order in which they build on each other."""
