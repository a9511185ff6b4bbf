"""The table contract that every reader fulfills and every analysis relies on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.tables.codes import ABSENT, DEVICE_KINDS, KINDS

MODELED = "modeled"
"""Origin kind of computed numbers."""

MARK = "modelled"
"""Name of the member, tag or part of a file name that marks files from a model. The mark includes
the model's known `error`.
"""

ORDER = "order"
"""Value of `times` in `Profile.meta` if the starts aren't times but numbers in event order."""

_LONGEST_DETAIL = 300
_LARGEST_MARKER = 2**16

ORIGIN_KINDS = ("measured", "recorded", MODELED, "compiled")


@dataclass(frozen=True)
class Origin:
    """The source of numbers, which is printed in the corner of every figure.

    `kind` is one of these:

    - `measured`: on this machine, now.
    - `recorded`: on a named machine and day.
    - `modeled`: computed. `detail` then contains the known error.
    - `compiled`: reported by a compiler for GPU code that wasn't run.
    """

    kind: str
    detail: str = ""

    def __post_init__(self) -> None:
        if self.kind not in ORIGIN_KINDS:
            raise ValueError(f"origin must be one of {', '.join(ORIGIN_KINDS)}, not {self.kind!r}")

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind

    def __deepcopy__(self, _: Any) -> Origin:
        """Return the same object, which is immutable.

        pandas copies `attrs` with each operation on a table.
        """
        return self


NOT_STATED = Origin("recorded", "machine not stated")
"""The origin of a file that isn't marked as a model's output and doesn't name its GPU."""


def recorded_on(meta: Mapping[str, Any]) -> Origin:
    """Return the origin of a file without a model's mark: the GPU and ROCm release that it names,
    or `NOT_STATED`.
    """
    gpu, rocm = meta.get("gpu"), meta.get("rocm")
    if not isinstance(gpu, str) or not gpu.strip():
        return NOT_STATED
    return Origin(
        "recorded", " ".join(f"{gpu}, ROCm {rocm}".split())[:_LONGEST_DETAIL] if rocm else gpu
    )


def stated_origin(marker: Any) -> Origin | None:
    """Return the origin that a marker states, or None if it isn't a marker.

    A marker is an object with `error`, or such an object as JSON.
    """
    if isinstance(marker, str):
        try:
            marker = json.loads(marker[:_LARGEST_MARKER])
        except (ValueError, RecursionError):
            return None
    if not isinstance(marker, dict):
        return None
    device, error = (str(marker.get(key) or "").strip() for key in ("device", "error"))
    detail = ", ".join(part for part in (device, error or "error not known") if part)
    return Origin(MODELED, " ".join(detail.split())[:_LONGEST_DETAIL])


def origin_of_files(files: Iterable[str]) -> Origin:
    """Return a `modeled` origin if a marker next to one of these files says so, otherwise
    `NOT_STATED`.

    `modelled.json` marks every file in its folder. `<start>_modelled.json` marks the files whose
    names start with `<start>`.
    """
    paths = [Path(file) for file in files]
    markers = {
        folder: sorted(folder.glob(f"*{MARK}.json")) for folder in {path.parent for path in paths}
    }
    for file in paths:
        for marker in markers[file.parent]:
            start = marker.name.removesuffix(f"{MARK}.json").removesuffix("_")
            if file.name.startswith(start) and (origin := _origin_in(marker)):
                return origin
    return NOT_STATED


def _origin_in(marker: Path) -> Origin | None:
    try:
        return stated_origin(
            json.loads(marker.read_text(encoding="utf-8")[:_LARGEST_MARKER]).get(MARK)
        )
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


__all__ = [
    "COUNTER_DTYPES",
    "DEVICE_KINDS",
    "EVENT_DTYPES",
    "KINDS",
    "Origin",
    "Profile",
    "empty_counters",
]

EVENT_DTYPES: dict[str, str] = {
    "rank": "Int32",
    "process": "Int64",
    "thread": "Int64",
    "device": "Int32",
    "stream": "Int64",
    "kind": "category",
    "name": "category",
    "short_name": "category",
    "start_ns": "int64",
    "duration_ns": "int64",
    "correlation_id": "Int64",
}
"""Columns of `Profile.events` in order. Int types with a capital letter contain `<NA>` for missing
values.
"""

