"""Rows of rocprofv3's JSON results, under the same names as the rows of its CSV files."""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa

from tidyprof.errors import CUT_SHORT, DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import in_texts, read_bytes
from tidyprof.readers.rocprofv3.collected import Collected
from tidyprof.readers.rocprofv3.columns import column_table
from tidyprof.readers.rocprofv3.rows import Rows
from tidyprof.tables.codes import ABSENT, NO_TEXT, Codes
from tidyprof.tables.contract import stated_origin

_MARKER_NAMES = (
    "roctxMark",
    "roctxRangePush",
    "roctxRangeStart",
    "roctxThreadRange",
    "roctxProcessRange",
)
_SAMPLES = {
    "pc_sample_host_trap": "PC_SAMPLING_HOST_TRAP",
    "pc_sample_stochastic": "PC_SAMPLING_STOCHASTIC",
}
_AGENT_TYPES = {1: "CPU", 2: "GPU"}


def _struct(name: str, members: dict[str, Any]) -> type[msgspec.Struct]:
    """Return a type with optional members, which are integers or other structs."""
    fields = [
        (part, (int if isinstance(below, str) else _struct(part, below)) | None, None)
        for part, below in members.items()
    ]
    return msgspec.defstruct(name, fields, gc=False)


_TABLE = column_table("rocprofv3")
_Record: Any = _struct("Record", _TABLE.members)


class _Handle(msgspec.Struct, gc=False):
    handle: int


class _Agent(msgspec.Struct, gc=False):
    id: _Handle
    type: int
    node_id: int | None = None
    logical_node_id: int | None = None
    name: str = ""
    product_name: str = ""
    model_name: str = ""
    cu_count: int | None = None
    num_xcc: int | None = None
    lds_size_in_kb: int | None = None
    max_engine_clk_fcompute: int | None = None


class _KernelSymbol(msgspec.Struct, gc=False):
    kernel_id: int
    kernel_name: str = ""
    formatted_kernel_name: str = ""
    demangled_kernel_name: str = ""
    sgpr_count: int | None = None
    arch_vgpr_count: int | None = None
    accum_vgpr_count: int | None = None


class _Domain(msgspec.Struct, gc=False):
    kind: str = ""
    operations: list[str] = []


class _Text(msgspec.Struct, gc=False):
    key: int
    value: str


class _Strings(msgspec.Struct, gc=False):
    buffer_records: list[_Domain] = []
    marker_api: list[_Text] = []
    pc_sample_instructions: list[str] = []
    pc_sample_comments: list[str] = []


class _CounterName(msgspec.Struct, gc=False):
    id: _Handle
    name: str


class _CounterValue(msgspec.Struct, gc=False):
    counter_id: _Handle
    value: float


class _CounterRecord(msgspec.Struct, gc=False):
    dispatch_data: _Record
    records: list[_CounterValue] = []
    thread_id: int | None = None


class _CallbackRecords(msgspec.Struct, gc=False):
    counter_collection: list[_CounterRecord] = []


class _Node(msgspec.Struct, gc=False):
    hostname: str | None = None


class _Metadata(msgspec.Struct, gc=False):
    pid: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    init_time: int | None = None
    fini_time: int | None = None
    command: list[str] = []
    node: _Node | None = None
    modelled: dict[str, Any] | None = None


