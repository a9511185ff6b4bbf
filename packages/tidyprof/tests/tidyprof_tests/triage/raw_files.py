"""Raw files as plain lists of events, read without tidyprof: json, csv and sqlite3 of the standard
library.

Only what the sentences of triage speak of is read. Times are whole nanoseconds as the file counts
them.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

ON_DEVICE = ("kernel", "copy", "fill", "collective")


class Event(NamedTuple):
    """kind -- one of ON_DEVICE, call, operator, range, function. launches -- whether a call can
    start work.
    """

    kind: str
    name: str
    start: int
    end: int
    thread: Any = None
    stream: Any = None
    correlation: Any = None
    launches: bool = False
    collective: str = ""


@dataclass
class Rank:
    """What one rank's files hold.

    devices -- events by device, in order of start. watch -- name, begin and length of each part of
    a step, its time on a processor and in line for one, as the script measured them.
    """

    number: int | None = None
    devices: dict[Any, list[Event]] = field(default_factory=dict)
    calls: list[Event] = field(default_factory=list)
    operators: list[Event] = field(default_factory=list)
    ranges: list[Event] = field(default_factory=list)
    functions: list[Event] = field(default_factory=list)
    watch: list[list[Any]] = field(default_factory=list)


@dataclass
class Recording:
    """A run's files. gpu -- whether the file names one. samples -- columns of a monitor's log that
    hold a value.

    modelled -- whether a model made it.
    """

    tool: str
    ranks: list[Rank] = field(default_factory=list)
    world_size: int | None = None
    gpu: bool = False
    counters: bool = False
    samples: set[str] = field(default_factory=set)
    modelled: bool = False


def read(path: Path) -> Recording:
    """The recording at a path, of whichever tool its names tell."""
    files = [path] if path.is_file() else sorted(one for one in path.iterdir() if one.is_file())
    for ending, reader in READERS:
        if chosen := [one for one in files if re.search(ending, one.name)]:
            return reader(chosen)
    raise ValueError(f"nobody reads {path}")


def _unpacked(path: Path) -> bytes:
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def _of_kernel(name: str, stated: str = "") -> str:
    if (
        re.match(r"(void )?(nccl|rccl|msccl|mori::|ep(dispatch|combine))", name, re.IGNORECASE)
        or stated
    ):
        return "collective"
    if name.startswith("__amd_rocclr_copyBuffer"):
        return "copy"
    return "fill" if name.startswith("__amd_rocclr_fillBuffer") else "kernel"


def _sorted(ranks: Iterable[Rank]) -> list[Rank]:
    for rank in ranks:
        for events in (
            *rank.devices.values(),
            rank.calls,
            rank.operators,
            rank.ranges,
            rank.functions,
        ):
            events.sort(key=lambda event: (event.start, -event.end))
    return sorted(ranks, key=lambda rank: -1 if rank.number is None else rank.number)


# torch.profiler

OF_CATEGORY = {
    "gpu_memcpy": "copy",
    "gpu_memset": "fill",
    "collective_comm": "collective",
    "cpu_op": "operator",
    "user_annotation": "range",
    "python_function": "function",
    "overhead": "call",
}


def _read_torch(files: list[Path]) -> Recording:
    found, ranks = Recording("torch.profiler"), {}
    for file in files:
        trace = json.loads(_unpacked(file), parse_float=Decimal)
        if "traceEvents" not in trace:
            raise ValueError(f"{file} is no trace")
        if "watch_untraced" in trace or [*file.parent.glob("times_rank*.jsonl")]:
            raise ValueError(
                f"{file} states how long a step is without the profiler: not needed so far"
            )
        found.modelled |= "modelled" in trace or bool([*file.parent.glob("*modelled.json")])
        stated = trace.get("distributedInfo") or {}
        named = re.search(r"rank[-_]?(\d+)", file.name)
        own = stated.get("rank", int(named[1]) if named else None)
        found.world_size = stated.get("world_size", found.world_size)
        found.gpu |= bool(trace.get("deviceProperties")) or any("_version" in key for key in trace)
        for event in trace["traceEvents"]:
            if event.get("ph") == "X" and (event.get("args") or {}).get("finished") is not False:
                _add_torch(ranks, own, event)
        base = trace.get("baseTimeNanoseconds", 0)
        parts = [
            [name, begin - base, *times] for name, begin, *times in trace.get("watch_parts", [])
        ]
        ranks.setdefault(own, Rank(own)).watch = parts
    found.ranks = _sorted(
        [rank for rank in ranks.values() if rank.devices or rank.operators or rank.calls]
    )
    return found


def _add_torch(ranks: dict[Any, Rank], own: int | None, event: dict[str, Any]) -> None:
    category, arguments = event.get("cat") or "", event.get("args") or {}
    number = arguments.get("rank", own)
    rank = ranks.setdefault(number, Rank(number))
    start, length = (round(1000 * Decimal(event[key])) for key in ("ts", "dur"))
    is_call = category.endswith(("_runtime", "_driver", "_sync"))
    kind = "call" if is_call else OF_CATEGORY.get(category)
    collective = str(arguments.get("Collective name") or "")
    if category == "kernel":
        kind = _of_kernel(event["name"], collective)
    if kind is None or (category.endswith("_sync") and "device" in arguments):
        return
    correlation = arguments.get("correlation_raw", arguments.get("correlation"))
    made = Event(
        kind,
        event["name"],
        start,
        start + length,
        event["tid"],
        arguments.get("stream", event["tid"]),
        correlation,
        category.endswith(("_runtime", "_driver")),
        collective,
    )
    if kind in ON_DEVICE:
        rank.devices.setdefault(arguments.get("device", event["pid"]), []).append(made)
    else:
        {"call": rank.calls, "operator": rank.operators, "range": rank.ranges}.get(
            kind, rank.functions
        ).append(made)


# rocprofv3


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def _read_csv(files: list[Path]) -> Recording:
    rank = Rank()
    for file in files:
        if file.name.endswith("kernel_trace.csv"):
            for row in _rows(file):
                rank.devices.setdefault(row["Agent_Id"], []).append(
                    _of_row(row, row["Kernel_Name"])
                )
        if file.name.endswith("api_trace.csv"):
            calls = [_of_row(row, row["Function"], "call") for row in _rows(file)]
            rank.calls += [call._replace(launches=True) for call in calls]
    counters = any("counter_collection" in file.name for file in files)
    return Recording("rocprofv3", _sorted([rank]), counters=counters)


def _of_row(row: dict[str, str], name: str, kind: str = "") -> Event:
    start, end = int(row["Start_Timestamp"]), int(row["End_Timestamp"])
    stream = row.get("Stream_Id", row.get("Queue_Id"))
    return Event(
        kind or _of_kernel(name), name, start, end, row["Thread_Id"], stream, row["Correlation_Id"]
    )


def _read_json(files: list[Path]) -> Recording:
    rank = Rank()
    (tool,) = json.loads(_unpacked(files[0]))["rocprofiler-sdk-tool"]
    names = {one["kernel_id"]: one["formatted_kernel_name"] for one in tool["kernel_symbols"]}
    records = tool["buffer_records"]
    if any(records[name] for name in ("hip_api", "hsa_api", "memory_copy", "marker_api")):
        raise ValueError("more than dispatches: not needed so far")
    for one in records["kernel_dispatch"]:
        dispatch = one["dispatch_info"]
        name = names[dispatch["kernel_id"]]
        made = Event(
            _of_kernel(name),
            name,
            one["start_timestamp"],
            one["end_timestamp"],
            stream=one["stream_id"]["handle"],
            correlation=one["correlation_id"]["internal"],
        )
        rank.devices.setdefault(dispatch["agent_id"]["handle"], []).append(made)
    return Recording(
        "rocprofv3", _sorted([rank]), counters=bool(tool["callback_records"]["counter_collection"])
    )


# rocprofv3's Perfetto trace: fields by number as in protos/perfetto/trace of
# https://github.com/google/perfetto


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message; texts and messages as bytes."""
    place = 0
    while place < len(data):
        key, place = _varint(data, place)
        if key & 7 == 0:
            value, place = _varint(data, place)
        else:
            size, place = _varint(data, place) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], place)
            value, place = data[place : place + size], place + size
        yield key >> 3, value


