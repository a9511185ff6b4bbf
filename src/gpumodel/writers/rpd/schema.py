"""Tables and views of an rpd file in schema 2 and 3.

Column names: rocpd_python/rocpd/schema_data of https://github.com/ROCm/rocmProfileData, and files that it wrote.
"""

from __future__ import annotations

from collections.abc import Iterator

VERSIONS = (2, 3)

_LAUNCH = "api_ptr_id stream gridX gridY gridZ workgroupX workgroupY workgroupZ groupSegmentSize privateSegmentSize"
_COMMON = {
    "rocpd_string": "id string",
    "rocpd_copyapi": "api_ptr_id stream size width height kind dst src dstDevice srcDevice sync pinned",
    "rocpd_api_ops": "id api_id op_id",
    "rocpd_metadata": "id tag value",
    "rocpd_monitor": "id deviceType deviceId monitorType start end value",
}
TABLES = {
    2: _COMMON
    | {
        "rocpd_kernelcodeobject": "id vgpr sgpr fbar",
        "rocpd_barrierop": "op_ptr_id signalCount aquireFence releaseFence",
        "rocpd_op_inputSignals": "id from_op_id to_op_id",
        "rocpd_op": "id gpuId queueId sequenceId completionSignal start end description_id opType_id",
        "rocpd_api": "id pid tid start end apiName_id args_id",
        "rocpd_kernelapi": f"{_LAUNCH} kernelArgAddress aquireFence releaseFence codeObject_id kernelName_id",
    },
    3: _COMMON
    | {
        "rocpd_ustring": "id string",
        "rocpd_op": "id gpuId queueId sequenceId start end description_id opType_id",
        "rocpd_api": "id pid tid start end apiName_id category_id domain_id args_id",
        "rocpd_kernelapi": f"{_LAUNCH} kernelName_id",
        "rocpd_counter": "id value op_id name_id",
        "rocpd_stackframe": "id api_ptr_id depth name_id",
    },
}
"""Columns of the tables of each version; the first is the key."""

_TEXTS = {
    "string": 4096, "tag": 4096, "stream": 18, "dst": 18, "src": 18, "completionSignal": 18, "kernelArgAddress": 18,
    "aquireFence": 8, "releaseFence": 8, "deviceType": 16, "monitorType": 16,
}  # fmt: skip
_LONG_TEXT = {"rocpd_metadata": 4096, "rocpd_monitor": 255}


def definitions(version: int) -> Iterator[str]:
    """The statements that make an empty file of this version."""
    for table, columns in TABLES[version].items():
        key, *others = columns.split()
        counted = " AUTOINCREMENT" if key == "id" else ""
        parts = [f'"{key}" integer NOT NULL PRIMARY KEY{counted}']
        parts += [f'"{column}" {_type(table, column)} NOT NULL' for column in others]
        yield f'CREATE TABLE "{table}" ({", ".join(parts)})'
    for name, query in (_common_views(version) | _VIEWS[version]).items():
        yield f"CREATE VIEW {name} AS {query}"


def _type(table: str, column: str) -> str:
    if column == "value":
        return f"varchar({_LONG_TEXT[table]})" if table in _LONG_TEXT else "real"
    if column in _TEXTS:
        return f"varchar({_TEXTS[column]})"
    return "bool" if column in ("sync", "pinned") else "integer"


