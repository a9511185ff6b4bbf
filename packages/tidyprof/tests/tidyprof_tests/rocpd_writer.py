"""Writes small rocpd databases (ROCm 7, schema 3) whose content the test knows.

Tables and columns are those of the published schema (rocpd_tables.sql of rocprofiler-sdk); which
rows refer to which is as that project's generateRocpd.cpp writes them. No file of the real tool was
at hand to compare with.
"""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

START_NS = 3_719_662_243_949_943
"""A time of a node that has been up for six weeks."""

GUID = "0000ddb5-8903-7903-b269-cd8d3745bb8a"
CPU_AGENT, GPU_AGENTS = 0, (4, 5)
"""Identifiers of the agents: GPU 0 is agent 4, GPU 1 is agent 5."""

_PLACE = "nid pid"
TABLES = {
    "metadata": "id tag value",
    "string": "id guid string",
    "info_node": (
        "id guid hash machine_id system_name hostname release version hardware_name domain_name"
    ),
    "info_process": "id guid nid ppid pid init fini start end command environment extdata",
    "info_thread": "id guid nid ppid pid tid name start end extdata",
    "info_agent": (
        f"id guid {_PLACE} type absolute_index logical_index type_index uuid name model_name"
        " vendor_name product_name user_name extdata"
    ),
    "info_queue": f"id guid {_PLACE} name extdata",
    "info_stream": f"id guid {_PLACE} name extdata",
    "info_pmc": (
        f"id guid {_PLACE} agent_id target_arch event_code instance_id name symbol description"
        " long_description component units value_type block expression is_constant is_derived"
        " extdata"
    ),
    "info_code_object": (
        f"id guid {_PLACE} agent_id uri load_base load_size load_delta storage_type extdata"
    ),
    "info_kernel_symbol": (
        f"id guid {_PLACE} code_object_id kernel_name display_name kernel_object"
        " kernarg_segment_size kernarg_segment_alignment group_segment_size private_segment_size"
        " sgpr_count arch_vgpr_count accum_vgpr_count extdata"
    ),
    "track": f"id guid {_PLACE} tid name_id extdata",
    "event": (
        "id guid category_id stack_id parent_stack_id correlation_id call_stack line_info extdata"
    ),
    "arg": "id guid event_id position type name value extdata",
    "pmc_event": "id guid event_id pmc_id value extdata",
    "region": f"id guid {_PLACE} tid start end name_id event_id extdata",
    "sample": "id guid track_id timestamp event_id extdata",
    "kernel_dispatch": (
        f"id guid {_PLACE} tid agent_id kernel_id dispatch_id queue_id stream_id start end"
        " private_segment_size group_segment_size workgroup_size_x workgroup_size_y"
        " workgroup_size_z grid_size_x grid_size_y grid_size_z region_name_id event_id extdata"
    ),
    "memory_copy": (
        f"id guid {_PLACE} tid start end name_id dst_agent_id dst_address src_agent_id src_address"
        " size queue_id stream_id region_name_id event_id extdata"
    ),
    "memory_allocate": (
        f"id guid {_PLACE} tid agent_id type level start end address size queue_id stream_id"
        " event_id extdata"
    ),
}
"""Columns of the tables, without prefix and suffix; the first one is the key."""

_TEXT = re.compile(
    r"guid|tag|value|string|machine_id|\w*name|release|version|command|type|level|uri|target_arch"
    r"|symbol|\w*description|component|units|value_type|block|expression|storage_type"
)
_JSON = ("environment", "extdata", "call_stack", "line_info")