def _read_perfetto(files: list[Path]) -> Recording:
    """Each slice states its own begin, end and correlation id beside its begin event."""
    rank, texts = Rank(), {}
    for _, packet in _fields(_unpacked(files[0])):
        parts = list(_fields(packet))
        for kind, entry in (
            one for number, interned in parts if number == 12 for one in _fields(interned)
        ):
            own = dict(_fields(entry))
            texts[kind, own[1]] = own[2].decode()
        for event in (value for number, value in parts if number == 11):
            _add_perfetto(rank, texts, list(_fields(event)))
    return Recording("rocprofv3", _sorted([rank]))


def _add_perfetto(
    rank: Rank, texts: dict[tuple[int, int], str], parts: list[tuple[int, Any]]
) -> None:
    own = dict(parts)
    if own[9] != 1 or 3 not in own:  # 1: a slice begins
        return
    stated = {}
    for entry in (dict(_fields(value)) for number, value in parts if number == 4):
        stated[texts[3, entry[1]]] = entry.get(3, entry.get(4))
    category, name = texts[1, own[3]], texts[2, own[10]]
    kind = {"hip_api": "call", "memory_copy": "copy"}.get(category) or _of_kernel(name)
    made = Event(
        kind,
        name,
        stated["begin_ns"],
        stated["end_ns"],
        stated.get("tid"),
        stated.get("queue"),
        stated["corr_id"],
        kind == "call",
    )
    rank.calls.append(made) if kind == "call" else rank.devices.setdefault(None, []).append(made)


