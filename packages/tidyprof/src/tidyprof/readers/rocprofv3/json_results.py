"""Conversion of rocprofv3's JSON results to tables of records, like the tables in its CSV files.

The JSON members are defined in source/lib/output/generateJSON.cpp and cxx/serialization/save.hpp in
https://github.com/ROCm/rocprofiler-sdk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidyprof.errors import CUT_SHORT, DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import in_texts, read_bytes
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


class _Handle(msgspec.Struct, gc=False):
    handle: int


class _Size(msgspec.Struct, gc=False):
    x: int
    y: int
    z: int


class _Correlation(msgspec.Struct, gc=False):
    internal: int | None = None


class _DispatchInfo(msgspec.Struct, gc=False):
    agent_id: _Handle | None = None
    queue_id: _Handle | None = None
    kernel_id: int | None = None
    dispatch_id: int | None = None
    private_segment_size: int | None = None
    group_segment_size: int | None = None
    workgroup_size: _Size | None = None
    grid_size: _Size | None = None


class _Sample(msgspec.Struct, gc=False):
    timestamp: int | None = None
    exec_mask: int | None = None
    dispatch_id: int | None = None
    corr_id: _Correlation | None = None


class _Record(msgspec.Struct, gc=False):
    """A record of any domain. If a domain lacks a field, the field is None."""

    kind: int | None = None
    operation: int | None = None
    thread_id: int | None = None
    correlation_id: _Correlation | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    dispatch_info: _DispatchInfo | None = None
    stream_id: _Handle | None = None
    queue_id: _Handle | None = None
    agent_id: _Handle | None = None
    src_agent_id: _Handle | None = None
    dst_agent_id: _Handle | None = None
    bytes: int | None = None
    allocation_size: int | None = None
    record: _Sample | None = None
    inst_index: int | None = None


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


class _DispatchData(msgspec.Struct, gc=False):
    dispatch_info: _DispatchInfo
    correlation_id: _Correlation | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None


class _CounterRecord(msgspec.Struct, gc=False):
    dispatch_data: _DispatchData
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


@dataclass
class JsonResults:
    """The results of one process.

    - records: tables with the column names of the CSV files, one per list in the JSON file
    - counters: table with the columns of the CSV files, or None
    - agents: list with a dictionary per CPU and GPU
    - facts: entries for `Profile.meta`
    """

    records: list[pa.Table]
    counters: pa.Table | None
    process: int | None
    agents: list[dict[str, Any]]
    facts: dict[str, Any] = field(default_factory=dict)


def read_results(path: Path, maximum_bytes: int) -> list[JsonResults]:
    """Read the processes from a results file."""
    text = read_bytes(path, maximum_bytes, in_texts)
    try:
        results = msgspec.json.decode(text, type=_Results)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _undecodable(path, error) from None
    tools = results.tools if isinstance(results.tools, list) else [results.tools]
    if not tools:
        raise _contradiction(path, "the file contains no process")
    return [_Reader(path, tool).results() for tool in tools]


def _undecodable(path: Path, error: Exception) -> ProfileReadError:
    message = str(error) or type(error).__name__
    if "truncated" in message:
        return ProfileReadError(path, "the JSON text ends early", *CUT_SHORT)
    return ProfileReadError(
        path, f"the file isn't JSON from rocprofv3 ({' '.join(message.split())[:160]})", *DAMAGED
    )


def _contradiction(path: Path, finding: str) -> ProfileReadError:
    return ProfileReadError(
        path,
        finding,
        "another program changed the file, or this rocprofv3 release isn't supported",
        "read the CSV output instead",
    )


class _Reader:
    def __init__(self, path: Path, tool: _Tool) -> None:
        self._path = path
        self._tool = tool
        self._agents = {
            agent.id.handle: _or(agent.logical_node_id, agent.node_id) for agent in tool.agents
        }
        self._symbols = {symbol.kernel_id: symbol for symbol in tool.kernel_symbols}
        if len(self._symbols) < len(tool.kernel_symbols):
            raise _contradiction(path, "two kernel symbols have the same kernel_id")
        self._markers = {text.key: text.value for text in tool.strings.marker_api}

    def results(self) -> JsonResults:
        tool, metadata = self._tool, self._tool.metadata
        frames = [
            self._records(name, records) for name, records in tool.buffer_records.items() if records
        ]
        facts: dict[str, Any] = {}
        if metadata.node and metadata.node.hostname:
            facts["host"] = metadata.node.hostname
        if origin := stated_origin(metadata.modelled):
            facts["origin"] = origin
        if metadata.command:
            facts["command"] = metadata.command
        if metadata.init_time and metadata.fini_time and metadata.init_time < metadata.fini_time:
            facts["record_window_ns"] = (metadata.init_time, metadata.fini_time)
        agents = [self._agent(agent) for agent in tool.agents]
        return JsonResults(frames, self._counters(), metadata.pid, agents, facts)

    def _agent(self, agent: _Agent) -> dict[str, Any]:
        values = msgspec.structs.asdict(agent) | {"type": _AGENT_TYPES.get(agent.type)}
        return {
            key: value for key, value in values.items() if key != "id" and value not in (None, "")
        }

    def _records(self, name: str, records: list[_Record]) -> pa.Table:
        if name in _SAMPLES:
            return self._samples(_SAMPLES[name], records)
        operations = [self._operation(record) for record in records]
        columns = {
            "category": [category for category, _ in operations],
            "name": [operation for _, operation in operations],
            "start": [record.start_timestamp for record in records],
            "end": [record.end_timestamp for record in records],
            "thread": [record.thread_id for record in records],
            "correlation_id": [_inner(record.correlation_id) for record in records],
            "stream": [_handle(record.stream_id) for record in records],
        }
        if any(record.dispatch_info for record in records):
            columns |= self._dispatches(
                [record.dispatch_info or _DispatchInfo() for record in records]
            )
        else:
            columns |= self._places(records)
        return _frame(columns)

    def _operation(self, record: _Record) -> tuple[str, str]:
        """Return the names of a record's domain and operation. The operation of a marker is its
        message.
        """
        domains = self._tool.strings.buffer_records
        kind, operation = _or(record.kind, -1), _or(record.operation, 0)
        operations = domains[kind].operations if 0 <= kind < len(domains) else []
        if not operations or not 0 <= operation < len(operations):
            raise _contradiction(
                self._path, f"a record has kind {kind} and operation {operation}, which are unknown"
            )
        name = operations[operation]
        if name.startswith(_MARKER_NAMES):
            name = self._markers.get(_inner(record.correlation_id), name)
        return domains[kind].kind, name

    def _dispatches(self, dispatches: list[_DispatchInfo]) -> dict[str, list[Any]]:
        symbols = [self._symbol(dispatch) for dispatch in dispatches]
        columns: dict[str, list[Any]] = {
            "name": [_name(symbol) for symbol in symbols],
            "dispatch_id": [dispatch.dispatch_id for dispatch in dispatches],
            "queue": [_handle(dispatch.queue_id) for dispatch in dispatches],
            "agent": [self._device(dispatch.agent_id) for dispatch in dispatches],
            "lds_bytes": [dispatch.group_segment_size for dispatch in dispatches],
            "scratch_bytes": [dispatch.private_segment_size for dispatch in dispatches],
            "vgprs": [symbol.arch_vgpr_count for symbol in symbols],
            "accum_vgprs": [symbol.accum_vgpr_count for symbol in symbols],
            "sgprs": [symbol.sgpr_count for symbol in symbols],
        }
        for axis in "xyz":
            columns[f"grid_{axis}"] = [
                getattr(dispatch.grid_size, axis, None) for dispatch in dispatches
            ]
            columns[f"block_{axis}"] = [
                getattr(dispatch.workgroup_size, axis, None) for dispatch in dispatches
            ]
        return columns

    def _symbol(self, dispatch: _DispatchInfo) -> _KernelSymbol:
        try:
            return self._symbols[dispatch.kernel_id]
        except KeyError:
            raise _contradiction(
                self._path,
                f"a dispatch has kernel_id {dispatch.kernel_id}, but no kernel symbol has this ID",
            ) from None

    def _places(self, records: list[_Record]) -> dict[str, list[Any]]:
        """Return the agents, queue and bytes of records that aren't kernels, as columns."""
        columns: dict[str, list[Any]] = {
            "bytes": [_or(record.bytes, record.allocation_size) for record in records],
            "queue": [_handle(record.queue_id) for record in records],
        }
        if any(record.src_agent_id for record in records):
            columns["source_agent"] = [self._device(record.src_agent_id) for record in records]
            columns["destination_agent"] = [self._device(record.dst_agent_id) for record in records]
        elif any(record.agent_id for record in records):
            columns["agent"] = [self._device(record.agent_id) for record in records]
        return columns

    def _device(self, agent: _Handle | None) -> int | None:
        """Return the agent's number, which is the same as in the CSV files by default. Return None
        if there is no agent, for example when memory is freed.
        """
        return None if agent is None else self._agents.get(agent.handle)

    def _samples(self, category: str, records: list[_Record]) -> pa.Table:
        samples = [record.record or _Sample() for record in records]
        strings = self._tool.strings
        times = [sample.timestamp for sample in samples]
        return _frame(
            {
                "category": [category] * len(samples),
                "name": [
                    _item(strings.pc_sample_instructions, record.inst_index) for record in records
                ],
                "source_line": [
                    _item(strings.pc_sample_comments, record.inst_index) for record in records
                ],
                "start": times,
                "end": times,
                "dispatch_id": [sample.dispatch_id for sample in samples],
                "correlation_id": [_inner(sample.corr_id) for sample in samples],
                "exec_mask": [sample.exec_mask for sample in samples],
            }
        )

    def _counters(self) -> pa.Table | None:
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
        data = [record.dispatch_data for record in dispatches]
        frame = _frame(
            {
                "counter": [name for name, _ in sums],
                "start": [dispatch.start_timestamp for dispatch in data],
                "end": [dispatch.end_timestamp for dispatch in data],
                "thread": [record.thread_id for record in dispatches],
                "correlation_id": [_inner(dispatch.correlation_id) for dispatch in data],
                **self._dispatches([dispatch.dispatch_info for dispatch in data]),
            }
        ).append_column("value", pa.array([value for _, value in sums], pa.float64()))
        for name, shape in {"work_items": "grid", "workgroup_size": "block"}.items():
            sizes = [frame[f"{shape}_{axis}"] for axis in "xyz"]
            frame = frame.append_column(name, reduce(pc.multiply, sizes))
        return frame


