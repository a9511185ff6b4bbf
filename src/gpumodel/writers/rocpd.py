"""The SQLite database that rocprofv3 writes by default since ROCm 7.0 (see
gpumodel/data/rocpd_schema.sql).

Rows and their numbers are as in github.com/ROCm/rocm-systems, projects/rocprofiler-sdk,
source/lib/output/generateRocpd.cpp. Only mangled names are missing, since the model has none: the
symbol of a C++ kernel is its displayed name with a symbol's ending.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path

import pandas as pd

from gpumodel.run import RankRun, Run
from gpumodel.writers.common.device_work import agents_of, first_cpu, properties, truncated_name
from gpumodel.writers.common.files import (
    DEFAULT_PREFIX,
    MARK,
    NewDatabase,
    identity,
    marker_text,
    output_path,
    ranks_of,
)
from gpumodel.writers.rocprofv3.records import DOMAINS, Records, check_domains

SCHEMA_VERSION = "3"

_CODE_OBJECT = 1

_LARGEST_NODE = 2**32 - 1
"""The number of a node is the machine's hash modulo this."""


def write(
    run: Run,
    folder: Path,
    *,
    rank: int | None = None,
    prefix: str = DEFAULT_PREFIX,
    traces: Sequence[str] = DOMAINS,
) -> list[Path]:
    """Write one `<prefix>_results.db` per process; `rank`, `prefix` and `traces` are as in the CSV
    writer.

    The stored environment has the rank of a parallel run (RANK, LOCAL_RANK, WORLD_SIZE) and nothing
    else. The marker of the model is a row of rocpd_metadata. Returns the files; raises UserError
    for an unknown rank or domain.
    """
    check_domains(traces)
    written = []
    for one in ranks_of(run, rank):
        path = output_path(run, one, folder, prefix, "results.db")
        guid = _guid(run, one)
        schema = (files("gpumodel") / "data" / "rocpd_schema.sql").read_text()
        schema = schema.replace("{{uuid}}", _suffix(guid)).replace("{{guid}}", guid)
        with NewDatabase(path, schema) as database:
            _Filler(run, one, guid, database).fill(traces)
        written.append(path)
    return written


def _guid(run: Run, rank: RankRun) -> str:
    """An identifier in the form of a UUID of version 7, the same for the same run."""
    digits = identity(run, rank)
    return f"{digits[:8]}-{digits[8:12]}-7{digits[13:16]}-b{digits[17:20]}-{digits[20:32]}"


def _suffix(guid: str) -> str:
    """The ending of all table names."""
    return "_" + guid.replace("-", "_")


