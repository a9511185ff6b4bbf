"""Reader for snapshots of PyTorch's memory allocator."""

from __future__ import annotations

from collections import Counter
from os import PathLike
from pathlib import Path
from typing import Any

from tidyprof.errors import FOREIGN
from tidyprof.io.byte_stream import read_bytes
from tidyprof.io.guard import guarded
from tidyprof.io.plain_pickle import plain_objects
from tidyprof.io.sqlite import database_files
from tidyprof.readers.memory_snapshot.history import (
    Structure,
    failed_allocations,
    is_without_times,
    memory_over_time,
    records_of,
    source_line,
)
from tidyprof.readers.memory_snapshot.recognition import PATTERNS, is_snapshot
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import ORDER, Origin, Profile
from tidyprof.tables.damage import without_damage
from tidyprof.tables.profiles import (
    Part,
    profile_of,
    rank_in_name,
    refuse_mixed_ranks,
    selected_rank,
)

MAXIMUM_SNAPSHOT_BYTES = 2**29
"""Default maximum size of an uncompressed snapshot. The Python objects in a snapshot take at least
ten times as much memory. torch writes several KB per action (docstring of
`torch.cuda.memory._dump_snapshot`), so this limit allows about 100,000 actions.
"""


@guarded
def read_memory_snapshot(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_SNAPSHOT_BYTES,
) -> Profile:
    """Read a snapshot from `torch.cuda.memory._dump_snapshot` without running any code in the
    pickle.

    - path: path to a snapshot, or to a folder with one snapshot per rank. In a folder, the name of
      each snapshot or of its subfolder must contain `rank0`, `rank1`, and so on.
    - rank: see `tidyprof.read`.
    - origin: see `tidyprof.read`.
    - maximum_bytes: see `tidyprof.read`.

    `events` has one row per allocator action. The kind is `runtime`, and the duration is 0. Times
    are in nanoseconds since 1970. These columns have a special meaning:

    - name: type of action, such as `alloc`, `free_requested`, `free_completed`, `segment_alloc`,
      `segment_free` or `oom`
    - bytes: requested size before rounding, or size of a segment. For `oom`, it is the size that
      couldn't be allocated.
    - address: address in device memory, or `<NA>` for `oom`
    - source_line: innermost Python function outside torch, in the form `file(line): name`

    `counters` contains three quantities in bytes. `requested memory` is the memory that tensors
    requested, and `reserved memory` is the size of all segments. Both quantities have a value after
    each action and are computed backward from the final state. `free memory` is the device's free
    memory at each `oom`.

    `meta` contains the common entries and these:

    - blocks: list of blocks for `tidyprof.memory_blocks`
    - oom: list with a dictionary per failed allocation. The keys of each dictionary are `device`,
      `requested_bytes`, `free_bytes`, `source_line` and `rank`.
    - allocator_settings: settings from the file
    - times: `order` if the file has no times. In that case, `start_ns` numbers the actions of each
      device, starting with 1.

    Raises ProfileReadError if a file can't be read.
    """
    path = Path(path)
    files, ignored = database_files(path, is_snapshot, PATTERNS, "snapshots")
    texts = Codes()
    read = [_part(file, path, texts, maximum_bytes) for file in files]
    if path.is_dir():
        refuse_mixed_ranks(path, [(part.path.name, part.rank) for part in read])
    read[0].ignored = dict.fromkeys(ignored, FOREIGN)
    chosen = selected_rank(path, read, rank)
    lists = {
        name: [one | {"rank": part.rank} for part in chosen for one in part.facts.pop(name)]
        for name in ("blocks", "oom")
    }
    return profile_of(chosen, texts, {"tool": "PyTorch memory snapshot"} | lists, origin)


def _part(file: Path, root: Path, texts: Codes, maximum_bytes: int) -> Part:
    snapshot = plain_objects(file, read_bytes(file, maximum_bytes))
    structure = Structure(file)
    blocks = _blocks(structure, snapshot)
    records = records_of(structure, snapshot, texts)
    without_damage(file, records)
    oom = failed_allocations(records, texts)
    part = Part(file, records, facts={"blocks": blocks, "oom": oom}, rank=rank_in_name(file, root))
    part.warnings += _out_of_memory(file, oom)
    part.counters = list(memory_over_time(records, _at_the_end(blocks), texts, part.warnings))
    if not records.total:
        part.warnings.append(
            f"{file.name}: the snapshot has no allocator history. It shows which memory is"
            " allocated, but it doesn't show which code allocated the memory or when. Next step:"
            " call torch.cuda.memory._record_memory_history() before the first allocation."
        )
    elif is_without_times(snapshot):
        part.facts["times"] = ORDER
        part.warnings.append(
            f"{file.name}: no action has a time, because torch before 2.2 doesn't record times."
            " start_ns numbers the actions of each device in order, and durations are unknown."
        )
    settings = snapshot.get("allocator_settings")
    if isinstance(settings, dict):
        plain = {
            name: value for name, value in settings.items() if isinstance(value, str | int | float)
        }
        part.facts["allocator_settings"] = plain
    return part


def _out_of_memory(file: Path, failed: list[dict[str, Any]]) -> list[str]:
    if not failed:
        return []
    last = failed[-1]
    requested, free = (
        "an unknown amount" if amount is None else f"{amount / 2**20:,.1f} MiB"
        for amount in (last["requested_bytes"], last["free_bytes"])
    )
    return [
        f"{file.name}: out of memory on device {last['device']}: {requested} was requested while"
        f" {free} was free, in {last['source_line'] or 'an unknown function'}"
        + (f"; {len(failed) - 1} earlier requests also failed." if failed[1:] else ".")
    ]


def _blocks(structure: Structure, snapshot: Any) -> list[dict[str, Any]]:
    """Return the blocks of all segments in order, with the column names of `memory_blocks` as
    keys.
    """
    found = []
    for segment in structure.rows(snapshot, "segments"):
        of_segment = {
            "device": structure.stated(segment, "device", 32),
            "stream": structure.stated(segment, "stream"),
            "segment": structure.stated(segment, "address"),
            "segment_bytes": structure.stated(segment, "total_size"),
        }
        for block in structure.rows(segment, "blocks"):
            frames = structure.frames(block)
            found.append(
                of_segment
                | {
                    "state": structure.text(block, "state"),
                    "bytes": structure.stated(block, "size"),
                    "requested_bytes": structure.stated(block, "requested_size"),
                    "source_line": source_line(frames),
                    "frames": " < ".join(frames) or None,
                }
            )
    return found


def _at_the_end(blocks: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    total: Counter[tuple[str, int]] = Counter()
    for block in blocks:
        total["reserved memory", block["device"]] += block["bytes"]
        if block["state"] != "inactive":
            total["requested memory", block["device"]] += block["requested_bytes"]
    return total