_TEXT_COLUMNS = ("category", "name", "counter", "source_line")


def _frame(columns: dict[str, list[Any]]) -> pa.Table:
    """Return string and integer columns. Integers that don't fit in 64 bits become null."""
    return pa.table({name: _column(name, values) for name, values in columns.items()})


def _column(name: str, values: list[Any]) -> pa.Array:
    if name in _TEXT_COLUMNS:
        return pa.array(values, pa.string()).dictionary_encode()
    dtype = pa.uint64() if name == "exec_mask" else pa.int64()
    try:
        return pa.array(values, dtype)
    except (OverflowError, pa.ArrowInvalid):
        held = range(2**64) if name == "exec_mask" else range(-(2**63), 2**63)
        return pa.array([value if value in held else None for value in values], dtype)


def _or(value: int | None, other: Any) -> Any:
    return other if value is None else value


def _handle(of: _Handle | None) -> int | None:
    return None if of is None else of.handle


def _inner(correlation: _Correlation | None) -> int | None:
    return None if correlation is None else correlation.internal


def _item(texts: list[str], index: int | None) -> str | None:
    """Return the string at an index. The index -1 means that an instruction couldn't be decoded."""
    return texts[index] if index is not None and 0 <= index < len(texts) else None


def _name(symbol: _KernelSymbol) -> str:
    return symbol.formatted_kernel_name or symbol.demangled_kernel_name or symbol.kernel_name
