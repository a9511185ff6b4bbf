"""Reader for PyTorch flight recorder dumps. It combines one dump per rank into a table of calls.

PyTorch's `FlightRecorder::getCollectiveTrace` defines the format
(torch/csrc/distributed/c10d/FlightRecorder.hpp).
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.errors import DAMAGED, MISSING, NO_FILE, ProfileReadError
from tidyprof.io.byte_stream import in_texts, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.io.plain_pickle import is_pickle, plain_objects
from tidyprof.readers.flight_recorder.folder import MAX_DIGITS, dumps_in
from tidyprof.readers.memory_snapshot.history import Structure, own_lines, source_line

LARGEST_BYTES = 256 * 2**20
"""Maximum size of a dump. A dump of 20,000 calls with 100 frames each is smaller than this limit,
and PyTorch's guide uses a tenth of that number of calls.
"""

MAX_JSON_VALUES = 10_000_000
"""Maximum number of lists, dictionaries and values in a file. Each of them takes up to 200 bytes in
Python.
"""

MAX_DIMENSIONS = 64
"""Maximum number of tensor dimensions, the same as in PyTorch (`TensorIterator`)."""

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

Memberships = dict[str, dict[tuple[int, ...], str]]
"""Unique names of process groups, by group name and ranks. Several groups can have the same name,
because `split_group` may reuse a name.
"""


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
    - unreadable: unreadable dump file of each rank
    - logs: end of each rank's log, if there are logs next to the dumps
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
    rows: list[dict[str, Any]] = []
    dumps = dumps_in(folder)
    stated: dict[int, dict[str, tuple[int, ...]]] = {}
    for rank, file in sorted(dumps.readable.items()):
        structure = Structure(file, "dump of PyTorch's flight recorder")
        content = _content(file)
        if not isinstance(content, dict) or "entries" not in content or "pg_config" not in content:
            raise structure.wrong("its top level")
        rows += [
            _row(structure, entry) | {"rank": rank} for entry in structure.rows(content, "entries")
        ]
        stated[rank] = _groups(structure, content["pg_config"])
    # Unique group names depend on all dumps, so they are added to the rows last.
    names = _names(folder, stated)
    for row in rows:
        row["group"] = names[row["group"]].get(
            stated[row["rank"]].get(row["group"], ()), row["group"]
        )
    # If some times were missing, pandas would use float columns and round the other times.
    table = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object).astype(COLUMNS)
    groups = {name: list(ranks) for of_name in names.values() for ranks, name in of_name.items()}
    if any("" in of_rank for of_rank in stated.values()):
        groups["0"] = _world(stated, dumps.unreadable)
    table.attrs = {
        "groups": groups,
        "dumps": {rank: file.name for rank, file in sorted(dumps.readable.items())},
    }
    table.attrs |= {"unreadable": dumps.unreadable, "logs": dumps.logs}
    table.attrs["written_ns"] = {
        rank: file.stat().st_mtime_ns for rank, file in dumps.readable.items()
    }
    return table


_NO_FOLDER = (
    "the path is a file instead of a folder",
    "one dump was passed, but tidyprof needs all ranks",
    "pass the folder that contains the dumps of all ranks",
)


def _content(file: Path) -> Any:
    data = read_bytes(file, LARGEST_BYTES)
    if is_pickle(data):
        return plain_objects(file, data)
    for _ in in_texts(file, [data]):
        if sum(map(data.count, (b"{", b"[", b","))) > MAX_JSON_VALUES:
            raise ProfileReadError(file, f"JSON with more than {MAX_JSON_VALUES} values", *DAMAGED)
    try:
        return json.loads(data)
    except ValueError:
        raise ProfileReadError(file, "the file isn't valid JSON", *DAMAGED) from None


def _groups(structure: Structure, configured: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(configured, dict) or not all(
        isinstance(one, dict) for one in configured.values()
    ):
        raise structure.wrong("pg_config")
    found = {}
    for one in configured.values():
        ranks = re.findall(r"[0-9]+", structure.text(one, "ranks"))
        structure.count(len(ranks), "ranks")
        if any(len(rank) > MAX_DIGITS for rank in ranks):
            raise structure.wrong("ranks")
        found[structure.text(one, "name")] = tuple(sorted({int(rank) for rank in ranks}))
    return found


def _names(folder: Path, stated: dict[int, dict[str, tuple[int, ...]]]) -> Memberships:
    """Give unique names to groups that have the same name but no common rank. `split_group` creates
    such groups. The unique names include the ranks.

    Raises ProfileReadError if groups with the same name have a rank in common, because then the
    dumps come from two runs.
    """
    members: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for of_rank in stated.values():
        for name, ranks in of_rank.items():
            # gloo omits the group name and numbers the ranks of its newest group from 0.
            if name:
                members[name].add(ranks)
    for name, several in members.items():
        if sum(map(len, several)) > len({rank for ranks in several for rank in ranks}):
            seen = f"the dumps disagree about the ranks of group {name}"
            raise ProfileReadError(
                folder,
                seen,
                "the folder contains dumps from two runs",
                "put the dumps of each run into a separate folder",
            )
    names: Memberships = defaultdict(dict)
    for name, several in members.items():
        for ranks in several:
            own = f"{name} of {ranks[0]} to {ranks[-1]}" if len(several) > 1 and ranks else name
            names[name][ranks] = (
                own if own not in names[name].values() else f"{name} of {list(ranks)}"
            )
    return names


def _world(stated: dict[int, dict[str, tuple[int, ...]]], unreadable: dict[int, str]) -> list[int]:
    """Return all ranks of a gloo job, based on its dumps. The ranks are consecutive numbers."""
    known = {
        *stated,
        *unreadable,
        *(rank for of_rank in stated.values() for rank in of_rank.get("", ())),
    }
    return list(range(max(known) + 1)) if max(known) < MAX_RANKS else sorted(known)


MAX_RANKS = 100_000
"""Maximum number of ranks in a job. In larger jobs, missing ranks aren't filled in."""


