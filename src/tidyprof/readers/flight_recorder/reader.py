"""The calls in the dumps of PyTorch's flight recorder, one file a rank, as one table.

Their layout is that of `FlightRecorder::getCollectiveTrace` (torch/csrc/distributed/c10d/FlightRecorder.hpp).
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.errors import MISSING, NO_FILE, ProfileReadError
from tidyprof.io.byte_stream import read_bytes
from tidyprof.io.guard import guarded
from tidyprof.io.plain_pickle import is_pickle, plain_objects
from tidyprof.readers.memory_snapshot.history import Structure, own_lines, source_line

LARGEST_BYTES = 256 * 2**20
"""A recorder of 20,000 calls (ten times the size that PyTorch's guide uses) with 100 frames each stays below it."""

COLUMNS = {
    **dict.fromkeys(("rank", "number", "record"), "int64"),
    **dict.fromkeys(("group", "call", "line", "stack"), "string"),
    **dict.fromkeys(("elements", "types"), "string"),
    **dict.fromkeys(("called_ns", "timeout_ms"), "int64"),
    "state": "string",
    "retired": "bool",
}
"""Columns of the table of calls."""

_RANK = re.compile(r"(\d+)(?:\.\w+)?$")
"""PyTorch writes the rank at the end of the name (`DebugInfoWriter`); an ending may have been added."""


@guarded
def read_flight_recorder(path: str | Path) -> pd.DataFrame:
    """The collectives that the dumps of a folder hold, in the order of ranks and calls.

    A row is one call of one rank: its `rank`; `group` (name of the process group) and `number` (from 1, in that group);
    `record` (from 0, in all groups); `call`, such as `gloo:all_reduce`; `line`, the innermost one that is not torch's,
    and the whole `stack` of such lines; `elements` and `types` of the inputs; `called_ns` since 1970; `timeout_ms`;
    `state` and `retired` as PyTorch writes them. Point-to-point calls are left out.

    `attrs["groups"]` has the ranks of each group as far as a dump states them, `attrs["dumps"]` rank -> file.

    Raises ProfileReadError for a folder without dumps, two dumps of one rank, and whatever is no plain dump: no pickle
    is loaded that could run code.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ProfileReadError(folder, *(_NO_FOLDER if folder.is_file() else NO_FILE if folder.exists() else MISSING))
    rows: list[dict[str, Any]] = []
    groups: dict[str, list[int]] = {}
    dumps = _dumps(folder)
    for rank, file in sorted(dumps.items()):
        structure = Structure(file, "dump of PyTorch's flight recorder")
        content = plain_objects(file, read_bytes(file, LARGEST_BYTES))
        if not isinstance(content, dict) or "entries" not in content or "pg_config" not in content:
            raise structure.wrong("its top level")
        entries = structure.rows(content, "entries")
        rows += [_row(structure, entry) | {"rank": rank} for entry in entries if not entry.get("is_p2p")]
        groups |= _groups(structure, content["pg_config"])
    table = pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)
    table.attrs = {"groups": groups, "dumps": {rank: file.name for rank, file in sorted(dumps.items())}}
    return table


_NO_FOLDER = ("a file, not a folder", "one dump was given: who is missing only all ranks can tell",
              "give the folder with the dumps of all ranks")  # fmt: skip


def _dumps(folder: Path) -> dict[int, Path]:
    """Rank -> its dump."""
    found: dict[int, Path] = {}
    for file in sorted(folder.iterdir()):
        rank = _RANK.search(file.name)
        if rank is None or not file.is_file() or not _begins_as_pickle(file):
            continue
        if int(rank[1]) in found:
            seen = f"{found[int(rank[1])].name} and {file.name} are both of rank {int(rank[1])}"
            raise ProfileReadError(folder, seen, "dumps of two runs in one folder", "give each run its own folder")
        found[int(rank[1])] = file
    if not found:
        cause = "no rank wrote one, or the folder is another one"
        cure = "look where TORCH_FR_DUMP_TEMP_FILE points; a dump's name ends with its rank"
        raise ProfileReadError(folder, "no dump of PyTorch's flight recorder", cause, cure)
    return found


def _begins_as_pickle(file: Path) -> bool:
    with file.open("rb") as opened:
        return is_pickle(opened.read(2))


def _groups(structure: Structure, configured: Any) -> dict[str, list[int]]:
    """Group -> its ranks. gloo leaves the default group's name out; the calls name it `0`."""
    if not isinstance(configured, dict) or not all(isinstance(one, dict) for one in configured.values()):
        raise structure.wrong("pg_config")
    return {
        structure.text(one, "name") or "0": sorted(map(int, re.findall(r"\d{1,9}", structure.text(one, "ranks"))))
        for one in configured.values()
    }


def _row(structure: Structure, entry: dict[str, Any]) -> dict[str, Any]:
    """One call of a dump."""
    group = entry.get("process_group")
    if not isinstance(group, tuple) or not group or not isinstance(group[0], str):
        raise structure.wrong("process_group")
    frames = structure.frames(entry)
    sizes, types = (entry.get(name, []) for name in ("input_sizes", "input_dtypes"))
    if not all(isinstance(one, list) and all(type(size) is int for size in one) for one in sizes):
        raise structure.wrong("input_sizes")
    return {
        "group": group[0],
        "number": structure.stated(entry, "collective_seq_id"),
        "record": structure.stated(entry, "record_id"),
        "call": structure.text(entry, "profiling_name"),
        "line": source_line(frames) or "not recorded",
        "stack": " < ".join(own_lines(frames)) or None,
        "elements": ", ".join(str(math.prod(one)) for one in sizes),
        "types": ", ".join(map(str, types)),
        "called_ns": structure.stated(entry, "time_created_ns"),
        "timeout_ms": structure.stated(entry, "timeout_ms"),
        "state": structure.text(entry, "state"),
        "retired": bool(entry.get("retired")),
    }