class _Filler:
    """Fills the database of one process.

    Strings and events count from 1. Processes, threads, agents, dispatches and calls have the
    numbers that the system and the tool give them.
    """

    def __init__(self, run: Run, rank: RankRun, guid: str, database: NewDatabase) -> None:
        self._run = run
        self._rank = rank
        self._records = Records(run, rank)
        self._database = database
        self._guid, self._suffix = guid, _suffix(guid)
        self._strings: dict[str, int] = {}
        self._events = 0
        self._machine_id = blake2b(run.hostname.encode(), digest_size=16).hexdigest()
        self._node_hash = int(self._machine_id[:15], 16)
        self._place = {"nid": self._node_hash % _LARGEST_NODE, "pid": rank.process_id}

    def fill(self, traces: Sequence[str]) -> None:
        """Fill all tables, and last the strings, which all others refer to."""
        metadata = {"schema_version": SCHEMA_VERSION, "uuid": self._suffix, "guid": self._guid}
        metadata[MARK] = marker_text(self._run)
        self._insert("metadata", len(metadata), tag=list(metadata), value=list(metadata.values()))
        self._machine()
        records = self._records
        if "kernel" in traces:
            self._kernels(records.dispatches)
        if "memory_copy" in traces:
            self._copies(records.copies)
        for domain, table, category in (
            ("hip", records.calls, "HIP_RUNTIME_API_EXT"),
            ("rccl", records.rccl_calls, "RCCL_API"),
            ("marker", records.markers, "MARKER_CORE_RANGE_API"),
        ):
            if domain in traces:
                self._regions(table, category)
        self._insert(
            "string",
            len(self._strings),
            id=list(self._strings.values()),
            string=list(self._strings),
        )

    def _insert(self, table: str, rows: int, **columns: object) -> None:
        self._database.insert(f"rocpd_{table}{self._suffix}", rows, columns)

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)

    def _string_ids(self, texts: pd.Series) -> pd.Series:
        return texts.map({text: self._string(text) for text in texts.unique()})

    def _machine(self) -> None:
        """Describe node, process, threads, agents, streams, queues, and the one code object of all
        kernels.
        """
        run, rank, place = self._run, self._rank, self._place
        several = len(run.ranks) > 1
        environment = (
            {"RANK": rank.rank, "LOCAL_RANK": rank.device, "WORLD_SIZE": len(run.ranks)}
            if several
            else {}
        )
        self._insert(
            "info_node",
            1,
            id=place["nid"],
            hash=self._node_hash,
            machine_id=self._machine_id,
            system_name="Linux",
            hostname=run.hostname,
        )
        self._insert(
            "info_process",
            1,
            id=rank.process_id,
            ppid=1,
            **place,
            init=run.start_ns,
            fini=run.end_ns,
            start=run.start_ns,
            end=run.end_ns,
            command=" ".join(run.command),
            environment=json.dumps({name: str(value) for name, value in environment.items()}),
        )
        tables = (rank.calls, rank.annotations, self._records.dispatches, self._records.copies)
        threads = {rank.main_thread_id, rank.autograd_thread_id}.union(
            *(table["thread_id"] for table in tables)
        )
        numbers = sorted(threads)
        self._insert("info_thread", len(numbers), id=numbers, tid=numbers, ppid=1, **place)
        self._agents()
        for kind, column, word in (
            ("info_queue", "queue", "Queue"),
            ("info_stream", "stream", "Stream"),
        ):
            used = _with_default(rank.device_work[column])
            names = [f"Default {word}", *(f"{word} {place}" for place in range(len(used) - 1))]
            self._insert(kind, len(used), id=used, name=names, **place)
        self._insert("info_code_object", 1, id=_CODE_OBJECT, agent_id=rank.agent, **place)
        self._symbols()

    def _agents(self) -> None:
        agents = agents_of(self._run)
        known = [properties(agent, self._run) for agent in agents]
        numbers = [agent.number for agent in agents]
        self._insert(
            "info_agent",
            len(agents),
            id=numbers,
            type=["GPU" if agent.is_gpu else "CPU" for agent in agents],
            absolute_index=numbers,
            logical_index=numbers,
            type_index=[agent.index for agent in agents],
            extdata=[json.dumps(values) for values in known],
            **{
                name: [values[name] for values in known]
                for name in ("name", "model_name", "vendor_name")
            },
            **{
                name: [values["product_name"] for values in known]
                for name in ("product_name", "user_name")
            },
            **self._place,
        )

    def _symbols(self) -> None:
        symbols = self._records.symbols
        extra = [
            json.dumps(
                {
                    "kernel_id": number,
                    "formatted_kernel_name": name,
                    "demangled_kernel_name": f"{name}.kd",
                    "truncated_kernel_name": truncated_name(name),
                },
                ensure_ascii=False,
            )
            for number, name in symbols[["kernel_id", "name"]].itertuples(index=False)
        ]
        self._insert(
            "info_kernel_symbol",
            len(symbols),
            id=symbols["kernel_id"],
            code_object_id=_CODE_OBJECT,
            kernel_name=symbols["name"] + ".kd",
            display_name=symbols["name"],
            group_segment_size=symbols["lds_bytes"],
            private_segment_size=symbols["scratch_bytes"],
            sgpr_count=symbols["scalar_registers"],
            arch_vgpr_count=symbols["vector_registers"],
            accum_vgpr_count=symbols["accumulation_registers"],
            extdata=extra,
            **self._place,
        )

    def _new_events(
        self,
        category: str,
        correlation: pd.Series,
        parent: pd.Series | int,
        extra: list[str] | str = "{}",
    ) -> list[int]:
        """Add a row of rocpd_event for each correlation id; returns the rows' identifiers. Device
        work has the correlation id of its call, and also names it as its parent.
        """
        numbers = list(range(self._events + 1, self._events + 1 + len(correlation)))
        self._events += len(numbers)
        self._insert(
            "event",
            len(numbers),
            id=numbers,
            category_id=self._string(category),
            stack_id=correlation,
            parent_stack_id=parent,
            correlation_id=0,
            extdata=extra,
        )
        return numbers

    def _kernels(self, table: pd.DataFrame) -> None:
        sizes = {
            f"{what}_size_{axis}": table[f"{what}_{axis}"]
            for what in ("workgroup", "grid")
            for axis in "xyz"
        }
        self._insert(
            "kernel_dispatch",
            len(table),
            id=table["dispatch_id"],
            **self._place,
            tid=table["thread_id"],
            agent_id=self._rank.agent,
            kernel_id=table["kernel_id"],
            dispatch_id=table["dispatch_id"],
            queue_id=table["queue"],
            stream_id=table["stream"],
            start=table["start_ns"],
            end=table["end_ns"],
            private_segment_size=table["scratch_bytes"],
            group_segment_size=table["lds_bytes"],
            **sizes,
            region_name_id=self._string(""),
            event_id=self._new_events(
                "KERNEL_DISPATCH", table["correlation_id"], table["correlation_id"]
            ),
        )

    def _copies(self, table: pd.DataFrame) -> None:
        """Add the copies, to which the tool gives no queue and no region."""
        host, device = first_cpu(self._run), self._rank.agent
        inward = (table["copy_direction"] == "HostToDevice").tolist()
        self._insert(
            "memory_copy",
            len(table),
            **self._place,
            tid=table["thread_id"],
            start=table["start_ns"],
            end=table["end_ns"],
            name_id=self._string_ids(table["name"]),
            dst_agent_id=[device if to_device else host for to_device in inward],
            src_agent_id=[host if to_device else device for to_device in inward],
            size=table["copy_bytes"].fillna(0),
            stream_id=table["stream"],
            event_id=self._new_events(
                "MEMORY_COPY", table["correlation_id"], table["correlation_id"]
            ),
        )

    def _regions(self, table: pd.DataFrame, category: str) -> None:
        """Add calls or ranges; the text of a ROCTx range is in its event."""
        names, extra = table["name"], "{}"
        if category.startswith("MARKER"):
            extra = [json.dumps({"message": text}, ensure_ascii=False) for text in names.tolist()]
            names = pd.Series("roctxThreadRangeA", index=names.index)
        self._insert(
            "region", len(table), id=table["correlation_id"], **self._place, tid=table["thread_id"],
            start=table["start_ns"], end=table["end_ns"], name_id=self._string_ids(names),
            event_id=self._new_events(category, table["correlation_id"], 0, extra),
        )  # fmt: skip


def _with_default(used: Iterable[int]) -> list[int]:
    """Numbers of queues or streams, including 0: every file has the default one."""
    return sorted({0, *used})
