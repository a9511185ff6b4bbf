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
"""Unpacked bytes that are accepted by default: as objects they take ten times as much or more.
torch writes several KB for each action (docstring of `torch.cuda.memory._dump_snapshot`), so this
is some 100,000 actions.
"""


@guarded
def read_memory_snapshot(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_SNAPSHOT_BYTES,
) -> Profile:
    """Read what `torch.cuda.memory._dump_snapshot` writes, without running code that a pickle may
    hold.

    path -- a snapshot, or a folder with one per rank, with `rank0`, `rank1`, ... in the name of
            each snapshot or of its folder.
    rank, origin, maximum_bytes -- as of `tidyprof.read`.

    `events` has a row for each action of the allocator in the recorded history, kind `runtime`,
    duration 0, times in ns since 1970:
      name         `alloc`, `free_requested`, `free_completed`, `segment_alloc`, `segment_free`,
                   `oom`, ...
      bytes        the size that was asked for, not rounded; for segments their size; for `oom` the
                   size that could not be had
      address      in the device's memory, <NA> for `oom`
      source_line  innermost Python function that is not torch's own, as `file(line): name`

    `counters` has, in bytes and after each action, `requested memory` (by tensors) and `reserved
    memory` (segments), worked out backwards from the state at the end, and `free memory` of the
    device at each `oom`.

    `meta` has, besides the common entries, `blocks` (see `tidyprof.memory_blocks`), `oom` (a dict
    for each allocation that failed: device, requested_bytes, free_bytes, source_line, rank),
    `allocator_settings`, and `times`, which is `order` where the file has no times: start_ns then
    numbers the actions of each device from 1.

    Raises ProfileReadError, whose one line says what was found and what to do.
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
            f"{file.name}: no history of the allocator: what is there at the end is known, not who"
            " asked for it when. Next step: call torch.cuda.memory._record_memory_history() before"
            " the first allocation."
        )
    elif is_without_times(snapshot):
        part.facts["times"] = ORDER
        part.warnings.append(
            f"{file.name}: no action has a time, as torch before 2.2 wrote it: start_ns numbers the"
            " actions of a device in their order, and no duration or span is known."
        )
    settings = snapshot.get("allocator_settings")
    if isinstance(settings, dict):
        plain = {
            name: value for name, value in settings.items() if isinstance(value, str | int | float)
        }
        part.facts["allocator_settings"] = plain
    return part


def _out_of_memory(file: Path, failed: list[dict[str, Any]]) -> list[str]:
    """A warning about the last allocation that failed, if there is one."""
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
        + (f"; {len(failed) - 1} requests failed before." if failed[1:] else ".")
    ]


def _blocks(structure: Structure, snapshot: Any) -> list[dict[str, Any]]:
    """The blocks of all segments in order: plain values, named as the columns of
    `memory_blocks`.
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
    """Quantity and device -> bytes when the snapshot was taken."""
    total: Counter[tuple[str, int]] = Counter()
    for block in blocks:
        total["reserved memory", block["device"]] += block["bytes"]
        if block["state"] != "inactive":
            total["requested memory", block["device"]] += block["requested_bytes"]
    return total
