"""The SQLite file of rocmProfileData's runTracer.sh, in schema 3 (see rpd_schema.sql in
gpumodel/data).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import (
    COPY_KINDS,
    dispatches_and_copies,
    grid_of_call,
    work_with_launches,
)
from gpumodel.writers.common.files import MARK, NewDatabase, has_ranges, marker_text, ranks_of
from tidyprof.errors import UserError

TRACERS = ("roctracer", "rocprofiler-sdk")
"""What rpd can be built on: roctracer for ROCm 6, else ROCprofiler-SDK (rpd_tracer/Makefile)."""

LARGEST_SIZE = 2**31 - 1
"""Largest size of a copy, in bytes, that the tracer states; it leaves a larger one blank."""

_GPU_STRIDE = {"gpu_stride": "1000", "pid_stride": "10000000"}
"""Rows that rocpd_metadata has in every file of the tool."""


def write(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    name: str = "trace.rpd",
    tracer: str = "roctracer",
) -> list[Path]:
    """Write one file with all ranks, as `runTracer.sh -o NAME srun ...` does, or with one rank, as
    `srun ... runTracer.sh` does.

    rank   -- write only this rank.
    name   -- of the file; one that is there is replaced, as by the tool.
    tracer -- what the tool is built on, one of TRACERS.

    As with the tool, copies have no name but their type, and the trainer's ROCTX ranges (--roctx)
    are calls named UserMarker. Devices count from 0. With roctracer, queues count from 0, the size
    of a copy is blank from 2 GiB on, and a launch states the grid that its call received. With
    ROCprofiler-SDK, all copies state device 0; copies and fills by kernels of the runtime are
    kernels, and a grid counts work-items (rpd_tracer/RoctracerDataSource.cpp,
    RocprofDataSource.cpp). The marker of the model is a row of rocpd_metadata.

    Returns the file; raises UserError for an unknown rank or tracer.
    """
    if tracer not in TRACERS:
        raise UserError(f"rpd is not built on {tracer!r}; there are {' and '.join(TRACERS)}")
    chosen = ranks_of(run, rank)
    path = folder / name
    filler = _Filler if tracer == "roctracer" else _SdkFiller
    with NewDatabase(path, schema_text()) as database:
        filler(run, database).fill(chosen)
    return [path]


def schema_text() -> str:
    """The statements that make an empty file."""
    return (files("gpumodel") / "data" / "rpd_schema.sql").read_text()


class _Filler:
    """Fills one file. Identifiers count on over all ranks, which share their strings."""

    def __init__(self, run: Run, database: NewDatabase) -> None:
        self._run = run
        self._database = database
        self._strings: dict[str, dict[str, int]] = {"rocpd_string": {}, "rocpd_ustring": {}}
        self._rows: Counter[str] = Counter()

    def fill(self, ranks: Sequence[RankRun]) -> None:
        """Fill all tables, and last the strings, which all others refer to."""
        metadata = {"schema_version": "3", "session_count": str(len(ranks)), **_GPU_STRIDE}
        metadata[MARK] = marker_text(self._run)
        self._insert(
            "rocpd_metadata", len(metadata), tag=list(metadata), value=list(metadata.values())
        )
        self._string("")
        for rank in ranks:
            work = self._work(rank)
            api_ids = self._calls(rank)
            work["api_id"] = work["correlation_id"].map(api_ids).astype("Int64")
            self._operations(rank, work)
            self._launches(
                work[work["api_id"].notna() & work["kind"].isin(["kernel", "collective"])]
            )
            self._copies(work[work["api_id"].notna() & (work["kind"] == "copy")])
            self._ranges(rank)
            self._clocks(rank)
        for table, strings in self._strings.items():
            self._insert(table, len(strings), id=list(strings.values()), string=list(strings))

    def _insert(self, table: str, rows: int, **columns: Any) -> None:
        """Insert rows into a table; columns that are not given are blank, as the tracer leaves
        them.
        """
        blank = {column: "" for column in self._database.columns(table) if column not in columns}
        blank.pop("id", None)
        self._database.insert(table, rows, {**columns, **blank})

    def _new_ids(self, table: str, rows: int) -> list[int]:
        first = self._rows[table] + 1
        self._rows[table] += rows
        return list(range(first, first + rows))

    def _string(self, text: str, table: str = "rocpd_string") -> int:
        known = self._strings[table]
        return known.setdefault(text, len(known) + 1)

    def _string_ids(self, texts: pd.Series, table: str = "rocpd_string") -> pd.Series:
        return texts.map({text: self._string(text, table) for text in texts.unique()})

    def _api(
        self,
        rank: RankRun,
        table: pd.DataFrame,
        names: pd.Series,
        arguments: pd.Series,
        domain: str,
    ) -> list[int]:
        ids = self._new_ids("rocpd_api", len(table))
        self._insert(
            "rocpd_api",
            len(table),
            id=ids,
            pid=rank.process_id,
            tid=table["thread_id"],
            start=table["start_ns"],
            end=table["start_ns"] + table["duration_ns"],
            apiName_id=self._string_ids(names),
            args_id=self._string_ids(arguments, "rocpd_ustring"),
            domain_id=self._string(domain),
            category_id=self._string(""),
        )
        return ids

    def _calls(self, rank: RankRun) -> pd.Series:
        """Add the HIP calls; returns their identifiers by correlation id."""
        calls = rank.calls
        ids = self._api(rank, calls, calls["name"], pd.Series("", index=calls.index), "hip")
        return pd.Series(ids, calls["correlation_id"].to_numpy("int64"), dtype="Int64")

    def _work(self, rank: RankRun) -> pd.DataFrame:
        return work_with_launches(rank)

    def _types(self, work: pd.DataFrame) -> pd.Series:
        types = ("Copy" + work["copy_direction"]).where(work["kind"] == "copy", "KernelExecution")
        return types.where(work["kind"] != "fill", "FillBuffer")

    def _places(self, rank: RankRun, work: pd.DataFrame) -> dict[str, Any]:
        return {"gpuId": rank.device, "queueId": work["queue"] - 1}

    def _operations(self, rank: RankRun, work: pd.DataFrame) -> None:
        ids = self._new_ids("rocpd_op", len(work))
        names = work["name"].where(work["kind"].isin(["kernel", "collective"]), "")
        self._insert(
            "rocpd_op",
            len(work),
            id=ids,
            sequenceId=0,
            **self._places(rank, work),
            start=work["start_ns"],
            end=work["start_ns"] + work["duration_ns"],
            description_id=self._string_ids(names),
            opType_id=self._string_ids(self._types(work)),
        )
        linked = work.assign(op_id=ids)[work["api_id"].notna()]
        self._insert("rocpd_api_ops", len(linked), api_id=linked["api_id"], op_id=linked["op_id"])

    def _launches(self, work: pd.DataFrame) -> None:
        grid = self._grid(work)
        sizes = {f"grid{axis.upper()}": grid[axis] for axis in "xyz"}
        sizes |= {f"workgroup{axis.upper()}": work[f"workgroup_{axis}"] for axis in "xyz"}
        self._insert(
            "rocpd_kernelapi",
            len(work),
            api_ptr_id=work["api_id"],
            stream=_addresses(work["stream"]),
            **sizes,
            groupSegmentSize=work["lds_bytes"],
            privateSegmentSize=work["scratch_bytes"],
            kernelName_id=self._string_ids(work["name"]),
        )

    def _grid(self, work: pd.DataFrame) -> pd.DataFrame:
        return grid_of_call(work)

    def _copies(self, work: pd.DataFrame) -> None:
        size = (
            work["copy_bytes"]
            .astype(object)
            .where(work["copy_bytes"].fillna(0) <= LARGEST_SIZE, "")
        )
        self._insert(
            "rocpd_copyapi",
            len(work),
            api_ptr_id=work["api_id"],
            stream=_addresses(work["stream"]),
            size=size,
            kind=work["copy_direction"].map(COPY_KINDS),
            dstDevice=0,
            srcDevice=0,
            sync=0,
            pinned=0,
        )

    def _ranges(self, rank: RankRun) -> None:
        ranges = rank.annotations[~rank.annotations["name"].str.startswith("ProfilerStep#")]
        if has_ranges(self._run):
            self._api(
                rank, ranges, pd.Series("UserMarker", index=ranges.index), ranges["name"], "roctx"
            )

    def _clocks(self, rank: RankRun) -> None:
        """Add the GPU's clock; each value holds until the next one."""
        clocks = rank.counters[rank.counters["name"] == "gfx_clock"]
        end = clocks["time_ns"].shift(-1, fill_value=self._run.end_ns)
        self._insert(
            "rocpd_monitor",
            len(clocks),
            deviceType="gpu",
            deviceId=rank.device,
            monitorType="sclk",
            start=clocks["time_ns"],
            end=end,
            value=[f"{value:.0f}" for value in clocks["value"]],
        )


