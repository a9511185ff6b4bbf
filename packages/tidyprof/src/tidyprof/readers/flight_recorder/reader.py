"""Reader for PyTorch flight recorder dumps. It combines one dump per rank into a table of calls.

PyTorch's `FlightRecorder::getCollectiveTrace` defines the format
(torch/csrc/distributed/c10d/FlightRecorder.hpp).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pandas as pd

from tidyprof.errors import DAMAGED, MISSING, NO_FILE, ProfileReadError
from tidyprof.io.byte_stream import is_pickle, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.io.plain_pickle import converted, plain_objects
from tidyprof.readers.flight_recorder.folder import TWO_RUNS, dumps_in
from tidyprof.readers.python_frames import Frame, Int64, own_lines, python_lines, source_line

LARGEST_BYTES = 256 * 2**20
"""Maximum size of a dump. A dump of 20,000 calls with 100 frames each is smaller than this limit,
and PyTorch's guide uses a tenth of that number of calls.
"""

MAX_JSON_VALUES = 10_000_000
"""Maximum number of lists, dictionaries and values in a file. Each of them takes up to 200 bytes in
Python.
"""

_Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Sizes = Annotated[list[_Size], msgspec.Meta(max_length=64)]
"""The sizes of a tensor. The maximum number of dimensions is the same as in PyTorch
(`TensorIterator`).
"""


class _Call(msgspec.Struct):
    record_id: Int64
    profiling_name: str
    timeout_ms: Int64
    state: str
    process_group: Annotated[list[str], msgspec.Meta(min_length=1)]
    collective_seq_id: Int64 | None = None
    p2p_seq_id: Int64 | None = None
    time_created_ns: Int64 | None = None
    is_p2p: bool = False
    retired: bool = False
    input_sizes: list[_Sizes] = []
    input_dtypes: list[Annotated[str, msgspec.Meta(max_length=99)]] = []
    frames: list[Frame] = []


class _Group(msgspec.Struct):
    name: str
    ranks: Annotated[str, msgspec.Meta(pattern=r"^[^0-9]*([0-9]{1,6}([^0-9]+|$))*$")]


class _Dump(msgspec.Struct):
    entries: list[_Call]
    pg_config: dict[str, _Group]


COLUMNS = {
    **dict.fromkeys(("rank", "number", "record"), "int64"),
    **dict.fromkeys(("group", "call", "line", "stack"), "string"),
    **dict.fromkeys(("elements", "types"), "string"),
    "called_ns": "Int64",
    "timeout_ms": "int64",
    "state": "string",
    **dict.fromkeys(("retired", "message"), "bool"),
}

_LIBRARY = re.compile(r"(^|/)(site|dist)-packages/|(^|/)lib(64)?/python\d|^<frozen ")

_Groups = dict[str, tuple[int, ...]]
"""The ranks of each process group in a dump, by the group's name."""