class _Tool(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    agents: list[_Agent] = []
    counters: list[_CounterName] = []
    strings: _Strings = msgspec.field(default_factory=_Strings)
    kernel_symbols: list[_KernelSymbol] = []
    callback_records: _CallbackRecords = msgspec.field(default_factory=_CallbackRecords)
    buffer_records: dict[str, list[_Record]] = {}


class _Results(msgspec.Struct, gc=False):
    tools: list[_Tool] | _Tool = msgspec.field(name="rocprofiler-sdk-tool")


def read_results(path: Path, files: Collected, texts: Codes, maximum_bytes: int) -> list[Collected]:
    """Read the processes from a results file.

    - files: what the file names say about the process. Missing metadata comes from there.
    """
    text = read_bytes(path, maximum_bytes, in_texts)
    try:
        results = msgspec.json.decode(text, type=_Results)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        message = str(error) or type(error).__name__
        if "truncated" in message:
            raise ProfileReadError(path, "the JSON text ends early", *CUT_SHORT) from None
        found = f"the file isn't JSON from rocprofv3 ({' '.join(message.split())[:160]})"
        raise ProfileReadError(path, found, *DAMAGED) from None
    tools = results.tools if isinstance(results.tools, list) else [results.tools]
    if not tools:
        raise _contradiction(path, "the file contains no process")
    return [_Reader(path, tool, texts).process(files) for tool in tools]


def _contradiction(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(
        path,
        finding,
        "another program changed the file, or this rocprofv3 release isn't supported",
        "read the CSV output instead",
    )


class _Reader:
    def __init__(self, path: Path, tool: _Tool, texts: Codes) -> None:
        self._path = path
        self._tool = tool
        self._texts = texts
        self._agents = {
            agent.id.handle: agent.node_id
            if agent.logical_node_id is None
            else agent.logical_node_id
            for agent in tool.agents
        }
        self._symbols = {symbol.kernel_id: symbol for symbol in tool.kernel_symbols}
        if len(self._symbols) < len(tool.kernel_symbols):
            raise _contradiction(path, "two kernel symbols have the same kernel_id")
        self._markers = {text.key: text.value for text in tool.strings.marker_api}

    def process(self, files: Collected) -> Collected:
        tool, metadata = self._tool, self._tool.metadata
        process = files.process if metadata.pid is None else metadata.pid
        own = Collected(files.path, rank=files.rank, files=[], process=process)
        facts = {
            "device_numbering": "agent",
            "host": metadata.node and metadata.node.hostname,
            "origin": stated_origin(metadata.modelled),
            "command": metadata.command,
        }
        own.facts = {name: fact for name, fact in facts.items() if fact}
        if metadata.init_time and metadata.fini_time and metadata.init_time < metadata.fini_time:
            own.facts["record_window_ns"] = (metadata.init_time, metadata.fini_time)
        for agent in tool.agents:
            stated = msgspec.structs.asdict(agent) | {"type": _AGENT_TYPES.get(agent.type)}
            del stated["id"]
            own.agents.append(
                {key: value for key, value in stated.items() if value not in (None, "")}
            )
        for name, records in tool.buffer_records.items():
            if records:
                own.add_events(self._events(name, records), self._path, _TABLE, self._texts)
        if counters := self._counters():
            own.add_counters(counters, self._path, self._texts)
        return own

    def _events(self, name: str, records: list[Any]) -> Rows:
        members: dict[str, list[Any]] = {}
        _collect(records, _TABLE.members, members)
        nothing = [None] * len(records)
        kinds, operations = (members.pop(key, nothing) for key in ("kind", "operation"))
        instructions = members.pop("instruction", nothing)
        strings = self._tool.strings
        if name in _SAMPLES:
            members["category"] = [_SAMPLES[name]] * len(records)
            members["name"] = [_item(strings.pc_sample_instructions, i) for i in instructions]
            members["source_line"] = [_item(strings.pc_sample_comments, i) for i in instructions]
            members["end"] = members.get("start", nothing)
        else:
            named = [*map(cache(self._operation), kinds, operations)]
            members["category"] = [category for category, _ in named]
            members["name"] = [operation for _, operation in named]
            if any(operation.startswith(_MARKER_NAMES) for operation in set(members["name"])):
                # The name of a marker is its message.
                ranges = members.get("correlation_id", nothing)
                members["name"] = [
                    self._markers.get(one, name) if name.startswith(_MARKER_NAMES) else name
                    for one, name in zip(ranges, members["name"], strict=True)
                ]
        members = {"start": nothing, "end": nothing} | members
        return self._rows(members)

    def _operation(self, kind: int | None, operation: int | None) -> tuple[str, str]:
        """Return the names of a record's domain and operation."""
        domain = _item(self._tool.strings.buffer_records, kind)
        name = _item(domain.operations, operation or 0) if domain else None
        if domain is None or name is None:
            raise _contradiction(
                self._path, f"a record has kind {kind} and operation {operation}, which are unknown"
            )
        return domain.kind, str(name)

    def _rows(self, members: dict[str, list[Any]]) -> Rows:
        """Return the rows with kernel IDs and agent handles replaced by what they refer to."""
        if "kernel_id" in members:
            try:
                symbols = [self._symbols[number] for number in members.pop("kernel_id")]
            except KeyError as error:
                found = f"a dispatch has kernel_id {error}, but no kernel symbol has this ID"
                raise _contradiction(self._path, found) from None
            members["name"] = [
                one.formatted_kernel_name or one.demangled_kernel_name or one.kernel_name
                for one in symbols
            ]
            members["vgprs"] = [symbol.arch_vgpr_count for symbol in symbols]
            members["accum_vgprs"] = [symbol.accum_vgpr_count for symbol in symbols]
            members["sgprs"] = [symbol.sgpr_count for symbol in symbols]
        for name in ("agent", "source_agent", "destination_agent"):
            if name in members:
                # The number of an agent is the same as in the CSV files by default.
                members[name] = [self._agents.get(handle) for handle in members[name]]
        return Rows({name: self._array(name, values) for name, values in members.items()})

    def _array(self, name: str, values: list[Any]) -> np.ndarray:
        if name in ("category", "name", "counter", "source_line"):
            codes = (NO_TEXT if text is None else self._texts[text] for text in values)
            return np.fromiter(codes, np.int32, len(values))
        if name == "value":
            return np.array(values, np.float64)
        is_mask = name == "exec_mask"
        dtype, held = pa.int64(), range(-(2**63), 2**63)
        if is_mask:
            dtype, held = pa.uint64(), range(2**64)
        try:
            array = pa.array(values, dtype)
        except (OverflowError, pa.ArrowInvalid):
            array = pa.array([value if value in held else None for value in values], dtype)
        return (
            array.view(pa.int64()).fill_null(ABSENT).to_numpy(writable=True, zero_copy_only=False)
        )

    def _counters(self) -> Rows | None:
        """Return one row per dispatch and counter. As in the CSV file, each value is the sum over
        the counter's instances.
        """
        names = {counter.id.handle: counter.name for counter in self._tool.counters}
        # Repeat each dispatch for each of its counters.
        dispatches: list[_CounterRecord] = []
        sums: list[tuple[str, float]] = []
        for record in self._tool.callback_records.counter_collection:
            totals: dict[str, float] = {}
            for value in record.records:
                handle = value.counter_id.handle
                if handle not in names:
                    raise _contradiction(
                        self._path, f"a value belongs to counter {handle}, which has no name"
                    )
                totals[names[handle]] = totals.get(names[handle], 0.0) + value.value
            dispatches += [record] * len(totals)
            sums += totals.items()
        if not sums:
            return None
        members: dict[str, list[Any]] = {}
        _collect([record.dispatch_data for record in dispatches], _TABLE.members, members)
        members["thread"] = [record.thread_id for record in dispatches]
        members["counter"] = [name for name, _ in sums]
        members["value"] = [value for _, value in sums]
        return self._rows(members)


def _collect(records: list[Any], members: dict[str, Any], found: dict[str, list[Any]]) -> None:
    """Add the values of all members that occur in these records, by name. If several members have
    the same name, a record contains only one of them.
    """
    for part, below in members.items():
        member = attrgetter(part)
        values = [None if record is None else member(record) for record in records]
        if values.count(None) == len(values):
            continue
        if isinstance(below, dict):
            _collect(values, below, found)
        elif below in found:
            pairs = zip(found[below], values, strict=True)
            found[below] = [second if first is None else first for first, second in pairs]
        else:
            found[below] = values


def _item(items: list[Any], index: int | None) -> Any:
    """Return the item at an index. The index -1 means that an instruction couldn't be decoded."""
    return items[index] if index is not None and 0 <= index < len(items) else None