IDENTIFIERS = frozenset(
    {
        *("rank", "process", "thread", "launch_thread", "pid", "tid", "id", "number", "step"),
        *("device", "source_device", "destination_device", "memory_device", "stream", "queue"),
        *("parent", "address", "line"),
    }
)
"""Columns, including tools' columns, whose numbers are identifiers, not quantities."""


def is_identifier(column: str) -> bool:
    """Return True if a column's numbers are written without thousands separators."""
    return column in IDENTIFIERS or column.endswith("_id")


COUNTER_DTYPES: dict[str, str] = {
    "time_ns": "int64",
    "device": "Int32",
    "name": "category",
    "value": "float64",
    "unit": "category",
}
"""Columns of `Profile.counters` in order: one row per sample."""

EVENT_COLUMNS: dict[str, str] = {
    **EVENT_DTYPES,
    "source_category": "category",
    "operator": "category",
    "bytes": "Int64",
    "grid": "category",
    "block": "category",
    "launch_ns": "Int64",
    "launch_thread": "Int64",
    "queue": "Int64",
    "dispatch_id": "Int64",
}
"""Event columns of every reader, in order.

source_category          -- the file's name for this type of event.
operator                 -- operator around a launch, for device and runtime events.
bytes                    -- size of a copy, fill, allocation or collective message. For a
                            collective, it is the larger of what a rank sends and receives.
grid, block              -- kernel dimensions as `[x, y, z]`, or `[n]` if the file has only the
                            product.
launch_ns, launch_thread -- start and thread of the call that launched an event.
queue, dispatch_id       -- hardware queue, and number of a kernel in its process.
"""

FURTHER_COLUMNS: dict[str, str] = {
    "external_id": "Int64",
    "collective": "category",
    "group_size": "Int32",
    "input_shapes": "category",
    "input_types": "category",
    "address": "Int64",
    "lds_bytes": "Int64",
    "scratch_bytes": "Int64",
    "vgprs": "Int32",
    "accum_vgprs": "Int32",
    "sgprs": "Int32",
    "wave_size": "Int32",
    "replays": "Int32",
    "shortest_ns": "Int64",
    "longest_ns": "Int64",
    "source_device": "Int32",
    "destination_device": "Int32",
    "memory_device": "Int32",
    "track": "category",
    "depth": "Int32",
    "parent": "Int64",
    "sample": "Int64",
    "source_line": "category",
    "exec_mask": "UInt64",
    "wave_issued": "Int32",
    "wave_count": "Int32",
    "instruction_type": "category",
    "stall_reason": "category",
}
"""Additional columns in order, for files that contain them. Each reader's docstring describes what
is special in its format. A reader may use other columns in its records, but only columns in this
list get into the table.

collective, group_size -- operation of a collective, and number of participating ranks.
address                -- device memory address of an allocator action.
lds_bytes              -- of a kernel's workgroup.
scratch_bytes          -- of a kernel's work-item.
vgprs, accum_vgprs, sgprs -- registers of a kernel.
source_device, destination_device -- devices of a copy.
memory_device          -- device of an allocation on the host.
"""

COUNTER_COLUMNS: dict[str, str] = {
    **COUNTER_DTYPES,
    "rank": "Int32",
    "process": "Int64",
    "thread": "Int64",
    "queue": "Int64",
    "dispatch_id": "Int64",
    "correlation_id": "Int64",
    "kernel": "category",
    "duration_ns": "Int64",
    "work_items": "Int64",
    "workgroup_size": "Int64",
    "lds_bytes": "Int64",
    "scratch_bytes": "Int64",
    "vgprs": "Int32",
    "accum_vgprs": "Int32",
    "sgprs": "Int32",
    "replay_pass": "Int32",
}
"""Counter columns in order: the contract's columns, and additional columns for files that contain
them.

kernel, dispatch_id, ... -- the kernel that a hardware counter was collected for.
duration_ns              -- how long a value was valid or the kernel ran, starting at `time_ns`.
"""