# rocmProfileData

RPD_CALL = (
    r"_*(hip[A-Z]|hsa_|[nr]ccl[A-Z]).*|hcc_activity_callback|BLOCKING|\w+(Table|DataSource)::\w+"
)
RPD_OPERATOR = re.compile(r"(.+?)(, seq = \d+)?, op_id = \d+(, sizes = .*)?", re.DOTALL)
RPD_KIND = {"CopyDeviceToHost": "copy", "CopyHostToDevice": "copy", "CopyDeviceToDevice": "copy",
            "FillBuffer": "fill"}  # fmt: skip


def _read_rpd(files: list[Path]) -> Recording:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(_unpacked(files[0]))
    strings = dict(connection.execute("select id, string from rocpd_string"))
    tables = {name for (name,) in connection.execute("select name from sqlite_master")}
    if "rocpd_ustring" in tables:
        arguments = dict(connection.execute("select id, string from rocpd_ustring"))
    else:
        arguments = strings
    rank = Rank()
    operators = {}
    if "ext_autogradapi" in tables:
        operators = dict(
            connection.execute("select api_ptr_id, autogradName_id from ext_autogradapi")
        )
    for number, thread, start, end, name, text in connection.execute(
        'select id, tid, start, "end", apiName_id, args_id from rocpd_api'
    ):
        event = Event("call", "", start, end, thread, correlation=number, launches=True)
        if number in operators:
            rank.operators.append(
                event._replace(kind="operator", name=strings[operators[number]], launches=False)
            )
        else:
            _add_rpd_call(rank, strings[name], arguments.get(text, ""), event)
    call_of = {
        operation: call
        for call, operation in connection.execute("select api_id, op_id from rocpd_api_ops")
    }
    for number, device, queue, start, end, name, kind in connection.execute(
        'select id, gpuId, queueId, start, "end", description_id, opType_id from rocpd_op'
    ):
        own, category = strings.get(name) or strings[kind], strings[kind]
        work = RPD_KIND.get(category) or (
            _of_kernel(own) if category in ("KernelExecution", "Task") else ""
        )
        if work:
            made = Event(work, own, start, end, stream=queue, correlation=call_of.get(number))
            rank.devices.setdefault(device, []).append(made)
    return Recording("rocmProfileData", _sorted([rank]))


def _add_rpd_call(rank: Rank, name: str, text: str, event: Event) -> None:
    if name == "UserMarker" and (found := RPD_OPERATOR.fullmatch(text)):
        rank.operators.append(event._replace(kind="operator", name=found[1], launches=False))
    elif name == "UserMarker" or not re.fullmatch(RPD_CALL, name):
        rank.ranges.append(
            event._replace(
                kind="range", name=text if name == "UserMarker" else name, launches=False
            )
        )
    else:
        rank.calls.append(event._replace(name=name))


# Logs of a system monitor


def _read_monitor(files: list[Path]) -> Recording:
    found = Recording("system monitor")
    for file in files:
        for row in _rows(file):
            found.samples |= {name for name, value in row.items() if value not in (None, "", "N/A")}
    return found


READERS = (
    (r"\.pftrace$", _read_perfetto),
    (r"\.rpd(\.gz)?$", _read_rpd),
    (r"_results\.json(\.gz)?$", _read_json),
    (r"(kernel|api)_trace\.csv$|counter_collection\.csv$", _read_csv),
    (r"^gpu_power_.*\.csv$", _read_monitor),
    (r"\.json(\.gz)?$", _read_torch),
)
"""What a file name says of its tool, and who reads such files."""
