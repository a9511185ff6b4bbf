-- Tables and views of a rocpd database, schema version 3 as of ROCm 7.0.
-- Columns, their types and constraints: versions/3.0.0/rocpd_tables.sql in source/share/rocprofiler-sdk-rocpd of https://github.com/ROCm/rocm-systems (projects/rocprofiler-sdk).
-- {{uuid}} is the end of a table's name, {{guid}} the recording's identifier; a view without that end exists for each.
CREATE TABLE "rocpd_metadata{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "tag" TEXT NOT NULL, "value" TEXT NOT NULL
);
CREATE VIEW "rocpd_metadata" AS SELECT * FROM "rocpd_metadata{{uuid}}";
CREATE TABLE "rocpd_string{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL,
  "string" TEXT NOT NULL UNIQUE ON CONFLICT ABORT
);
CREATE VIEW "rocpd_string" AS SELECT * FROM "rocpd_string{{uuid}}";
CREATE TABLE "rocpd_info_node{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL,
  "hash" BIGINT NOT NULL UNIQUE, "machine_id" TEXT NOT NULL UNIQUE, "system_name" TEXT, "hostname" TEXT,
  "release" TEXT, "version" TEXT, "hardware_name" TEXT, "domain_name" TEXT
);
CREATE VIEW "rocpd_info_node" AS SELECT * FROM "rocpd_info_node{{uuid}}";
CREATE TABLE "rocpd_info_process{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "ppid" INTEGER, "pid" INTEGER NOT NULL, "init" BIGINT, "fini" BIGINT, "start" BIGINT, "end" BIGINT, "command" TEXT,
  "environment" JSONB DEFAULT '{}' NOT NULL, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_info_process" AS SELECT * FROM "rocpd_info_process{{uuid}}";
CREATE TABLE "rocpd_info_thread{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "ppid" INTEGER, "pid" INTEGER NOT NULL, "tid" INTEGER NOT NULL, "name" TEXT, "start" BIGINT, "end" BIGINT,
  "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_info_thread" AS SELECT * FROM "rocpd_info_thread{{uuid}}";
CREATE TABLE "rocpd_info_agent{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER NOT NULL, "type" TEXT CHECK ("type" IN ('CPU', 'GPU')), "absolute_index" INTEGER,
  "logical_index" INTEGER, "type_index" INTEGER, "uuid" INTEGER, "name" TEXT, "model_name" TEXT, "vendor_name" TEXT,
  "product_name" TEXT, "user_name" TEXT, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_info_agent" AS SELECT * FROM "rocpd_info_agent{{uuid}}";
CREATE TABLE "rocpd_info_queue{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER NOT NULL, "name" TEXT, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_info_queue" AS SELECT * FROM "rocpd_info_queue{{uuid}}";
CREATE TABLE "rocpd_info_stream{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER NOT NULL, "name" TEXT, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_info_stream" AS SELECT * FROM "rocpd_info_stream{{uuid}}";
CREATE TABLE "rocpd_info_pmc{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER NOT NULL, "agent_id" INTEGER, "target_arch" TEXT CHECK ("target_arch" IN ('CPU', 'GPU')),
  "event_code" INTEGER, "instance_id" INTEGER, "name" TEXT NOT NULL, "symbol" TEXT NOT NULL, "description" TEXT,
  "long_description" TEXT DEFAULT '', "component" TEXT, "units" TEXT DEFAULT '',
  "value_type" TEXT CHECK ("value_type" IN ('ABS', 'ACCUM', 'RELATIVE')), "block" TEXT, "expression" TEXT,
  "is_constant" INTEGER, "is_derived" INTEGER, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("agent_id") REFERENCES "rocpd_info_agent{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_info_pmc" AS SELECT * FROM "rocpd_info_pmc{{uuid}}";