@guarded
def read_flight_recorder(path: str | Path) -> pd.DataFrame:
    """Read all calls from a folder of dumps, sorted by rank and call.

    Each row is one call by one rank:

    - rank: rank that made the call
    - group: name of the rank's process group
    - number: sequence number of the call in the group, starting with 1
    - record: sequence number of the call across all groups, starting with 0
    - call: name of the call, such as `gloo:all_reduce`
    - line: innermost line of code outside torch and libraries
    - stack: all lines of code outside torch
    - elements: number of elements in each input
    - types: element type of each input
    - called_ns: time of the call in nanoseconds since 1970, or `<NA>` if the dump has no times
    - timeout_ms: timeout from PyTorch
    - state: state from PyTorch
    - retired: flag from PyTorch
    - message: True if the call is a send or receive between two ranks. These calls are numbered
      separately.

    `attrs` contains these entries:

    - groups: ranks of each named group, if a dump lists them
    - dumps: dump file of each rank
    - unreadable: file of each rank that is named like the dumps but isn't a dump
    - written_ns: last modification time of each rank's dump, in nanoseconds since 1970

    Raises ProfileReadError in these cases:

    - The folder contains no dumps.
    - Two dumps have the same rank.
    - Dumps disagree about the ranks of a group.
    - A file starts like a dump but is invalid.
    - A pickle could run code.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ProfileReadError(
            folder, *(_NO_FOLDER if folder.is_file() else NO_FILE if folder.exists() else MISSING)
        )
    dumps = dumps_in(folder)
    contents = {rank: _content(file) for rank, file in sorted(dumps.readable.items())}
    stated = {rank: _groups(dump) for rank, dump in contents.items()}
    names = _names(folder, stated)
    rows = []
    for rank, dump in contents.items():
        for entry in dump.entries:
            name = entry.process_group[0]
            group = names.get((name, stated[rank].get(name, ())), name)
            rows.append(_row(dumps.readable[rank], entry) | {"rank": rank, "group": group})
    # If some times were missing, pandas would use float columns and round the other times.
    table = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object).astype(COLUMNS)
    groups = {name: list(ranks) for (_, ranks), name in names.items()}
    of_gloo = [of_rank[""] for of_rank in stated.values() if "" in of_rank]
    if of_gloo:
        # gloo only lists the ranks of its newest group. The ranks of a job are consecutive numbers.
        known = [*stated, *dumps.unreadable, *(rank for ranks in of_gloo for rank in ranks)]
        groups["0"] = list(range(max(known) + 1))
    files = sorted(dumps.readable.items())
    table.attrs = {
        "groups": groups,
        "dumps": {rank: file.name for rank, file in files},
        "unreadable": dumps.unreadable,
        "written_ns": {rank: file.stat().st_mtime_ns for rank, file in files},
    }
    return table


_NO_FOLDER = (
    "the path is a file instead of a folder",
    "one dump was passed, but tidyprof needs all ranks",
    "pass the folder that contains the dumps of all ranks",
)


_WHAT = "dump of PyTorch's flight recorder"


def _content(file: Path) -> _Dump:
    data = read_bytes(file, LARGEST_BYTES)
    if is_pickle(data):
        return converted(file, plain_objects(file, data), _Dump, _WHAT)
    if sum(map(data.count, (b"{", b"[", b","))) > MAX_JSON_VALUES:
        raise ProfileReadError(file, f"JSON with more than {MAX_JSON_VALUES} values", *DAMAGED)
    try:
        return msgspec.json.decode(data, type=_Dump)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProfileReadError(file, f"the file isn't a {_WHAT} ({error})", *DAMAGED) from None


def _groups(dump: _Dump) -> _Groups:
    return {
        one.name: tuple(sorted(map(int, {*re.findall(r"[0-9]+", one.ranks)})))
        for one in dump.pg_config.values()
    }


def _names(folder: Path, stated: dict[int, _Groups]) -> dict[tuple[str, tuple[int, ...]], str]:
    """Return a unique name for each group name and its ranks. `split_group` creates groups that
    have the same name but no common rank. Their unique names include the ranks.

    Raises ProfileReadError if groups with the same name have a rank in common, because then the
    dumps come from two runs.
    """
    members: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for of_rank in stated.values():
        for name, ranks in of_rank.items():
            # gloo omits the group name and numbers the ranks of its newest group from 0.
            if name:
                members[name].add(ranks)
    names = {}
    for name, several in members.items():
        if sum(map(len, several)) > len({rank for ranks in several for rank in ranks}):
            raise ProfileReadError(
                folder, f"the dumps disagree about the ranks of group {name}", *TWO_RUNS
            )
        for ranks in several:
            is_shared = len(several) > 1 and ranks
            names[name, ranks] = f"{name} of {ranks[0]} to {ranks[-1]}" if is_shared else name
    return names


def _row(file: Path, entry: _Call) -> dict[str, Any]:
    lines = python_lines(entry.frames)
    own = [line for line in own_lines(lines) if not _LIBRARY.search(line)]
    number = entry.p2p_seq_id if entry.is_p2p else None
    number = entry.collective_seq_id if number is None else number
    elements = [math.prod(sizes) for sizes in entry.input_sizes]
    if number is None or max(elements, default=0) >= 2**63:
        raise ProfileReadError(
            file, f"the file isn't a {_WHAT} (record {entry.record_id} is no call)", *DAMAGED
        )
    return {
        "number": number,
        "record": entry.record_id,
        "call": entry.profiling_name,
        "line": source_line(own or lines) or "not recorded",
        "stack": " < ".join(own_lines(lines)) or None,
        "elements": ", ".join(map(str, elements)),
        "types": ", ".join(entry.input_dtypes),
        "called_ns": entry.time_created_ns,
        "timeout_ms": entry.timeout_ms,
        "state": entry.state,
        "retired": entry.retired,
        "message": entry.is_p2p,
    }
