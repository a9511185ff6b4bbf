-- Tables and views of an rpd file in schema 3.
-- Column names: rocpd_python/rocpd/schema_data of https://github.com/ROCm/rocmProfileData, and files that it wrote.
-- The view top cuts sums to whole microseconds, and averages to whole nanoseconds (utilitySchema.cmd). The views napi and
-- nop, which tell the nodes of a file of several nodes apart, are not here: the model has one node.
CREATE TABLE "rocpd_string" (
  "id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "string" varchar(4096) NOT NULL
);
CREATE TABLE "rocpd_copyapi" (
  "api_ptr_id" integer NOT NULL PRIMARY KEY, "stream" varchar(18) NOT NULL, "size" integer NOT NULL,
  "width" integer NOT NULL, "height" integer NOT NULL, "kind" integer NOT NULL, "dst" varchar(18) NOT NULL,
  "src" varchar(18) NOT NULL, "dstDevice" integer NOT NULL, "srcDevice" integer NOT NULL, "sync" bool NOT NULL,
  "pinned" bool NOT NULL
);
CREATE TABLE "rocpd_api_ops" (
  "id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "api_id" integer NOT NULL, "op_id" integer NOT NULL
);
CREATE TABLE "rocpd_metadata" (
  "id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "tag" varchar(4096) NOT NULL, "value" varchar(4096) NOT NULL
);
CREATE TABLE "rocpd_monitor" (
  "id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "deviceType" varchar(16) NOT NULL, "deviceId" integer NOT NULL,
  "monitorType" varchar(16) NOT NULL, "start" integer NOT NULL, "end" integer NOT NULL, "value" varchar(255) NOT NULL
);
CREATE TABLE "rocpd_ustring" (
  "id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "string" varchar(4096) NOT NULL
);
CREATE TABLE "rocpd_op" (
  "id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "gpuId" integer NOT NULL, "queueId" integer NOT NULL,
  "sequenceId" integer NOT NULL, "start" integer NOT NULL, "end" integer NOT NULL, "description_id" integer NOT NULL,
  "opType_id" integer NOT NULL
);
CREATE TABLE "rocpd_api" (
  "id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "pid" integer NOT NULL, "tid" integer NOT NULL,
  "start" integer NOT NULL, "end" integer NOT NULL, "apiName_id" integer NOT NULL, "category_id" integer NOT NULL,
  "domain_id" integer NOT NULL, "args_id" integer NOT NULL
);
CREATE TABLE "rocpd_kernelapi" (
  "api_ptr_id" integer NOT NULL PRIMARY KEY, "stream" varchar(18) NOT NULL, "gridX" integer NOT NULL,
  "gridY" integer NOT NULL, "gridZ" integer NOT NULL, "workgroupX" integer NOT NULL, "workgroupY" integer NOT NULL,
  "workgroupZ" integer NOT NULL, "groupSegmentSize" integer NOT NULL, "privateSegmentSize" integer NOT NULL,
  "kernelName_id" integer NOT NULL
);
CREATE TABLE "rocpd_counter" (
  "id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "value" real NOT NULL, "op_id" integer NOT NULL,
  "name_id" integer NOT NULL
);
CREATE TABLE "rocpd_stackframe" (
  "id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "api_ptr_id" integer NOT NULL, "depth" integer NOT NULL,
  "name_id" integer NOT NULL
);
CREATE VIEW op AS
  SELECT O.id, gpuId, queueId, sequenceId, start, "end", D.string AS description, T.string AS opType
  FROM rocpd_op O
  JOIN rocpd_string D ON D.id = O.description_id
  JOIN rocpd_string T ON T.id = O.opType_id;
CREATE VIEW busy AS
  SELECT G.gpuId, GpuTime, WallTime, GpuTime * 1.0 / WallTime AS Busy
  FROM (SELECT gpuId, SUM("end" - start) AS GpuTime FROM rocpd_op GROUP BY gpuId) G
  JOIN (SELECT MAX("end") - MIN(start) AS WallTime FROM rocpd_op);
-- Operations by name, nameless ones by type. Equal rows count once, as in the tool's own view.
CREATE VIEW top AS
  SELECT N.string AS Name, COUNT(*) AS TotalCalls, SUM(A."end" - A.start) / 1000 AS TotalDuration_us,
    (SUM(A."end" - A.start) / COUNT(*)) / 1000.0 AS Ave_us,
    SUM(A."end" - A.start) * 100.0 / (SELECT SUM("end" - start) FROM rocpd_op) AS Percentage
  FROM (
    SELECT opType_id AS name_id, start, "end" FROM rocpd_op
    WHERE description_id IN (SELECT id FROM rocpd_string WHERE string = '')
    UNION
    SELECT description_id, start, "end" FROM rocpd_op
    WHERE description_id NOT IN (SELECT id FROM rocpd_string WHERE string = '')
  ) A
  JOIN rocpd_string N ON N.id = A.name_id
  GROUP BY Name
  ORDER BY TotalDuration_us DESC;
CREATE VIEW kernel AS
  SELECT O.id, gpuId, queueId, sequenceId, start, "end", "end" - start AS duration, stream, gridX, gridY,
    gridZ AS gridz, workgroupX, workgroupY, workgroupZ, groupSegmentSize, privateSegmentSize, N.string AS kernelName
  FROM rocpd_api_ops L
  JOIN rocpd_op O ON O.id = L.op_id
  JOIN rocpd_kernelapi K ON K.api_ptr_id = L.api_id
  JOIN rocpd_string N ON N.id = K.kernelName_id;
CREATE VIEW copy AS
  SELECT A.id, pid, tid, start, "end", N.string AS apiName, C.stream, C.size, C.width, C.height, C.kind, C.dst, C.src,
    C.dstDevice, C.srcDevice, C.sync, C.pinned
  FROM rocpd_copyapi C
  JOIN rocpd_api A ON A.id = C.api_ptr_id
  JOIN rocpd_string N ON N.id = A.apiName_id;
CREATE VIEW copyop AS
  SELECT O.id, gpuId, queueId, sequenceId, O.start, O."end", O."end" - O.start AS duration, C.stream, C.size, C.width,
    C.height, C.kind, C.dst, C.src, C.dstDevice, C.srcDevice, C.sync, C.pinned, N.string AS apiName
  FROM rocpd_api_ops L
  JOIN rocpd_op O ON O.id = L.op_id
  JOIN rocpd_copyapi C ON C.api_ptr_id = L.api_id
  JOIN rocpd_api A ON A.id = L.api_id
  JOIN rocpd_string N ON N.id = A.apiName_id;
CREATE VIEW api AS
  SELECT A.id, pid, tid, start, "end", D.string AS domain, C.string AS category, N.string AS apiName, V.string AS args
  FROM rocpd_api A
  JOIN rocpd_string N ON N.id = A.apiName_id
  JOIN rocpd_string D ON D.id = A.domain_id
  JOIN rocpd_string C ON C.id = A.category_id
  JOIN rocpd_ustring V ON V.id = A.args_id;
CREATE VIEW stackframe AS
  SELECT F.id, F.api_ptr_id, F.depth, N.string AS name
  FROM rocpd_stackframe F
  JOIN rocpd_string N ON N.id = F.name_id;