CREATE TABLE "rocpd_info_code_object{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER NOT NULL, "agent_id" INTEGER, "uri" TEXT, "load_base" BIGINT, "load_size" BIGINT, "load_delta" BIGINT,
  "storage_type" TEXT CHECK ("storage_type" IN ('FILE', 'MEMORY')), "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("agent_id") REFERENCES "rocpd_info_agent{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_info_code_object" AS SELECT * FROM "rocpd_info_code_object{{uuid}}";
CREATE TABLE "rocpd_info_kernel_symbol{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER NOT NULL, "code_object_id" INTEGER NOT NULL, "kernel_name" TEXT, "display_name" TEXT,
  "kernel_object" INTEGER, "kernarg_segment_size" INTEGER, "kernarg_segment_alignment" INTEGER,
  "group_segment_size" INTEGER, "private_segment_size" INTEGER, "sgpr_count" INTEGER, "arch_vgpr_count" INTEGER,
  "accum_vgpr_count" INTEGER, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("code_object_id") REFERENCES "rocpd_info_code_object{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_info_kernel_symbol" AS SELECT * FROM "rocpd_info_kernel_symbol{{uuid}}";
CREATE TABLE "rocpd_track{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER, "tid" INTEGER, "name_id" INTEGER, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("tid") REFERENCES "rocpd_info_thread{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("name_id") REFERENCES "rocpd_string{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_track" AS SELECT * FROM "rocpd_track{{uuid}}";
CREATE TABLE "rocpd_event{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "category_id" INTEGER,
  "stack_id" INTEGER, "parent_stack_id" INTEGER, "correlation_id" INTEGER, "call_stack" JSONB DEFAULT '{}' NOT NULL,
  "line_info" JSONB DEFAULT '{}' NOT NULL, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("category_id") REFERENCES "rocpd_string{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_event" AS SELECT * FROM "rocpd_event{{uuid}}";
CREATE TABLE "rocpd_arg{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL,
  "event_id" INTEGER NOT NULL, "position" INTEGER NOT NULL, "type" TEXT NOT NULL, "name" TEXT NOT NULL, "value" TEXT,
  "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("event_id") REFERENCES "rocpd_event{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_arg" AS SELECT * FROM "rocpd_arg{{uuid}}";
CREATE TABLE "rocpd_pmc_event{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "event_id" INTEGER,
  "pmc_id" INTEGER NOT NULL, "value" REAL DEFAULT 0.0, "extdata" JSONB DEFAULT '{}',
  FOREIGN KEY ("event_id") REFERENCES "rocpd_event{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pmc_id") REFERENCES "rocpd_info_pmc{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_pmc_event" AS SELECT * FROM "rocpd_pmc_event{{uuid}}";
CREATE TABLE "rocpd_region{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER NOT NULL, "tid" INTEGER NOT NULL, "start" BIGINT NOT NULL, "end" BIGINT NOT NULL,
  "name_id" INTEGER NOT NULL, "event_id" INTEGER, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("tid") REFERENCES "rocpd_info_thread{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("name_id") REFERENCES "rocpd_string{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("event_id") REFERENCES "rocpd_event{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_region" AS SELECT * FROM "rocpd_region{{uuid}}";
CREATE TABLE "rocpd_sample{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL,
  "track_id" INTEGER NOT NULL, "timestamp" BIGINT NOT NULL, "event_id" INTEGER, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("track_id") REFERENCES "rocpd_track{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("event_id") REFERENCES "rocpd_event{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_sample" AS SELECT * FROM "rocpd_sample{{uuid}}";
CREATE TABLE "rocpd_kernel_dispatch{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER NOT NULL, "tid" INTEGER, "agent_id" INTEGER NOT NULL, "kernel_id" INTEGER NOT NULL,
  "dispatch_id" INTEGER NOT NULL, "queue_id" INTEGER NOT NULL, "stream_id" INTEGER NOT NULL, "start" BIGINT NOT NULL,
  "end" BIGINT NOT NULL, "private_segment_size" INTEGER, "group_segment_size" INTEGER,
  "workgroup_size_x" INTEGER NOT NULL, "workgroup_size_y" INTEGER NOT NULL, "workgroup_size_z" INTEGER NOT NULL,
  "grid_size_x" INTEGER NOT NULL, "grid_size_y" INTEGER NOT NULL, "grid_size_z" INTEGER NOT NULL,
  "region_name_id" INTEGER, "event_id" INTEGER, "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("tid") REFERENCES "rocpd_info_thread{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("agent_id") REFERENCES "rocpd_info_agent{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("kernel_id") REFERENCES "rocpd_info_kernel_symbol{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("queue_id") REFERENCES "rocpd_info_queue{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("stream_id") REFERENCES "rocpd_info_stream{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("region_name_id") REFERENCES "rocpd_string{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("event_id") REFERENCES "rocpd_event{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_kernel_dispatch" AS SELECT * FROM "rocpd_kernel_dispatch{{uuid}}";
CREATE TABLE "rocpd_memory_copy{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER NOT NULL, "tid" INTEGER, "start" BIGINT NOT NULL, "end" BIGINT NOT NULL, "name_id" INTEGER NOT NULL,
  "dst_agent_id" INTEGER, "dst_address" INTEGER, "src_agent_id" INTEGER, "src_address" INTEGER,
  "size" INTEGER NOT NULL, "queue_id" INTEGER, "stream_id" INTEGER, "region_name_id" INTEGER, "event_id" INTEGER,
  "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("tid") REFERENCES "rocpd_info_thread{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("name_id") REFERENCES "rocpd_string{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("dst_agent_id") REFERENCES "rocpd_info_agent{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("src_agent_id") REFERENCES "rocpd_info_agent{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("queue_id") REFERENCES "rocpd_info_queue{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("stream_id") REFERENCES "rocpd_info_stream{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("region_name_id") REFERENCES "rocpd_string{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("event_id") REFERENCES "rocpd_event{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_memory_copy" AS SELECT * FROM "rocpd_memory_copy{{uuid}}";
CREATE TABLE "rocpd_memory_allocate{{uuid}}" (
  "id" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, "guid" TEXT DEFAULT '{{guid}}' NOT NULL, "nid" INTEGER NOT NULL,
  "pid" INTEGER NOT NULL, "tid" INTEGER, "agent_id" INTEGER,
  "type" TEXT CHECK ("type" IN ('ALLOC', 'FREE', 'REALLOC', 'RECLAIM')),
  "level" TEXT CHECK ("level" IN ('REAL', 'VIRTUAL', 'SCRATCH')), "start" BIGINT NOT NULL, "end" BIGINT NOT NULL,
  "address" INTEGER, "size" INTEGER NOT NULL, "queue_id" INTEGER, "stream_id" INTEGER, "event_id" INTEGER,
  "extdata" JSONB DEFAULT '{}' NOT NULL,
  FOREIGN KEY ("nid") REFERENCES "rocpd_info_node{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("pid") REFERENCES "rocpd_info_process{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("tid") REFERENCES "rocpd_info_thread{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("agent_id") REFERENCES "rocpd_info_agent{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("queue_id") REFERENCES "rocpd_info_queue{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("stream_id") REFERENCES "rocpd_info_stream{{uuid}}" ("id") ON UPDATE CASCADE,
  FOREIGN KEY ("event_id") REFERENCES "rocpd_event{{uuid}}" ("id") ON UPDATE CASCADE
);
CREATE VIEW "rocpd_memory_allocate" AS SELECT * FROM "rocpd_memory_allocate{{uuid}}";
CREATE VIEW "code_objects" AS
  SELECT X.id, X.guid, X.nid, P.pid, A.absolute_index AS agent_abs_index, X.uri, X.load_base, X.load_size,
    X.load_delta, X.storage_type AS storage_type_str, json_extract(X.extdata, '$.size') AS code_object_size,
    json_extract(X.extdata, '$.storage_type') AS storage_type,
    json_extract(X.extdata, '$.memory_base') AS memory_base, json_extract(X.extdata, '$.memory_size') AS memory_size
  FROM rocpd_info_code_object X
  JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid;
CREATE VIEW "kernel_symbols" AS
  SELECT X.id, X.guid, X.nid, P.pid, X.code_object_id, X.kernel_name, X.display_name, X.kernel_object,
    X.kernarg_segment_size, X.kernarg_segment_alignment, X.group_segment_size, X.private_segment_size, X.sgpr_count,
    X.arch_vgpr_count, X.accum_vgpr_count, json_extract(X.extdata, '$.size') AS kernel_symbol_size,
    json_extract(X.extdata, '$.kernel_id') AS kernel_id,
    json_extract(X.extdata, '$.kernel_code_entry_byte_offset') AS kernel_code_entry_byte_offset,
    json_extract(X.extdata, '$.formatted_kernel_name') AS formatted_kernel_name,
    json_extract(X.extdata, '$.demangled_kernel_name') AS demangled_kernel_name,
    json_extract(X.extdata, '$.truncated_kernel_name') AS truncated_kernel_name,
    json_extract(X.extdata, '$.kernel_address.handle') AS kernel_address
  FROM rocpd_info_kernel_symbol X
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid;
CREATE VIEW "processes" AS
  SELECT O.id AS nid, O.machine_id, O.system_name, O.hostname, O.release AS system_release,
    O.version AS system_version, P.guid, P.ppid, P.pid, P.init, P.start, P."end", P.fini, P.command
  FROM rocpd_info_process P
  JOIN rocpd_info_node O ON O.id = P.nid AND O.guid = P.guid;
CREATE VIEW "threads" AS
  SELECT O.id AS nid, O.machine_id, O.system_name, O.hostname, O.release AS system_release,
    O.version AS system_version, P.guid, P.ppid, P.pid, X.tid, X.start, X."end", X.name
  FROM rocpd_info_thread X
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid
  JOIN rocpd_info_node O ON O.id = X.nid AND O.guid = X.guid;
CREATE VIEW "regions" AS
  SELECT X.id, X.guid, C.string AS category, N.string AS name, X.nid, P.pid, T.tid, X.start, X."end",
    X."end" - X.start AS duration, X.event_id, E.stack_id, E.parent_stack_id, E.correlation_id AS corr_id, E.extdata,
    E.call_stack, E.line_info
  FROM rocpd_region X
  JOIN rocpd_event E ON E.id = X.event_id AND E.guid = X.guid
  LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid
  JOIN rocpd_string N ON N.id = X.name_id AND N.guid = X.guid
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid
  JOIN rocpd_info_thread T ON T.id = X.tid AND T.guid = X.guid;
CREATE VIEW "region_args" AS
  SELECT R.id, R.guid, R.nid, P.pid, A.type, A.name, A.value
  FROM rocpd_region R
  JOIN rocpd_arg A ON A.event_id = R.event_id AND A.guid = R.guid
  JOIN rocpd_info_process P ON P.id = R.pid AND P.guid = R.guid;
CREATE VIEW "samples" AS
  SELECT Y.id, Y.guid, C.string AS category, N.string AS name, X.nid, P.pid, T.tid, Y.timestamp, Y.event_id,
    E.stack_id, E.parent_stack_id, E.correlation_id AS corr_id, E.extdata, E.call_stack, E.line_info
  FROM rocpd_sample Y
  JOIN rocpd_track X ON X.id = Y.track_id AND X.guid = Y.guid
  JOIN rocpd_event E ON E.id = Y.event_id AND E.guid = X.guid
  LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid
  JOIN rocpd_string N ON N.id = X.name_id AND N.guid = X.guid
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid
  JOIN rocpd_info_thread T ON T.id = X.tid AND T.guid = X.guid;
CREATE VIEW "sample_regions" AS
  SELECT id, guid, category, name, nid, pid, tid, timestamp AS start, timestamp AS "end", 0 AS duration, event_id,
    stack_id, parent_stack_id, corr_id, extdata, call_stack, line_info
  FROM samples;
CREATE VIEW "regions_and_samples" AS SELECT * FROM regions UNION ALL SELECT * FROM sample_regions;
CREATE VIEW "kernels" AS
  SELECT X.id, X.guid, T.tid, C.string AS category, R.string AS region, K.display_name AS name, X.nid, P.pid,
    A.absolute_index AS agent_abs_index, A.logical_index AS agent_log_index, A.type_index AS agent_type_index,
    A.type AS agent_type, K.code_object_id, X.kernel_id, X.dispatch_id, X.stream_id, X.queue_id, Q.name AS queue,
    S.name AS stream, X.start, X."end", X."end" - X.start AS duration, X.grid_size_x AS grid_x,
    X.grid_size_y AS grid_y, X.grid_size_z AS grid_z, X.workgroup_size_x AS workgroup_x,
    X.workgroup_size_y AS workgroup_y, X.workgroup_size_z AS workgroup_z, X.group_segment_size AS lds_size,
    X.private_segment_size AS scratch_size, K.arch_vgpr_count AS vgpr_count, K.accum_vgpr_count, K.sgpr_count,
    K.group_segment_size AS static_lds_size, K.private_segment_size AS static_scratch_size, E.stack_id,
    E.parent_stack_id, E.correlation_id AS corr_id
  FROM rocpd_kernel_dispatch X
  JOIN rocpd_event E ON E.id = X.event_id AND E.guid = X.guid
  LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid
  JOIN rocpd_info_thread T ON T.id = X.tid AND T.guid = X.guid
  LEFT JOIN rocpd_info_queue Q ON Q.id = X.queue_id AND Q.guid = X.guid
  LEFT JOIN rocpd_info_stream S ON S.id = X.stream_id AND S.guid = X.guid
  JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid
  JOIN rocpd_info_kernel_symbol K ON K.id = X.kernel_id AND K.guid = X.guid
  LEFT JOIN rocpd_string R ON R.id = X.region_name_id AND R.guid = X.guid;
CREATE VIEW "memory_copies" AS
  SELECT X.id, X.guid, C.string AS category, X.nid, P.pid, T.tid, X.start, X."end", X."end" - X.start AS duration,
    N.string AS name, R.string AS region_name, X.stream_id, X.queue_id, S.name AS stream_name, Q.name AS queue_name,
    X.size, D.name AS dst_device, D.absolute_index AS dst_agent_abs_index, D.logical_index AS dst_agent_log_index,
    D.type_index AS dst_agent_type_index, D.type AS dst_agent_type, X.dst_address, F.name AS src_device,
    F.absolute_index AS src_agent_abs_index, F.logical_index AS src_agent_log_index,
    F.type_index AS src_agent_type_index, F.type AS src_agent_type, X.src_address, E.stack_id, E.parent_stack_id,
    E.correlation_id AS corr_id
  FROM rocpd_memory_copy X
  JOIN rocpd_event E ON E.id = X.event_id AND E.guid = X.guid
  LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid
  JOIN rocpd_string N ON N.id = X.name_id AND N.guid = X.guid
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid
  JOIN rocpd_info_thread T ON T.id = X.tid AND T.guid = X.guid
  LEFT JOIN rocpd_info_queue Q ON Q.id = X.queue_id AND Q.guid = X.guid
  LEFT JOIN rocpd_info_stream S ON S.id = X.stream_id AND S.guid = X.guid
  LEFT JOIN rocpd_string R ON R.id = X.region_name_id AND R.guid = X.guid
  JOIN rocpd_info_agent D ON D.id = X.dst_agent_id AND D.guid = X.guid
  JOIN rocpd_info_agent F ON F.id = X.src_agent_id AND F.guid = X.guid;
CREATE VIEW "memory_allocations" AS
  SELECT X.id, X.guid, C.string AS category, X.nid, P.pid, T.tid, X.start, X."end", X."end" - X.start AS duration,
    X.type, X.level, A.name AS agent_name, A.absolute_index AS agent_abs_index, A.logical_index AS agent_log_index,
    A.type_index AS agent_type_index, A.type AS agent_type, X.address, X.size, X.queue_id, Q.name AS queue_name,
    X.stream_id, S.name AS stream_name, E.stack_id, E.parent_stack_id, E.correlation_id AS corr_id
  FROM rocpd_memory_allocate X
  JOIN rocpd_event E ON E.id = X.event_id AND E.guid = X.guid
  LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid
  JOIN rocpd_info_thread T ON T.id = X.tid AND T.guid = X.guid
  LEFT JOIN rocpd_info_queue Q ON Q.id = X.queue_id AND Q.guid = X.guid
  LEFT JOIN rocpd_info_stream S ON S.id = X.stream_id AND S.guid = X.guid
  LEFT JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid;
CREATE VIEW "scratch_memory" AS
  SELECT X.id, X.guid, X.nid, P.pid, X.type AS operation, A.name AS agent_name, A.absolute_index AS agent_abs_index,
    A.logical_index AS agent_log_index, A.type_index AS agent_type_index, A.type AS agent_type, X.queue_id, T.tid,
    json_extract(X.extdata, '$.flags') AS alloc_flags, X.start, X."end", X."end" - X.start AS duration, X.size,
    X.address, E.correlation_id, E.stack_id, E.parent_stack_id, E.correlation_id AS corr_id, C.string AS category,
    E.extdata AS event_extdata
  FROM rocpd_memory_allocate X
  JOIN rocpd_event E ON E.id = X.event_id AND E.guid = X.guid
  LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid
  JOIN rocpd_info_thread T ON T.id = X.tid AND T.guid = X.guid
  LEFT JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid
  WHERE X.level = 'SCRATCH';
CREATE VIEW "events_args" AS
  SELECT E.id AS event_id, C.string AS category, E.stack_id, E.parent_stack_id, E.correlation_id,
    A.position AS arg_position, A.type AS arg_type, A.name AS arg_name, A.value AS arg_value, E.call_stack,
    E.line_info, A.extdata
  FROM rocpd_event E
  JOIN rocpd_arg A ON A.event_id = E.id AND A.guid = E.guid
  LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid;
CREATE VIEW "stream_args" AS
  SELECT A.id AS argument_id, A.event_id, A.position AS arg_position, A.type AS arg_type, A.value AS arg_value,
    json_extract(A.extdata, '$.stream_id') AS stream_id, S.nid, P.pid, S.name AS stream_name, A.extdata
  FROM rocpd_arg A
  JOIN rocpd_info_stream S ON S.id = json_extract(A.extdata, '$.stream_id') AND S.guid = A.guid
  JOIN rocpd_info_process P ON P.id = S.pid AND P.guid = S.guid
  WHERE A.name = 'stream';
CREATE VIEW "pmc_info" AS
  SELECT X.id, X.guid, X.nid, P.pid, A.absolute_index AS agent_abs_index, X.is_constant, X.is_derived, X.name,
    X.description, X.block, X.expression
  FROM rocpd_info_pmc X
  JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid;
CREATE VIEW "pmc_events" AS
  SELECT V.id, V.guid, V.pmc_id, V.event_id, C.string AS category, K.display_name AS name, X.nid, P.pid,
    X.dispatch_id, X.start, X."end", X."end" - X.start AS duration, I.name AS counter_name, V.value AS counter_value
  FROM rocpd_pmc_event V
  JOIN rocpd_info_pmc I ON I.id = V.pmc_id AND I.guid = V.guid
  JOIN rocpd_kernel_dispatch X ON X.event_id = V.event_id AND X.guid = V.guid
  JOIN rocpd_info_kernel_symbol K ON K.id = X.kernel_id AND K.guid = X.guid
  JOIN rocpd_event E ON E.id = X.event_id AND E.guid = X.guid
  LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid;
CREATE VIEW "counters_collection" AS
  SELECT MIN(V.id) AS id, V.guid, X.dispatch_id, X.kernel_id, V.event_id, E.correlation_id, E.stack_id,
    E.parent_stack_id, P.pid, T.tid, X.agent_id, A.absolute_index AS agent_abs_index,
    A.logical_index AS agent_log_index, A.type_index AS agent_type_index, A.type AS agent_type, X.queue_id,
    X.grid_size_x, X.grid_size_y, X.grid_size_z, X.grid_size_x * X.grid_size_y * X.grid_size_z AS grid_size,
    K.display_name AS kernel_name, R.string AS kernel_region, X.workgroup_size_x, X.workgroup_size_y,
    X.workgroup_size_z, X.workgroup_size_x * X.workgroup_size_y * X.workgroup_size_z AS workgroup_size,
    X.group_segment_size AS lds_block_size, X.private_segment_size AS scratch_size, K.arch_vgpr_count AS vgpr_count,
    K.accum_vgpr_count, K.sgpr_count, I.name AS counter_name, I.symbol AS counter_symbol, I.component, I.description,
    I.block, I.expression, I.value_type, I.id AS counter_id, SUM(V.value) AS value, X.start, X."end", I.is_constant,
    I.is_derived, X."end" - X.start AS duration, C.string AS category, X.nid, E.extdata, K.code_object_id
  FROM rocpd_pmc_event V
  JOIN rocpd_info_pmc I ON I.id = V.pmc_id AND I.guid = V.guid
  JOIN rocpd_kernel_dispatch X ON X.event_id = V.event_id AND X.guid = V.guid
  JOIN rocpd_info_kernel_symbol K ON K.id = X.kernel_id AND K.guid = X.guid
  JOIN rocpd_info_agent A ON A.id = X.agent_id AND A.guid = X.guid
  JOIN rocpd_event E ON E.id = X.event_id AND E.guid = X.guid
  LEFT JOIN rocpd_string C ON C.id = E.category_id AND C.guid = E.guid
  JOIN rocpd_info_process P ON P.id = X.pid AND P.guid = X.guid
  JOIN rocpd_info_thread T ON T.id = X.tid AND T.guid = X.guid
  LEFT JOIN rocpd_string R ON R.id = X.region_name_id AND R.guid = X.guid
  GROUP BY V.guid, X.dispatch_id, I.name;
CREATE VIEW "busy" AS
  SELECT G.agent_id, A.type, G.GpuTime, W.WallTime, G.GpuTime * 1.0 / W.WallTime AS Busy
  FROM (
    SELECT agent_id, guid, SUM("end" - start) AS GpuTime
    FROM (
      SELECT agent_id, guid, start, "end" FROM rocpd_kernel_dispatch
      UNION ALL SELECT dst_agent_id, guid, start, "end" FROM rocpd_memory_copy
    ) GROUP BY agent_id, guid
  ) G
  JOIN (
    SELECT MAX("end") - MIN(start) AS WallTime
    FROM (SELECT start, "end" FROM rocpd_kernel_dispatch UNION ALL SELECT start, "end" FROM rocpd_memory_copy)
  ) W
  JOIN rocpd_info_agent A ON A.id = G.agent_id AND A.guid = G.guid;
CREATE VIEW "top_kernels" AS
  SELECT name, COUNT(*) AS total_calls, SUM(duration) / 1000.0 AS total_duration,
    (SUM(duration) / COUNT(*)) / 1000.0 AS average,
    SUM(duration) * 100.0 / (SELECT SUM(duration) FROM kernels) AS percentage
  FROM kernels
  GROUP BY name
  ORDER BY total_duration DESC;
CREATE VIEW "top" AS
  WITH everything AS (
    SELECT name, duration FROM kernels
    UNION ALL SELECT name, duration FROM memory_copies
    UNION ALL SELECT name, duration FROM regions
  )
  SELECT name, COUNT(*) AS total_calls, SUM(duration) / 1000.0 AS total_duration,
    (SUM(duration) / COUNT(*)) / 1000.0 AS average,
    SUM(duration) * 100.0 / (SELECT SUM(duration) FROM everything) AS percentage
  FROM everything
  GROUP BY name
  ORDER BY total_duration DESC;
