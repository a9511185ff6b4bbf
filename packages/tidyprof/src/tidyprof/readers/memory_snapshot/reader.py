"""Reader for snapshots of PyTorch's memory allocator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import pandas as pd

from tidyprof.errors import FOREIGN
from tidyprof.io.byte_stream import read_bytes
from tidyprof.io.guard import guarded
from tidyprof.io.plain_pickle import converted, plain_objects
from tidyprof.io.sqlite import database_files
from tidyprof.readers.memory_snapshot.recognition import PATTERNS, is_snapshot
from tidyprof.readers.python_frames import Frame, Int64, python_lines, source_line
from tidyprof.tables.codes import ABSENT, KIND_CODE, NO_TEXT, Codes
from tidyprof.tables.contract import ORDER, Origin, Profile
from tidyprof.tables.damage import without_damage
from tidyprof.tables.profiles import (
    Part,
    profile_of,
    rank_in_name,
    refuse_mixed_ranks,
    selected_rank,
)
from tidyprof.tables.records import Records

MAXIMUM_SNAPSHOT_BYTES = 2**29
"""Default maximum size of an uncompressed snapshot. The Python objects in a snapshot take at least
ten times as much memory. torch writes several KB per action (docstring of
`torch.cuda.memory._dump_snapshot`), so this limit allows about 100,000 actions.
"""

CHANGES = {
    "requested memory": {"alloc": 1, "free_completed": -1},
    "reserved memory": {
        "segment_alloc": 1,
        "segment_map": 1,
        "segment_free": -1,
        "segment_unmap": -1,
    },
}
"""How each action changes each quantity: 1 adds the action's size, and -1 subtracts it. The size of
an `alloc` is the requested size before rounding (record_trace in PyTorch's
c10/cuda/CUDACachingAllocator.cpp).
"""

_LATEST_US = 2**52


class _Block(msgspec.Struct, gc=False):
    state: str
    size: Int64
    requested_size: Int64
    frames: list[Frame] = []


class _Segment(msgspec.Struct, gc=False):
    device: Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
    stream: Int64
    address: Int64
    total_size: Int64
    blocks: list[_Block] = []


class _Action(msgspec.Struct, gc=False):
    action: str
    size: Int64 = ABSENT
    stream: Int64 = ABSENT
    addr: Int64 = ABSENT
    time_us: Int64 = ABSENT
    device_free: Int64 = ABSENT
    frames: list[Frame] = []


class _Snapshot(msgspec.Struct):
    segments: list[_Segment] = []
    device_traces: list[list[_Action]] = []
    allocator_settings: Any = None


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
    texts = Codes({None: NO_TEXT})
    read = [_part(file, path, texts, maximum_bytes) for file in files]
    if path.is_dir():
        refuse_mixed_ranks(path, [part.extent() for part in read])
    read[0].ignored = dict.fromkeys(ignored, FOREIGN)
    chosen = selected_rank(path, read, rank)
    lists = {
        name: [one | {"rank": part.rank} for part in chosen for one in part.facts.pop(name)]
        for name in ("blocks", "oom")
    }
    labels = [text or "" for text in texts]
    return profile_of(chosen, labels, {"tool": "PyTorch memory snapshot"} | lists, origin)


def _part(file: Path, root: Path, texts: Codes, maximum_bytes: int) -> Part:
    snapshot = converted(
        file,
        plain_objects(file, read_bytes(file, maximum_bytes)),
        _Snapshot,
        "snapshot of PyTorch's allocator",
    )
    blocks = _blocks(snapshot)
    records, has_times = _records(snapshot, texts)
    without_damage(file, records)
    oom = _failed_allocations(snapshot)
    part = Part(file, records, facts={"blocks": blocks, "oom": oom}, rank=rank_in_name(file, root))
    part.warnings += _out_of_memory(file, oom)
    part.counters = list(_memory_over_time(records, _at_the_end(blocks), texts, part.warnings))
    if not records.total:
        part.warnings.append(
            f"{file.name}: the snapshot has no allocator history. It shows which memory is"
            " allocated, but it doesn't show which code allocated the memory or when. Next step:"
            " call torch.cuda.memory._record_memory_history() before the first allocation."
        )
    elif not has_times:
        part.facts["times"] = ORDER
        part.warnings.append(
            f"{file.name}: no action has a time, because torch before 2.2 doesn't record times."
            " start_ns numbers the actions of each device in order, and durations are unknown."
        )
    settings = snapshot.allocator_settings
    if isinstance(settings, dict):
        part.facts["allocator_settings"] = {
            name: value for name, value in settings.items() if isinstance(value, str | int | float)
        }
    return part


def _records(snapshot: _Snapshot, texts: Codes) -> tuple[Records, bool]:
    """Return one event per action in file order, and whether any action has a time. The additional
    column `device_free` contains the device's free memory.

    If no action has a time, the actions of each device are numbered instead, starting with 1.
    """
    traces = snapshot.device_traces
    actions = [action for trace in traces for action in trace]
    columns = {
        name: np.array([getattr(one, name) for one in actions], np.int64)
        for name in ("time_us", "stream", "size", "addr", "device_free")
    }
    time, address, free = (columns[name] for name in ("time_us", "addr", "device_free"))
    has_times = bool((time != ABSENT).any())
    start = np.where((time < -_LATEST_US) | (time > _LATEST_US), ABSENT, 1000 * time)
    if not has_times:
        numbers = [number for trace in traces for number in range(1, len(trace) + 1)]
        start = np.array(numbers, np.int64)
    is_oom = np.array([one.action == "oom" for one in actions], bool)
    # For `oom`, PyTorch before 2.1 stores the free memory in the address field.
    free = np.where(is_oom, np.where(free == ABSENT, address, free), ABSENT)
    records = {
        "start_ns": start,
        "duration_ns": np.zeros(len(actions), np.int64),
        "kind": np.full(len(actions), KIND_CODE["runtime"], np.int8),
        "device": np.repeat(np.arange(len(traces)), [len(trace) for trace in traces]),
        "stream": columns["stream"],
        "bytes": columns["size"],
        "address": np.where(is_oom, ABSENT, address),
        "device_free": free,
        "name": texts.of(one.action for one in actions),
        "source_category": texts.of("device_traces" for _ in actions),
        "source_line": texts.of(source_line(python_lines(one.frames)) for one in actions),
    }
    return Records(records), has_times


def _failed_allocations(snapshot: _Snapshot) -> list[dict[str, Any]]:
    """Return the failed allocations in file order. Each entry contains `device`, `requested_bytes`,
    the device's `free_bytes`, and `source_line`. Missing values are None.
    """
    return [
        {
            "device": device,
            "requested_bytes": None if one.size == ABSENT else one.size,
            "free_bytes": None if _free_bytes(one) == ABSENT else _free_bytes(one),
            "source_line": source_line(python_lines(one.frames)),
        }
        for device, trace in enumerate(snapshot.device_traces)
        for one in trace
        if one.action == "oom"
    ]


def _free_bytes(action: _Action) -> int:
    """Return the device's free memory at a failed allocation. PyTorch before 2.1 stores it in the
    address field.
    """
    return action.addr if action.device_free == ABSENT else action.device_free


def _memory_over_time(
    records: Records, final: Counter[tuple[str, int]], texts: Codes, warnings: list[str]
) -> Iterator[pd.DataFrame]:
    """Yield the size of a quantity in bytes after each action that changed it. Also yield the free
    memory at each failed allocation.

    The beginning of the history may be missing, so the sizes are computed backward from the final
    state. A negative size means that actions are missing. In that case, the function adds a warning
    and doesn't yield any samples.

    - final: bytes of each quantity on each device when the snapshot was taken
    """
    for quantity, signs in CHANGES.items():
        # Float sums don't overflow, and they are exact up to 2**53 bytes.
        sign = np.zeros(len(records))
        for action, of_action in signs.items():
            sign[records["name"] == texts.get(action, NO_TEXT)] = of_action
        for device in np.unique(records["device"][sign != 0]).tolist():
            rows = (records["device"] == device) & (sign != 0)
            change = (sign * records["bytes"])[rows]
            before = final[quantity, device] - np.cumsum(change[::-1])[::-1]
            if (np.minimum(before, before + change) >= 0).all():
                yield _samples(records, rows, quantity, before + change)
            else:
                warnings.append(
                    f"{quantity} of device {device} has no samples. The size over time is unknown,"
                    " because actions are missing from the history."
                )
    failed = records["device_free"] != ABSENT
    yield _samples(records, failed, "free memory", records["device_free"][failed])


def _samples(records: Records, rows: np.ndarray, name: str, value: np.ndarray) -> pd.DataFrame:
    columns = {"time_ns": records["start_ns"][rows], "device": records["device"][rows]}
    return pd.DataFrame(columns | {"name": name, "value": value.astype(float), "unit": "bytes"})


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


def _blocks(snapshot: _Snapshot) -> list[dict[str, Any]]:
    """Return the blocks of all segments in order, with the column names of `memory_blocks` as
    keys.
    """
    found = []
    for segment in snapshot.segments:
        for block in segment.blocks:
            lines = python_lines(block.frames)
            found.append(
                {
                    "device": segment.device,
                    "stream": segment.stream,
                    "segment": segment.address,
                    "segment_bytes": segment.total_size,
                    "state": block.state,
                    "bytes": block.size,
                    "requested_bytes": block.requested_size,
                    "source_line": source_line(lines),
                    "frames": " < ".join(lines) or None,
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
