"""Tables of one process in a rocpd database, with its threads, ranks and GPUs.

The schema is defined in source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql of
https://github.com/ROCm/rocm-systems (projects/rocprofiler-sdk), versions 3.0.0 to 3.0.5.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidyprof.errors import ProfileReadError
from tidyprof.io.sqlite import Database, Link, Loss, dangling, losses_told, quoted
from tidyprof.readers.rocpd.recognition import MARKING_TABLE
from tidyprof.tables.codes import ABSENT, first_equal

SCHEMA_MAJOR = "3"
"""Major version of the schema that this reader supports. Schema version 4 stores tracks
differently.
"""

REQUIRED_COLUMNS = {
    "kernel_dispatch": ("id", "pid", "tid", "agent_id", "kernel_id", "start", "end", "event_id"),
    "memory_copy": ("id", "tid", "start", "end", "name_id", "size", "event_id"),
    "region": ("id", "pid", "tid", "start", "end", "name_id", "event_id"),
    "event": ("id", "category_id", "stack_id", "extdata"),
    "string": ("id", "string"),
    "info_agent": ("id", "type", "type_index"),
    "info_process": ("id", "pid"),
    "info_thread": ("id", "tid"),
    "info_kernel_symbol": ("id", "kernel_name", "display_name"),
}
"""Required tables, without prefix and suffix, and their required columns."""

UNUSED = frozenset(
    {
        # The machine and its processes
        "hash",
        "machine_id",
        "system_name",
        "release",
        "hardware_name",
        "domain_name",
        "nid",
        "ppid",
        "init",
        "fini",
        "command",
        "uuid",
        "model_name",
        "vendor_name",
        "user_name",
        # Counters and code objects
        "target_arch",
        "event_code",
        "instance_id",
        "symbol",
        "description",
        "long_description",
        "component",
        "value_type",
        "expression",
        "is_constant",
        "is_derived",
        "uri",
        "load_base",
        "load_size",
        "load_delta",
        "storage_type",
        "code_object_id",
        "kernel_object",
        "kernarg_segment_size",
        "kernarg_segment_alignment",
        # Events
        "parent_stack_id",
        "call_stack",
        "line_info",
        "position",
        "region_name_id",
        "dst_address",
        "src_address",
        "level",
        "address",
        # Since ROCm 10.0: graphs, and counters that are sampled over time
        "graph_exec_id",
        "graph_node_id",
        "xcc",
        "shader_engine",
        "instance",
    }
)
"""Known columns that this reader doesn't use."""

OPTIONAL_COLUMNS = {
    "pmc_event": ("event_id", "pmc_id", "value", "sample_id"),
    "info_pmc": (),
    "memory_allocate": ("type",),
    "sample": ("timestamp",),
    "track": ("name_id",),
    "info_node": ("hostname",),
    "kernel_dispatch": ("dispatch_id", "queue_id", "stream_id"),
    "memory_copy": ("dst_agent_id", "src_agent_id"),
}
"""Tables and columns that are missing from some files."""

_DESCRIBING = ("arg", "pmc_event")
"""Tables with details about events. Their rows aren't records themselves."""

_RECORDS = ("kernel_dispatch", "memory_copy", "memory_allocate", "region", "sample")
LINKS = (
    *(Link(table, "event_id", "event", "events", vital=True) for table in _RECORDS),
    *(Link(table, "pid", "info_process", "processes") for table in _RECORDS),
    *(Link(table, "tid", "info_thread", "threads") for table in _RECORDS),
    *(
        Link(table, "agent_id", "info_agent", "agents")
        for table in ("kernel_dispatch", "memory_allocate")
    ),
    *(Link("memory_copy", f"{end}_agent_id", "info_agent", "agents") for end in ("src", "dst")),
    Link("pmc_event", "event_id", "event", "events"),
    Link("pmc_event", "pmc_id", "info_pmc", "counters"),
    Link("event", "category_id", "string", "strings", vital=True),
)
"""References between tables in the schema. References to the names of records aren't included,
because records without a name are left out and counted separately.
"""

RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Environment variables that contain a process's rank, in order of preference. They are set by
torchrun, Open MPI, PMIx, PMI and Slurm.
"""

_SUFFIX = re.compile(
    rf"{MARKING_TABLE}(|_[0-9a-fA-F]{{8}}(?:_[0-9a-fA-F]{{4}}){{3}}_[0-9a-fA-F]{{12}})"
)
_AGENT_COLUMNS = (
    "id",
    "type",
    "absolute_index",
    "logical_index",
    "type_index",
    "name",
    "product_name",
)


def process_suffixes(database: Database) -> list[str]:
    """Return the suffixes of the table names, one per process in the file. Raises ProfileReadError
    if the file contains no process.
    """
    found = [match[1] for name in database.tables if (match := _SUFFIX.fullmatch(name))]
    if found:
        return sorted(found)
    if "rocpd_api_ops" in database.tables:
        raise ProfileReadError(
            database.path,
            "the file is from rocmProfileData, not a rocpd database from ROCm 7",
            "both tools use the name rocpd for their files",
            "read the file with read_rpd",
        )
    database.require(MARKING_TABLE, ())
    return []


@dataclass
class ProcessTables:
    """The tables of one process. The method `name` returns a table's full name."""

    database: Database
    suffix: str

    def name(self, table: str) -> str:
        """Return the full name of a table, such as `region`."""
        return f"rocpd_{table}{self.suffix}"

    def has(self, table: str, *columns: str) -> bool:
        """Return True if the file has this table with these columns."""
        present = self.database.tables.get(self.name(table))
        return present is not None and set(columns) <= set(present)

    def integers(
        self, table: str, columns: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> dict[str, np.ndarray]:
        """Return the required columns and any optional columns in the file as int64."""
        present = [column for column in optional if self.has(table, column)]
        return self.database.integers(self.name(table), (*columns, *present))

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return columns of a small table. The values of a missing column are None."""
        chosen = ", ".join(
            quoted(column) if self.has(table, column) else "NULL" for column in columns
        )
        return self.database.rows(f"SELECT {chosen} FROM {quoted(self.name(table))}")

    def warnings_of_losses(self) -> list[str]:
        """Return warnings about rows with broken references and about events that no record refers
        to.

        Raises ProfileReadError if nearly all rows are affected.
        """
        names = {table: self.name(table) for link in LINKS for table in (link.table, link.target)}
        losses = dangling(self.database, (link.in_file(names) for link in LINKS))
        return losses_told(
            self.database,
            [*self._events_alone(), *losses],
            "rows were deleted or were never written",
        )

    def _events_alone(self) -> list[Loss]:
        """Count the events that no dispatch, copy, call or other record refers to."""
        # Since schema 3.0.3, a counter value with a sample_id is a record itself.
        named = []
        for table, columns in self.database.tables.items():
            if table.endswith(self.suffix) and "event_id" in columns:
                short = table.removeprefix("rocpd_").removesuffix(self.suffix)
                if short not in _DESCRIBING:
                    named.append(self.database.integers(table, ["event_id"])["event_id"])
                elif "sample_id" in columns:
                    found = self.database.integers(table, ("event_id", "sample_id"))
                    named.append(found["event_id"][found["sample_id"] != ABSENT])
        events = self.database.integers(self.name("event"), ["id"])["id"]
        alone = int((first_equal(np.sort(np.concatenate(named)), events) < 0).sum())
        found = "belong to no dispatch, copy, call or other record"
        return [Loss(alone, len(events), self.name("event"), found, vital=True)] if alone else []

    def doubts(self) -> list[str]:
        """Return warnings about OPTIONAL_COLUMNS that seem to be missing."""
        return self.database.doubts(
            {self.name(table): columns for table, columns in OPTIONAL_COLUMNS.items()}
        )

    def require(self) -> str:
        """Return the schema version. Raises ProfileReadError if this reader doesn't support the
        version, or if tables or columns are missing.
        """
        self.database.require(self.name("metadata"), ("tag", "value"))
        version = str(dict(self.rows("metadata", "tag", "value")).get("schema_version", ""))
        if version.partition(".")[0] != SCHEMA_MAJOR:
            raise ProfileReadError(
                self.database.path,
                f"schema version {version!r}" if version else "no schema version in rocpd_metadata",
                "this reader doesn't support the profiler's ROCm version yet",
                "convert the file (rocpd convert -i FILE -f csv), and read the CSV files",
            )
        for table, columns in REQUIRED_COLUMNS.items():
            self.database.require(self.name(table), columns)
        return version


@dataclass
class Machine:
    """The machine, and the processes and threads in the profile.

    - devices: number of each agent among the GPUs, by agent identifier. CPUs have no number.
    - processes: operating system's process number for each row identifier
    - threads: operating system's thread number for each row identifier
    - facts: entries for `Profile.meta`
    - rank: rank from the process's environment
    """

    devices: dict[int, int]
    processes: dict[int, int]
    threads: dict[int, int]
    facts: dict[str, Any]
    rank: int | None


def read_machine(tables: ProcessTables) -> Machine:
    """Read the agents, processes, threads and nodes. The rank is the only value that is read from
    the environment.
    """
    agents = [
        dict(zip(_AGENT_COLUMNS, row, strict=True))
        for row in tables.rows("info_agent", *_AGENT_COLUMNS)
    ]
    gpus = [agent for agent in agents if agent["type"] == "GPU"]
    facts: dict[str, Any] = {"agents": gpus} if gpus else {}
    hosts = tables.rows("info_node", "hostname") if tables.has("info_node") else []
    stated = {
        "gpu": [agent["product_name"] for agent in gpus],
        "gpu_arch": [agent["name"] for agent in gpus],
        "host": [host for (host,) in hosts],
    }
    for key, names in stated.items():
        names = list(dict.fromkeys(name for name in names if isinstance(name, str) and name))
        if names:
            facts[key] = ", ".join(names)
    # A merged file can contain several ranks. In that case, the rank is unknown.
    processes = tables.rows("info_process", "id", "pid", "environment")
    ranks = {rank for *_, environment in processes if (rank := _rank(environment)) is not None}
    return Machine(
        devices={
            agent["id"]: agent["type_index"]
            for agent in gpus
            if isinstance(agent["type_index"], int)
        },
        processes={number: pid for number, pid, _ in processes if isinstance(pid, int)},
        threads={
            number: tid
            for number, tid in tables.rows("info_thread", "id", "tid")
            if isinstance(tid, int)
        },
        facts=facts,
        rank=ranks.pop() if len(ranks) == 1 else None,
    )


def _rank(environment: Any) -> int | None:
    """Return the rank from a process's environment (JSON). Slurm's rank is ignored if Slurm started
    only one process.
    """
    try:
        variables = json.loads(environment)
    except (TypeError, ValueError, RecursionError):
        return None
    if not isinstance(variables, dict):
        return None
    tasks = str(variables.get("SLURM_STEP_NUM_TASKS") or variables.get("SLURM_NTASKS") or "1")
    for name in RANK_VARIABLES:
        value = str(variables.get(name, ""))
        if value.isdecimal() and len(value) < 10 and (name != "SLURM_PROCID" or tasks != "1"):
            return int(value)
    return None
