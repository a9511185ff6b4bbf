"""The calls in the dumps of PyTorch's flight recorder, one file a rank, as one table.

Their layout is that of `FlightRecorder::getCollectiveTrace`
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
"""A recorder of 20,000 calls (ten times the size that PyTorch's guide uses) with 100 frames each
stays below it.
"""

MAX_JSON_VALUES = 10_000_000
"""Lists, dictionaries and values between commas: each takes up to 200 bytes in Python."""

MAX_DIMENSIONS = 64
"""Dimensions of a tensor: PyTorch's own limit (`TensorIterator`)."""

COLUMNS = {
    **dict.fromkeys(("rank", "number", "record"), "int64"),
    **dict.fromkeys(("group", "call", "line", "stack"), "string"),
    **dict.fromkeys(("elements", "types"), "string"),
    "called_ns": "Int64",
    "timeout_ms": "int64",
    "state": "string",
    **dict.fromkeys(("retired", "message"), "bool"),
}
"""Columns of the table of calls."""

_LIBRARY = re.compile(r"(^|/)(site|dist)-packages/|(^|/)lib(64)?/python\d|^<frozen ")

Memberships = dict[str, dict[tuple[int, ...], str]]
"""Group -> the ranks of each group of this name (several where groups were split off together) ->
a name for each of these.
"""


@guarded
def read_flight_recorder(path: str | Path) -> pd.DataFrame:
    """The calls that the dumps of a folder hold, in the order of ranks and calls.

    A row is one call of one rank: its `rank`; `group` (name of the process group) and `number`
    (from 1, in that group); `record` (from 0, in all groups); `call`, such as `gloo:all_reduce`;
    `line`, the innermost line that is neither torch's nor a library's, and the whole `stack` of
    lines that are not torch's; `elements` and `types` of the inputs; `called_ns` since 1970, <NA>
    in a dump without times; `timeout_ms`; `state` and `retired` as PyTorch writes them; `message`,
    whether it is a send or a receive between two ranks: these have `number`s of their own.

    `attrs["groups"]` has the ranks of each group as far as a dump states them, `attrs["dumps"]`
    rank -> file, `attrs["unreadable"]` rank -> a file named as its dump that can't be read,
    `attrs["logs"]` rank -> how a log beside the dumps ends, `attrs["written_ns"]` rank -> when its
    file was changed last, in ns since 1970.

    Raises ProfileReadError for a folder without dumps, two dumps of one rank, dumps that state
    different ranks for one group, and whatever begins like a dump and is none. No pickle that could
    run code is loaded.
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
    # Names of groups are settled by all dumps together, so the rows get theirs afterwards.
    names = _names(folder, stated)
    for row in rows:
        row["group"] = names[row["group"]].get(
            stated[row["rank"]].get(row["group"], ()), row["group"]
        )
    # As objects, because floats would round the times of dumps that lack some.
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


_NO_FOLDER = ("a file, not a folder", "one dump was given: who is missing only all ranks can tell",
              "give the folder with the dumps of all ranks")  # fmt: skip


def _content(file: Path) -> Any:
    """The content of a dump, which is a pickle or JSON."""
    data = read_bytes(file, LARGEST_BYTES)
    if is_pickle(data):
        return plain_objects(file, data)
    for _ in in_texts(file, [data]):
        if sum(map(data.count, (b"{", b"[", b","))) > MAX_JSON_VALUES:
            raise ProfileReadError(file, f"JSON of more than {MAX_JSON_VALUES} values", *DAMAGED)
    try:
        return json.loads(data)
    except ValueError:
        raise ProfileReadError(file, "JSON that cannot be read", *DAMAGED) from None


def _groups(structure: Structure, configured: Any) -> dict[str, tuple[int, ...]]:
    """Group -> its ranks, as one dump states them."""
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
    """Distinct names for groups that share a name and no rank, as `split_group` makes them: they
    are named by their ranks.

    Raises ProfileReadError where different groups of one name share ranks: they are of two runs.
    """
    members: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for of_rank in stated.values():
        for name, ranks in of_rank.items():
            # gloo leaves the name out, and numbers the ranks of its newest group from 0.
            if name:
                members[name].add(ranks)
    for name, several in members.items():
        if sum(map(len, several)) > len({rank for ranks in several for rank in ranks}):
            seen = f"dumps that state different ranks for group {name}"
            raise ProfileReadError(
                folder, seen, "dumps of two runs in one folder", "give each run its own folder"
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
    """All ranks of a job with gloo, as far as its dumps tell: ranks are numbered without gaps."""
    known = {
        *stated,
        *unreadable,
        *(rank for of_rank in stated.values() for rank in of_rank.get("", ())),
    }
    return list(range(max(known) + 1)) if max(known) < MAX_RANKS else sorted(known)


MAX_RANKS = 100_000
"""Ranks of a job. Gaps between higher numbers are not filled."""


def _row(structure: Structure, entry: dict[str, Any]) -> dict[str, Any]:
    """One call of a dump."""
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
    """The number of elements of each input of a call."""
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