class RocpdWriter:
    """A database under construction, of one process; `close` finishes it.

    views  -- also create the views that the tool creates: one without suffix per table, and
              `kernels`.
    guid   -- identifier of the recording; the suffix of the tables is made from it. Empty for
              tables without one.
    """

    START_NS = START_NS

    def __init__(
        self,
        path: Path,
        *,
        guid: str = GUID,
        views: bool = True,
        version: str = "3",
        pid: int = 4242,
        environment: dict[str, str] | None = None,
        page_bytes: int = 4096,
        extra_columns: dict[str, str] | None = None,
    ) -> None:
        self.path = path
        self.guid = guid
        self.suffix = f"_{guid.replace('-', '_')}" if guid else ""
        self.pid = pid
        self._views = views
        self._strings: dict[str, int] = {}
        self._kernels: dict[str, int] = {}
        self._threads: set[int] = set()
        self._correlation = 0
        self.columns = {
            table: f"{columns} {(extra_columns or {}).get(table, '')}".split()
            for table, columns in TABLES.items()
        }
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute(f"PRAGMA page_size = {page_bytes}")
        self.connection.execute("BEGIN")
        for table, columns in self.columns.items():
            others = (_definition(table, column) for column in columns[1:])
            definitions = ", ".join([f'"{columns[0]}" INTEGER PRIMARY KEY', *others])
            self.connection.execute(f'CREATE TABLE "{self.name(table)}" ({definitions})')
        for tag, value in {"schema_version": version, "uuid": self.suffix, "guid": guid}.items():
            self.insert("metadata", tag=tag, value=value)
        self._machine(environment or {})

    def name(self, table: str) -> str:
        """The full name of a table."""
        return f"rocpd_{table}{self.suffix}"

    def insert(self, table: str, **values: Any) -> int:
        """A row with these columns; returns its identifier."""
        defaults = {"guid": self.guid, "nid": 1} | dict.fromkeys(_JSON, "{}")
        row = {
            column: defaults[column] for column in self.columns[table] if column in defaults
        } | values
        names, marks = ", ".join(f'"{name}"' for name in row), ", ".join("?" * len(row))
        cursor = self.connection.execute(
            f'INSERT INTO "{self.name(table)}" ({names}) VALUES ({marks})', tuple(row.values())
        )
        return cursor.lastrowid

    def string(self, text: str) -> int:
        """The identifier of a text."""
        if text not in self._strings:
            self._strings[text] = self.insert("string", string=text)
        return self._strings[text]

    def thread(self, tid: int) -> int:
        """The row of a thread; its identifier is not the number of the operating system."""
        if tid not in self._threads:
            self.insert("info_thread", id=tid + 1_000_000, pid=1, tid=tid)
            self._threads.add(tid)
        return tid + 1_000_000

    def event(self, category: str, correlation: int, extdata: dict[str, Any] | None = None) -> int:
        """A row of the table that all others refer to."""
        return self.insert(
            "event",
            category_id=self.string(category),
            stack_id=correlation,
            parent_stack_id=correlation,
            correlation_id=0,
            extdata=json.dumps(extdata or {}),
        )

    def call(
        self,
        name: str,
        start: int,
        duration: int,
        category: str = "HIP_RUNTIME_API_EXT",
        message: str | None = None,
        tid: int = 4242,
    ) -> int:
        """A call or range, start in ns after START_NS; without duration a sample. Returns its
        correlation id.
        """
        self._correlation += 1
        event = self.event(
            category, self._correlation, {"message": message} if message is not None else None
        )
        place, begin = {"pid": 1, "tid": self.thread(tid)}, START_NS + start
        if duration:
            times = {"start": begin, "end": begin + duration}
            self.insert("region", name_id=self.string(name), event_id=event, **place, **times)
        else:
            track = self.insert("track", name_id=self.string(category), **place)
            self.insert("sample", track_id=track, timestamp=begin, event_id=event)
        return self._correlation

    def kernel_symbol(self, name: str) -> int:
        """A kernel's row; what the tool displays is the demangled name."""
        if name not in self._kernels:
            self._kernels[name] = self.insert(
                "info_kernel_symbol",
                pid=1,
                code_object_id=1,
                kernel_name=f"mangled_{name}",
                display_name=name,
                sgpr_count=112,
                arch_vgpr_count=64,
                accum_vgpr_count=4,
            )
        return self._kernels[name]

    def kernel(
        self,
        name: str,
        start: int,
        duration: int,
        correlation: int | None = None,
        gpu: int = 0,
        stream: int = 0,
        tid: int = 4242,
        **columns: Any,
    ) -> int:
        """A dispatch with, unless it is given, a launch 5 us before it. Returns its event's
        identifier.
        """
        if correlation is None:
            correlation = self.call("hipLaunchKernel", start - 5_000, 3_000, tid=tid)
        event = self.event("KERNEL_DISPATCH", correlation)
        workgroup, grid = {"x": 256, "y": 1, "z": 1}, {"x": 2560, "y": 3, "z": 1}
        self.insert(
            "kernel_dispatch",
            pid=1,
            tid=self.thread(tid),
            agent_id=GPU_AGENTS[gpu],
            kernel_id=self.kernel_symbol(name),
            queue_id=1,
            stream_id=stream,
            start=START_NS + start,
            end=START_NS + start + duration,
            private_segment_size=16,
            group_segment_size=2048,
            **{f"workgroup_size_{axis}": size for axis, size in workgroup.items()},
            **{f"grid_size_{axis}": size for axis, size in grid.items()},
            region_name_id=self.string(""),
            event_id=event,
            **{"dispatch_id": event} | columns,
        )
        return event

    def copy(
        self, direction: str, start: int, duration: int, size: int, source: int, target: int
    ) -> None:
        """A copy between two agents, with its call."""
        correlation = self.call("hipMemcpyAsync", start - 5_000, 3_000)
        self.insert(
            "memory_copy",
            pid=1,
            tid=self.thread(4242),
            start=START_NS + start,
            end=START_NS + start + duration,
            name_id=self.string(f"MEMORY_COPY_{direction}"),
            dst_agent_id=target,
            src_agent_id=source,
            size=size,
            stream_id=0,
            event_id=self.event("MEMORY_COPY", correlation),
        )

    def counter(
        self, name: str, event: int, values: list[float], units: str = "", agent: int | None = 4
    ) -> None:
        """Values of a counter for one event: one row per instance of the hardware block."""
        found = self.connection.execute(
            f'SELECT id FROM "{self.name("info_pmc")}" WHERE name = ?', (name,)
        ).fetchone()
        pmc = (
            found[0]
            if found
            else self.insert("info_pmc", pid=1, agent_id=agent, name=name, symbol=name, units=units)
        )
        for value in values:
            self.insert("pmc_event", event_id=event, pmc_id=pmc, value=value)

    def execute(self, sql: str) -> None:
        """Any other change; `{table}` stands for the full name of a table."""
        self.connection.execute(re.sub(r"\{(\w+)\}", lambda match: f'"{self.name(match[1])}"', sql))

    def close(self) -> Path:
        """Write the file; returns its path."""
        if self._views:
            for table in self.columns:
                if self.suffix:
                    self.connection.execute(
                        f'CREATE VIEW "rocpd_{table}" AS SELECT * FROM "{self.name(table)}"'
                    )
            self.execute(
                "CREATE VIEW kernels AS SELECT K.id, S.display_name AS name, K.start, K.end"
                " FROM {kernel_dispatch} K JOIN {info_kernel_symbol} S ON S.id = K.kernel_id"
            )
        self.connection.execute("COMMIT")
        self.connection.close()
        return self.path

    def _machine(self, environment: dict[str, str]) -> None:
        self.string("")
        self.insert("info_node", id=1, hash=77, machine_id="m", hostname="node17")
        self.insert(
            "info_process",
            id=1,
            ppid=1,
            pid=self.pid,
            command="python3 -m x",
            environment=json.dumps(environment),
        )
        self.insert(
            "info_agent",
            id=CPU_AGENT,
            pid=1,
            type="CPU",
            absolute_index=0,
            type_index=0,
            name="EPYC",
        )
        for index, agent in enumerate(GPU_AGENTS):
            numbers = {"absolute_index": agent, "logical_index": agent - 3, "type_index": index}
            names = {"name": "gfx942", "product_name": "AMD Instinct MI300X"}
            self.insert("info_agent", id=agent, pid=1, type="GPU", **numbers, **names)


