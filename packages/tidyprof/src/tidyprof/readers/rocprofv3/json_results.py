"""Rows of rocprofv3's JSON results, under the same names as the rows of its CSV files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import read_bytes
from tidyprof.readers.columns import column_table
from tidyprof.readers.csv_rows import CELL_TYPES, Rows
from tidyprof.readers.rocprofv3.collected import Collected
from tidyprof.readers.rocprofv3.statistics import AGENT_FACTS, stated_facts
from tidyprof.tables.codes import ABSENT, Codes, by_code, mapped
from tidyprof.tables.contract import stated_origin
from tidyprof.tables.records import no_records

_TABLE = column_table("rocprofv3")
_AGENT_TYPES = {1: "CPU", 2: "GPU"}
_REGISTERS = {
    "vgprs": "arch_vgpr_count",
    "accum_vgprs": "accum_vgpr_count",
    "sgprs": "sgpr_count",
}
_NOT_READ = ("pc_sample_host_trap", "pc_sample_stochastic")
"""Lists of records that are left out. The CSV files contain the same records."""


def _struct(members: dict[str, Any]) -> type[msgspec.Struct]:
    """Return the type of a record whose members are integers or other records."""
    fields: list[Any] = []
    for part, below in members.items():
        if isinstance(below, str):
            fields.append((part, int | None, None))
        else:
            fields.append((part, _struct(below), _struct(below)()))
    return msgspec.defstruct("Record", fields, frozen=True, gc=False)


def _members(members: dict[str, Any], at: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path of each member and its entry in the column table."""
    for part, below in members.items():
        if isinstance(below, str):
            yield at + part, below
        else:
            yield from _members(below, f"{at}{part}.")


_Record: Any = _struct(_TABLE.members)
_Agent: Any = msgspec.defstruct(
    "_Agent", [("id", dict[str, int]), ("type", int), *AGENT_FACTS], gc=False
)


class _KernelSymbol(msgspec.Struct, gc=False):
    kernel_id: int
    kernel_name: str = ""
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    sgpr_count: int = ABSENT
    arch_vgpr_count: int = ABSENT
    accum_vgpr_count: int = ABSENT


class _Domain(msgspec.Struct, gc=False):
    kind: str = ""
    operations: list[str] = []


class _Text(msgspec.Struct, gc=False):
    key: int
    value: str


class _Strings(msgspec.Struct, gc=False):
    buffer_records: list[_Domain] = []
    marker_api: list[_Text] = []


class _CallbackRecords(msgspec.Struct, gc=False):
    counter_collection: list[msgspec.Raw] = []


class _Metadata(msgspec.Struct, gc=False):
    pid: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    init_time: int | None = None
    fini_time: int | None = None
    command: list[str] = []
    node: dict[str, Any] = {}
    modelled: dict[str, Any] | None = None


class _Tool(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[_Agent] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_KernelSymbol] = []
    callback_records: _CallbackRecords = msgspec.field(default_factory=_CallbackRecords)
    buffer_records: dict[str, list[_Record]] = {}


class _Results(msgspec.Struct, gc=False):
    tools: list[_Tool] | _Tool = msgspec.field(name="rocprofiler-sdk-tool")


def add_results(path: Path, own: Collected, texts: Codes, maximum_bytes: int) -> None:
    """Add the events of a results file, and count its counters and samples, which aren't read.

    Raises ProfileReadError if the file is damaged or contains several processes.
    """
    text = read_bytes(path, maximum_bytes)
    try:
        results = msgspec.json.decode(text, type=_Results)
        (tool,) = results.tools if isinstance(results.tools, list) else [results.tools]
        _add_metadata(own, tool)
        for name, records in tool.buffer_records.items():
            if records and name not in _NOT_READ:
                own.add_events(_rows(tool, records, texts), path, _TABLE, texts)
    except (msgspec.MsgspecError, ValueError, LookupError, OverflowError) as error:
        found = (
            f"the file isn't JSON of one rocprofv3 process ({' '.join(str(error).split())[:160]})"
        )
        raise ProfileReadError(path, found, *DAMAGED) from None
    left_out = {name: len(tool.buffer_records.get(name, ())) for name in _NOT_READ}
    left_out["counter_collection"] = len(tool.callback_records.counter_collection)
    if any(left_out.values()):
        own.events.append(no_records())
        own.events[-1].not_kept = +Counter(left_out)


def _add_metadata(own: Collected, tool: _Tool) -> None:
    metadata = tool.metadata
    own.process = own.process if metadata.pid is None else metadata.pid
    own.agents += [stated_facts(_AGENT_TYPES.get(agent.type), agent) for agent in tool.agents]
    facts = {
        "host": metadata.node.get("hostname"),
        "origin": stated_origin(metadata.modelled),
        "command": metadata.command,
    }
    own.facts |= {name: fact for name, fact in facts.items() if fact}
    if metadata.init_time and metadata.fini_time and metadata.init_time < metadata.fini_time:
        own.facts["record_window_ns"] = (metadata.init_time, metadata.fini_time)


def _rows(tool: _Tool, records: Sequence[Any], texts: Codes) -> Rows:
    """Return the rows with numbers of names, kernels and agents replaced by what they refer to."""
    rows = Rows({})
    for member, entry in _members(_TABLE.members):
        values = pa.array([*map(attrgetter(member), records)], CELL_TYPES[entry.split()[1]])
        if values.null_count < len(values):
            rows.add(entry, values, texts)
    columns = rows.columns
    nothing = np.full(len(records), ABSENT, np.int64)
    for column in ("start", "end", "kind", "operation"):
        columns.setdefault(column, nothing.copy())
    domains = dict(enumerate(tool.strings.buffer_records))
    operations = {
        number << 32 | place: texts[operation]
        for number, domain in domains.items()
        for place, operation in enumerate(domain.operations)
    }
    kind, operation = columns.pop("kind"), np.maximum(columns.pop("operation"), 0)
    category = mapped(kind, {number: texts[domain.kind] for number, domain in domains.items()})
    name = mapped(kind << 32 | operation, operations)
    if "kernel_id" in columns:
        kernel = columns.pop("kernel_id")
        symbols = {symbol.kernel_id: symbol for symbol in tool.kernel_symbols}
        names = {
            number: texts[one.formatted_kernel_name or one.demangled_kernel_name or one.kernel_name]
            for number, one in symbols.items()
        }
        name = mapped(kernel, names)
        for column, count in _REGISTERS.items():
            counts = {number: getattr(symbol, count) for number, symbol in symbols.items()}
            columns[column] = mapped(kernel, counts)
    if (category == ABSENT).any() or (name == ABSENT).any():
        raise LookupError("a domain, an operation or a kernel_id isn't in the file")
    # The name of a marker is its message.
    messages = {text.key: texts[text.value] for text in tool.strings.marker_api}
    message = mapped(columns.get("correlation_id", nothing), messages)
    is_marker = by_code((text.startswith("MARKER") for text in texts), category, False)
    name = np.where(is_marker & (message != ABSENT), message, name)
    columns["category"], columns["name"] = category.astype(np.int32), name.astype(np.int32)
    # The number of an agent is the same as in the CSV files by default.
    agents = {
        agent.id["handle"]: agent.node_id
        if agent.logical_node_id is None
        else agent.logical_node_id
        for agent in tool.agents
    }
    for column in columns.keys() & {"agent", "source_agent", "destination_agent"}:
        columns[column] = mapped(columns[column], agents)
    return rows
