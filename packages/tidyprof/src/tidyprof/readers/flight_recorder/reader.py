"""Reader for PyTorch flight recorder dumps: a table of calls from one file per rank.

PyTorch's `FlightRecorder::getCollectiveTrace` defines the layout
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
"""Size limit of a dump. A dump of 20,000 calls with 100 frames each is smaller; PyTorch's guide
uses a tenth of that number of calls.
"""

MAX_JSON_VALUES = 10_000_000
"""Maximum number of lists, dictionaries and values, which take up to 200 bytes each in Python."""

MAX_DIMENSIONS = 64
"""Maximum number of tensor dimensions, as in PyTorch (`TensorIterator`)."""

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
"""Group name -> ranks of each group with this name -> unique name. `split_group` can create several
groups with the same name.
"""


@guarded
def read_flight_recorder(path: str | Path) -> pd.DataFrame:
    """Read all calls from a folder of dumps, ordered by rank and call.

    Each row is one call by one rank:
      - rank, group: rank that made the call, and name of its process group
      - number: number of the call in that group, starting with 1
      - record: number of the call in all groups, starting with 0
      - call: for example `gloo:all_reduce`
      - line: innermost line outside torch and libraries
      - stack: all lines outside torch
      - elements, types: number of elements and element type of each input
      - called_ns: nanoseconds since 1970, or <NA> in a dump without times
      - timeout_ms, state, retired: values from PyTorch
      - message: True for a send or receive between two ranks, which are numbered separately

    `attrs` contains these entries:
      - groups: name of a group -> its ranks, if a dump contains them
      - dumps: rank -> file
      - unreadable: rank -> an unreadable file with the name of a dump
      - logs: rank -> end of the log next to the dumps
      - written_ns: rank -> last change of its file, in nanoseconds since 1970

    Raises ProfileReadError if the folder has no dumps, if two dumps have the same rank, if dumps
    disagree about the ranks of a group, or if a file starts like a dump but is invalid. Pickles
    that could run code are rejected.
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
    # Unique group names depend on all dumps, so the rows get these names last.
    names = _names(folder, stated)
    for row in rows:
        row["group"] = names[row["group"]].get(
            stated[row["rank"]].get(row["group"], ()), row["group"]
        )
    # Float columns would round the times if some times are missing.
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


_NO_FOLDER = ("a file instead of a folder", "one dump was passed, but tidyprof needs all ranks",
              "pass the folder that contains the dumps of all ranks")  # fmt: skip


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
        raise ProfileReadError(file, "the JSON text can't be read", *DAMAGED) from None


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
    """Give distinct names to groups that share a name but no rank, as `split_group` creates them.
    The names include the ranks.

    Raises ProfileReadError if groups with the same name share ranks, because they come from two
    runs.
    """
    members: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for of_rank in stated.values():
        for name, ranks in of_rank.items():
            # gloo omits the name and numbers the ranks of its newest group, starting with 0.
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
    """Return all ranks of a gloo job, based on its dumps. Ranks are numbered without gaps."""
    known = {
        *stated,
        *unreadable,
        *(rank for of_rank in stated.values() for rank in of_rank.get("", ())),
    }
    return list(range(max(known) + 1)) if max(known) < MAX_RANKS else sorted(known)


MAX_RANKS = 100_000
"""Maximum number of ranks in a job. Gaps between higher numbers aren't filled."""


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