class _SdkFiller(_Filler):
    """Fills the same file as a tracer that is built on ROCprofiler-SDK."""

    def _work(self, rank: RankRun) -> pd.DataFrame:
        dispatches, copies = dispatches_and_copies(work_with_launches(rank))
        dispatches["kind"] = dispatches["kind"].where(dispatches["kind"] == "collective", "kernel")
        return pd.concat([dispatches, copies]).sort_values(
            "start_ns", kind="stable", ignore_index=True
        )

    def _types(self, work: pd.DataFrame) -> pd.Series:
        return work["name"].where(work["kind"] == "copy", "KernelExecution")

    def _places(self, rank: RankRun, work: pd.DataFrame) -> dict[str, Any]:
        is_copy = work["kind"] == "copy"
        return {"gpuId": (~is_copy) * rank.device, "queueId": work["queue"].where(~is_copy, 0)}

    def _grid(self, work: pd.DataFrame) -> pd.DataFrame:
        return work[["grid_x", "grid_y", "grid_z"]].set_axis(list("xyz"), axis=1)

    def _copies(self, work: pd.DataFrame) -> None:
        self._insert(
            "rocpd_copyapi",
            len(work),
            api_ptr_id=work["api_id"],
            stream=_addresses(work["stream"]),
            size=work["copy_bytes"].astype("int64") % 2**32,
            kind=self._string_ids(work["name"]),
            sync=1,
            dstDevice=_node_of(work, "ToDevice"),
            srcDevice=_node_of(work, "DeviceTo"),
        )


def _node_of(work: pd.DataFrame, side: str) -> pd.Series:
    """The agent at one side of a copy: 0 for the host, 1 for the GPU."""
    return work["copy_direction"].str.contains(side).astype("int64")


def _addresses(streams: pd.Series) -> list[str]:
    return [f"0x{stream:x}" for stream in streams.tolist()]