def _common_views(version: int) -> dict[str, str]:
    copied = "C.stream, C.size, C.width, C.height, C.kind, C.dst, C.src, C.dstDevice, C.srcDevice, C.sync, C.pinned"
    return {
        "op": """SELECT O.id, gpuId, queueId, sequenceId, start, "end", D.string AS description, T.string AS opType
 FROM rocpd_op O JOIN rocpd_string D ON D.id = O.description_id JOIN rocpd_string T ON T.id = O.opType_id""",
        "busy": """SELECT G.gpuId, GpuTime, WallTime, GpuTime * 1.0 / WallTime AS Busy
 FROM (SELECT gpuId, SUM("end" - start) AS GpuTime FROM rocpd_op GROUP BY gpuId) G
 JOIN (SELECT MAX("end") - MIN(start) AS WallTime FROM rocpd_op)""",
        "top": _top(version),
        "kernel": """SELECT O.id, gpuId, queueId, sequenceId, start, "end", "end" - start AS duration, stream, gridX,
 gridY, gridZ AS gridz, workgroupX, workgroupY, workgroupZ, groupSegmentSize, privateSegmentSize, N.string AS kernelName
 FROM rocpd_api_ops L JOIN rocpd_op O ON O.id = L.op_id JOIN rocpd_kernelapi K ON K.api_ptr_id = L.api_id
 JOIN rocpd_string N ON N.id = K.kernelName_id""",
        "copy": f"""SELECT A.id, pid, tid, start, "end", N.string AS apiName, {copied}
 FROM rocpd_copyapi C JOIN rocpd_api A ON A.id = C.api_ptr_id JOIN rocpd_string N ON N.id = A.apiName_id""",
        "copyop": f"""SELECT O.id, gpuId, queueId, sequenceId, O.start, O."end", O."end" - O.start AS duration,
 {copied}, N.string AS apiName FROM rocpd_api_ops L JOIN rocpd_op O ON O.id = L.op_id
 JOIN rocpd_copyapi C ON C.api_ptr_id = L.api_id JOIN rocpd_api A ON A.id = L.api_id
 JOIN rocpd_string N ON N.id = A.apiName_id""",
    }


def _top(version: int) -> str:
    """Operations by name, nameless ones by type. Equal rows count once: UNION, as in the tool's own view."""
    total, mean = ("TotalDuration_us", "Ave_us") if version == 3 else ("TotalDuration", "Ave")
    return f"""SELECT N.string AS Name, COUNT(*) AS TotalCalls, SUM(A."end" - A.start) / 1000 AS {total},
 (SUM(A."end" - A.start) / COUNT(*)) / 1000 AS {mean},
 SUM(A."end" - A.start) * 100.0 / (SELECT SUM("end" - start) FROM rocpd_op) AS Percentage
 FROM (SELECT opType_id AS name_id, start, "end" FROM rocpd_op
 WHERE description_id IN (SELECT id FROM rocpd_string WHERE string = '')
 UNION SELECT description_id, start, "end" FROM rocpd_op
 WHERE description_id NOT IN (SELECT id FROM rocpd_string WHERE string = '')) A
 JOIN rocpd_string N ON N.id = A.name_id GROUP BY Name ORDER BY {total} DESC"""


_VIEWS = {
    2: {
        "api": """SELECT A.id, pid, tid, start, "end", N.string AS apiName, V.string AS args FROM rocpd_api A
 JOIN rocpd_string N ON N.id = A.apiName_id JOIN rocpd_string V ON V.id = A.args_id""",
        "ktop": """SELECT N.string AS Name, COUNT(*) AS TotalCalls, SUM(A."end" - A.start) / 1000 AS TotalDuration,
 (SUM(A."end" - A.start) / COUNT(*)) / 1000 AS Ave, SUM(A."end" - A.start) * 100.0
 / (SELECT SUM(B."end" - B.start) FROM rocpd_api B JOIN rocpd_kernelapi L ON L.api_ptr_id = B.id) AS Percentage
 FROM rocpd_api A JOIN rocpd_kernelapi K ON K.api_ptr_id = A.id JOIN rocpd_string N ON N.id = K.kernelName_id
 GROUP BY Name ORDER BY TotalDuration DESC""",
    },
    3: {
        "api": """SELECT A.id, pid, tid, start, "end", D.string AS domain, C.string AS category, N.string AS apiName,
 V.string AS args FROM rocpd_api A JOIN rocpd_string N ON N.id = A.apiName_id
 JOIN rocpd_string D ON D.id = A.domain_id JOIN rocpd_string C ON C.id = A.category_id
 JOIN rocpd_ustring V ON V.id = A.args_id""",
        "stackframe": """SELECT F.id, F.api_ptr_id, F.depth, N.string AS name FROM rocpd_stackframe F
 JOIN rocpd_string N ON N.id = F.name_id""",
    },
}