def _row(structure: Structure, entry: dict[str, Any]) -> dict[str, Any]:
    group = entry.get("process_group")
    if not isinstance(group, tuple | list) or not group or not isinstance(group[0], str):
        raise structure.wrong("process_group")
    frames = structure.frames(entry)
    message = bool(entry.get("is_p2p"))
    types = entry.get("input_dtypes", [])
    if not isinstance(types, list) or not all(
        isinstance(one, str) and len(one) < 100 for one in types
    ):
        raise structure.wrong("input_dtypes")
    structure.count(len(types), "input_dtypes")
    own = [frame for frame in own_lines(frames) if not _LIBRARY.search(frame)]
    return {
        "group": group[0],
        "number": structure.stated(
            entry, "p2p_seq_id" if message and "p2p_seq_id" in entry else "collective_seq_id"
        ),
        "record": structure.stated(entry, "record_id"),
        "call": structure.text(entry, "profiling_name"),
        "line": source_line(own or frames) or "not recorded",
        "stack": " < ".join(own_lines(frames)) or None,
        "elements": ", ".join(_elements(structure, entry)),
        "types": ", ".join(types),
        "called_ns": None
        if entry.get("time_created_ns") is None
        else structure.stated(entry, "time_created_ns"),
        "timeout_ms": structure.stated(entry, "timeout_ms"),
        "state": structure.text(entry, "state"),
        "retired": bool(entry.get("retired")),
        "message": message,
    }


def _elements(structure: Structure, entry: dict[str, Any]) -> list[str]:
    sizes = entry.get("input_sizes", [])
    if not isinstance(sizes, list):
        raise structure.wrong("input_sizes")
    structure.count(len(sizes), "input_sizes")
    found = []
    for one in sizes:
        if (
            not isinstance(one, list)
            or len(one) > MAX_DIMENSIONS
            or not all(type(size) is int for size in one)
        ):
            raise structure.wrong("input_sizes")
        if not all(0 <= size < 2**63 for size in one) or math.prod(one) >= 2**63:
            raise structure.wrong("input_sizes")
        found.append(str(math.prod(one)))
    return found
