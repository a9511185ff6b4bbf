"""Writes small rpd files, in schema 2 or 3, whose content the test knows."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

START_NS = 8_306_017_000_000_000
"""A time of a node that has been up for three months."""

_LAUNCH = "gridX gridY gridZ workgroupX workgroupY workgroupZ groupSegmentSize privateSegmentSize"
_COPY = "api_ptr_id stream size width height kind dst src dstDevice srcDevice sync pinned"
_COMMON = {
    "rocpd_metadata": "id tag value",
    "rocpd_string": "id string",
    "rocpd_api_ops": "id api_id op_id",
    "rocpd_copyapi": _COPY,
    "rocpd_monitor": "id deviceType deviceId monitorType start end value",
}
TABLES = {
    2: (
        _COMMON
        | {
            "rocpd_api": "id pid tid start end apiName_id args_id",
            "rocpd_op": (
                "id gpuId queueId sequenceId completionSignal start end description_id opType_id"
            ),
            "rocpd_kernelapi": (
                f"api_ptr_id stream {_LAUNCH} kernelArgAddress aquireFence releaseFence"
                " codeObject_id kernelName_id"
            ),
            "rocpd_kernelcodeobject": "id vgpr sgpr fbar",
            "rocpd_barrierop": "op_ptr_id signalCount aquireFence releaseFence",
            "rocpd_op_inputSignals": "id from_op_id to_op_id",
        }
    ),
    3: (
        _COMMON
        | {
            "rocpd_ustring": "id string",
            "rocpd_api": "id pid tid start end apiName_id category_id domain_id args_id",
            "rocpd_op": "id gpuId queueId sequenceId start end description_id opType_id",
            "rocpd_kernelapi": f"api_ptr_id stream {_LAUNCH} kernelName_id",
            "rocpd_counter": "id op_id name_id",
            "rocpd_stackframe": "id api_ptr_id depth name_id",
        }
    ),
}
"""Columns of the tables of each schema version, the first one being the key."""

_INTEGER_COLUMNS = re.compile(
    r"id|\w+_id|\w*[iI]d|start|end|size|width|height|kind|\w+Device|\w+Size|grid.|workgroup.|depth"
)
"""All other columns hold text."""


class RpdWriter:
    """An rpd file under construction; `close` finishes it. Identifiers start at `first_id`, as
    sessions shift them.
    """

    START_NS = START_NS

    def __init__(
        self, path: Path, version: int = 2, first_id: int = 1, page_bytes: int = 4096
    ) -> None:
        self.path = path
        self.version = version
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute(f"PRAGMA page_size = {page_bytes}")
        self.connection.execute("BEGIN")
        for table, columns in TABLES[version].items():
            self.connection.execute(
                f'CREATE TABLE "{table}" ({", ".join(_columns(columns.split()))})'
            )
        if version == 3:
            self.connection.execute('ALTER TABLE "rocpd_counter" ADD COLUMN "value" real')
        self._first_id = first_id
        self._strings: dict[tuple[str, str], int] = {}
        self.string("")
        for tag, value in {"schema_version": str(version), "session_count": "1"}.items():
            self.insert("rocpd_metadata", tag=tag, value=value)
        if version == 3:
            self.insert("rocpd_metadata", tag="gpu_stride", value="1000")

    def insert(self, table: str, **values: Any) -> int:
        """A row with these columns; the identifier counts up unless it is given. Returns the
        identifier.
        """
        key, *others = TABLES[self.version].get(table, " ".join(values)).split()
        if key == "id" and key not in values:
            last = self.connection.execute(f'SELECT max(id) FROM "{table}"').fetchone()[0]
            values["id"] = self._first_id if last is None else last + 1
        row = {column: values.get(column, "") for column in (key, *others)} | values
        names = ", ".join(f'"{name}"' for name in row)
        marks = ", ".join("?" * len(row))
        self.connection.execute(
            f'INSERT INTO "{table}" ({names}) VALUES ({marks})', tuple(row.values())
        )
        return row[key]

    def string(self, text: str, table: str = "rocpd_string") -> int:
        """The identifier of a text."""
        if (table, text) not in self._strings:
            self._strings[table, text] = self.insert(table, string=text)
        return self._strings[table, text]

    def call(
        self,
        name: str,
        start: int,
        duration: int,
        args: str = "",
        domain: str = "hip",
        pid: int = 1560,
        tid: int = 1560,
    ) -> int:
        """A call on the host; start in ns after START_NS. Returns its identifier."""
        extra = {}
        if self.version == 3:
            extra = {"domain_id": self.string(domain), "category_id": self.string("")}
        begin = START_NS + start
        return self.insert(
            "rocpd_api",
            pid=pid,
            tid=tid,
            start=begin,
            end=begin + duration,
            apiName_id=self.string(name),
            args_id=self.string(args, "rocpd_ustring" if self.version == 3 else "rocpd_string"),
            **extra,
        )

    def operation(
        self,
        category: str,
        name: str,
        start: int,
        duration: int,
        call: int | None = None,
        gpu: int = 2,
        queue: int = 0,
    ) -> int:
        """Work on a GPU, launched by `call`. Returns its identifier."""
        begin = START_NS + start
        operation = self.insert(
            "rocpd_op",
            gpuId=gpu,
            queueId=queue,
            sequenceId=0,
            start=begin,
            end=begin + duration,
            description_id=self.string(name),
            opType_id=self.string(category),
        )
        if call is not None:
            self.insert("rocpd_api_ops", api_id=call, op_id=operation)
        return operation

    def kernel(
        self,
        name: str,
        start: int,
        duration: int,
        launch: int = 5000,
        gpu: int = 2,
        stream: str = "0x0",
        tid: int = 1560,
    ) -> int:
        """A kernel with its launch `launch` ns before it. Returns the launching call's
        identifier.
        """
        call = self.call("hipLaunchKernel", start - launch, 3000, tid=tid)
        self.launch(call, name, stream)
        self.operation("KernelExecution", name, start, duration, call, gpu)
        return call

    def launch(
        self, call: int, name: str, stream: str = "0x0", grid: tuple[int, int, int] = (64, 2, 1)
    ) -> None:
        """What a launching call states about its kernel."""
        sizes = dict(zip(_LAUNCH.split(), (*grid, 256, 1, 1, 0, 0), strict=True))
        self.insert(
            "rocpd_kernelapi",
            api_ptr_id=call,
            stream=stream,
            kernelName_id=self.string(name),
            **sizes,
        )

    def copy(
        self, category: str, start: int, duration: int, size: int | str = 4096, gpu: int = 2
    ) -> int:
        """A copy with its call. Returns the call's identifier."""
        call = self.call("hipMemcpyAsync", start - 5000, 3000)
        self.insert("rocpd_copyapi", api_ptr_id=call, stream="0x7f00", size=size, kind=1)
        self.operation(category, "", start, duration, call, gpu)
        return call

    def monitor(
        self, value: str, start: int, end: int, device: int = 0, name: str = "sclk"
    ) -> None:
        """A value that a monitor had from `start` to `end`."""
        self.insert(
            "rocpd_monitor",
            deviceType="gpu",
            deviceId=device,
            monitorType=name,
            start=START_NS + start,
            end=START_NS + end,
            value=value,
        )

    def execute(self, sql: str) -> None:
        """Any other change."""
        self.connection.execute(sql)

    def close(self) -> Path:
        """Write the file; returns its path."""
        self.connection.execute("COMMIT")
        self.connection.close()
        return self.path


def _columns(names: list[str]) -> list[str]:
    key, *others = names
    rest = (
        f'"{name}" {"integer" if _INTEGER_COLUMNS.fullmatch(name) else "varchar(4096)"} NOT NULL'
        for name in others
    )
    return [f'"{key}" integer NOT NULL PRIMARY KEY', *rest]


def small_file(path: Path, version: int = 2, **options: Any) -> Path:
    """Two kernels, a copy and a fill on one GPU, their calls, a marked range and two samples of the
    clock.
    """
    writer = RpdWriter(path, version, **options)
    writer.call("UserMarker", 500, 90_000, args="train step", domain="roctx")
    writer.copy("CopyHostToDevice", 10_000, 8_000, size=1_000_000)
    writer.kernel("gemm<float>", 20_000, 30_000)
    writer.kernel("relu", 50_000, 5_000, stream="0x7f9f3915ad70")
    call = writer.call("hipMemsetAsync", 60_000, 1_000)
    writer.operation("FillBuffer", "", 70_000, 2_000, call)
    writer.monitor("800", 0, 20_000)
    writer.monitor("1700", 20_000, 80_000)
    return writer.close()