@dataclass(repr=False)
class Profile:
    """One profiler output as tables.

    events   -- one row per interval, columns `EVENT_DTYPES`, sorted by `start_ns`. A reader may
                append columns, which its docstring lists.
    counters -- one row per sample, columns `COUNTER_DTYPES`.
    meta     -- plain values: `tool`, `tool_version`, `gpu`, `rocm`, `torch`, `host`, `files`,
                `ignored_files` (path -> reason), `origin` (an `Origin`), `rank` or `ranks`,
                `processes`, `events_total`, `events_by_category`, `not_kept`,
                `device_events_without_launch`, `shared_launch_records`, `repairs` (what was dropped
                or repaired, and how often), `warnings` (sentences), and other values of the format.
                If the file doesn't contain a value, its key is absent. Values are never guessed.
    """

    events: pd.DataFrame
    counters: pd.DataFrame = field(default_factory=lambda: empty_counters())
    meta: dict[str, Any] = field(default_factory=dict)
    _found: dict[Any, Any] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        missing = [column for column in EVENT_DTYPES if column not in self.events.columns]
        if missing:
            raise ValueError(f"events lack the columns {', '.join(missing)}")
        if "origin" not in self.meta:
            marked = origin_of_files(self.meta.get("files", ()))
            self.meta["origin"] = recorded_on(self.meta) if marked == NOT_STATED else marked
        self.meta.setdefault("repairs", {})

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{count:,} {kind}"
            for kind, count in self.events["kind"].value_counts().items()
            if count
        )
        return (
            f"Profile of {self.meta.get('tool', 'an unknown tool')}: {len(self.events):,} events"
            f" ({counts or 'none'}), {len(self.counters):,} counter samples; {self.origin};"
            " see .events, .counters and .meta"
        )

    @property
    def origin(self) -> Origin:
        """Source of these numbers."""
        return self.meta["origin"]

    def once(self, key: Any, find: Callable[[], Any]) -> Any:
        """Return the result of `find`, which is called only once.

        Analyses use the same steps and ranges many times. The results are discarded when `events`
        becomes another table. Callers must not change them.
        """
        if self._found.get("events") is not self.events:
            self._found.clear()
            self._found["events"] = self.events
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]

    @property
    def device_events(self) -> pd.DataFrame:
        """Rows that occupy a device: kernels, copies, fills and collectives."""
        return self.of_kind(DEVICE_KINDS)

    def of_kind(self, kinds: tuple[str, ...]) -> pd.DataFrame:
        """Return the rows of these kinds."""
        return self.once(kinds, lambda: rows(self.events, is_one_of(self.events["kind"], kinds)))


def is_one_of(column: pd.Series | pd.Categorical, values: Iterable[str]) -> np.ndarray:
    """Return a mask of the rows of a categorical column that have one of these values."""
    categorical, wanted = categorical_of(column), frozenset(values)
    is_wanted = [category in wanted for category in categorical.categories.tolist()]
    # The last element is for the code -1, which means <NA>.
    return np.array([*is_wanted, False])[categorical.codes]


def categorical_of(column: pd.Series | pd.Categorical) -> pd.Categorical:
    """Return a column as codes and categories, after converting a text column."""
    if isinstance(column, pd.Categorical):
        return column
    return column.array if isinstance(column.dtype, pd.CategoricalDtype) else pd.Categorical(column)


def whole_numbers(column: pd.Series | np.ndarray) -> np.ndarray:
    """Return a column of integers as int64, with `ABSENT` for `<NA>`."""
    return column if isinstance(column, np.ndarray) else column.to_numpy(np.int64, na_value=ABSENT)


def rows(table: pd.DataFrame, chosen: np.ndarray) -> pd.DataFrame:
    """Return the rows of a mask, or the table itself without a copy if the mask selects all
    rows.
    """
    return table if chosen.all() else table[chosen]


def empty_counters() -> pd.DataFrame:
    """Return a counter table without rows, with the contract's columns."""
    return _empty_counters().copy()


@cache
def _empty_counters() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in COUNTER_DTYPES.items()})