def _definition(table: str, column: str) -> str:
    if column in _JSON:
        return f'"{column}" JSONB DEFAULT "{{}}"'
    if (table, column) == ("pmc_event", "value"):
        return '"value" REAL DEFAULT 0.0'
    return f'"{column}" {"TEXT" if _TEXT.fullmatch(column) else "BIGINT"}'


def small_database(path: Path, **options: Any) -> Path:
    """Two kernels, two copies, an allocation, their calls, a marked range and a mark, and a
    counter.
    """
    writer = RocpdWriter(path, **options)
    writer.call(
        "roctxThreadRangeA", 100, 90_000, category="MARKER_CORE_RANGE_API", message="step 1"
    )
    writer.call("roctxMarkA", 200, 0, category="MARKER_CORE_RANGE_API", message="begin")
    writer.copy("HOST_TO_DEVICE", 10_000, 4_000, 1_000_000, CPU_AGENT, GPU_AGENTS[0])
    gemm = writer.kernel("gemm<float>", 20_000, 30_000)
    writer.kernel("relu", 60_000, 5_000, gpu=1, stream=3, tid=4300)
    writer.copy("DEVICE_TO_HOST", 70_000, 2_000, 512, GPU_AGENTS[1], CPU_AGENT)
    writer.insert(
        "memory_allocate",
        pid=1,
        tid=writer.thread(4242),
        agent_id=GPU_AGENTS[0],
        type="ALLOC",
        level="REAL",
        start=START_NS + 300,
        end=START_NS + 400,
        size=65_536,
        event_id=writer.event("MEMORY_ALLOCATION", 0),
    )
    writer.counter("SQ_WAVES", gemm, [100.0, 28.0])
    return writer.close()
