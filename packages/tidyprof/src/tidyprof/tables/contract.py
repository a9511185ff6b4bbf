"""The table contract that every reader fulfills and every analysis requires."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.package_data import table_of
from tidyprof.tables.codes import ABSENT, DEVICE_KINDS, KINDS

MODELED = "modeled"
"""Origin kind of numbers that were computed."""

MARK = "modelled"
"""Marker for files that come from a model: the name of a member, a tag or a part of the file name.
The marker contains the model's known `error`.
"""

ORDER = "order"
"""Value of `times` in `Profile.meta` if the events' starts aren't times but positions in the event
order.
"""

_LONGEST_DETAIL = 300
_LARGEST_MARKER = 2**16

ORIGIN_KINDS = ("measured", "recorded", MODELED, "compiled")


@dataclass(frozen=True)
class Origin:
    """The source of numbers. Every figure prints its source in the corner.

    `kind` has one of these values:

    - `measured`: measured on this machine, now.
    - `recorded`: recorded on a named machine on a stated day.
    - `modeled`: computed by a model. In this case, `detail` contains the known error.
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
        """Return the same object, because an origin is immutable.

        pandas calls this method because it copies `attrs` with each operation on a table.
        """
        return self


NOT_STATED = Origin("recorded", "machine not stated")
"""The origin of a file that doesn't name its GPU and isn't marked as a model's output."""


def recorded_on(meta: Mapping[str, Any]) -> Origin:
    """Return the origin of a file that isn't marked as a model's output. The origin contains the
    GPU and the ROCm release that the file names. If the file names neither, return `NOT_STATED`.
    """
    gpu, rocm = meta.get("gpu"), meta.get("rocm")
    if not isinstance(gpu, str) or not gpu.strip():
        return NOT_STATED
    return Origin(
        "recorded", " ".join(f"{gpu}, ROCm {rocm}".split())[:_LONGEST_DETAIL] if rocm else gpu
    )


def stated_origin(marker: Any) -> Origin | None:
    """Return the origin from a marker, or None if the object isn't a marker.

    A marker is an object with the member `error`, or JSON that contains such an object.
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
    """Return a `modeled` origin if a marker next to one of these files applies to the file.
    Otherwise, return `NOT_STATED`.

    The marker `modelled.json` applies to every file in its folder. A marker `<start>_modelled.json`
    applies to the files whose names start with `<start>`.
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

_COLUMNS = table_of("tables/columns.toml")

EVENT_DTYPES: dict[str, str] = _COLUMNS["events"]
"""Columns of `Profile.events` in order. Int types that start with a capital letter use `<NA>` for
missing values.
"""

IDENTIFIERS = frozenset(
    {
        *("rank", "process", "thread", "launch_thread", "pid", "tid", "id", "number", "step"),
        *("device", "source_device", "destination_device", "memory_device", "stream", "queue"),
        *("parent", "address", "line"),
    }
)
"""Columns that contain identifiers instead of quantities, including additional columns from
profilers.
"""


def is_identifier(column: str) -> bool:
    """Return True if the numbers in a column are written without thousands separators."""
    return column in IDENTIFIERS or column.endswith("_id")


COUNTER_DTYPES: dict[str, str] = _COLUMNS["counters"]
"""Columns of `Profile.counters` in order. The table has one row per sample."""

EVENT_COLUMNS: dict[str, str] = EVENT_DTYPES | _COLUMNS["every_reader"]
"""The event columns of every reader, in order.

- source_category: the type of the event, as the file calls it.
- operator: the operator that launched the event, for device and runtime events.
- bytes: the size of a copy, fill, allocation or collective message. For a collective, the size is
  the larger of the sent and received sizes of a rank.
- grid, block: the kernel dimensions as `[x, y, z]`. If the file contains only their product, the
  value is `[n]`.
- launch_ns, launch_thread: the start and the thread of the call that launched the event.
- queue, dispatch_id: the hardware queue, and the number of the kernel in its process.
"""

FURTHER_COLUMNS: dict[str, str] = _COLUMNS["further"]
"""Additional event columns in order, for files that contain them. Each reader's docstring describes
the special features of its format. A reader may use other columns in its records, but only the
columns in this list are copied to the table.

- collective, group_size: the collective operation, and the number of participating ranks.
- address: the device memory address in an allocator action.
- lds_bytes: the LDS size of a kernel's workgroup in bytes.
- scratch_bytes: the scratch memory of a kernel's work-item in bytes.
- vgprs, accum_vgprs, sgprs: the number of registers that a kernel uses.
- source_device, destination_device: the devices that a copy reads from and writes to.
- memory_device: the device on which the host allocated memory.
"""

COUNTER_COLUMNS: dict[str, str] = COUNTER_DTYPES | _COLUMNS["further_counters"]
"""Counter columns in order. The list includes the contract's columns and additional columns for
files that contain them.

- kernel, dispatch_id, ...: the kernel for which a hardware counter was collected.
- duration_ns: how long the value was valid or the kernel ran, starting at `time_ns`.
"""


@dataclass(repr=False)
class Profile:
    """One profiler output as tables.

    - events: a table with one row per interval and the columns `EVENT_DTYPES`, sorted by
      `start_ns`. A reader may append columns, which its docstring lists.
    - counters: a table with one row per sample and the columns `COUNTER_DTYPES`.
    - meta: the metadata as plain values. The keys include `tool`, `tool_version`, `gpu`, `rocm`,
      `torch`, `host`, `files`, `rank` or `ranks`, `processes`, `events_total`,
      `events_by_category` and `not_kept`.
      `ignored_files` contains a reason for each path, and `origin` is an `Origin`. `repairs` lists
      what was dropped or repaired and how often. `warnings` contains sentences. A format may add
      other values. If the file doesn't contain a value, the key is missing. Values are never
      guessed.
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
        """The source of the profile's numbers."""
        return self.meta["origin"]

    def once(self, key: Any, find: Callable[[], Any]) -> Any:
        """Return the result of `find`, and call `find` only once.

        The cache exists because analyses use the same steps and ranges many times. When another
        table is assigned to `events`, the cached results are discarded. Callers must not change the
        results.
        """
        if self._found.get("events") is not self.events:
            self._found.clear()
            self._found["events"] = self.events
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]

    @property
    def device_events(self) -> pd.DataFrame:
        """Rows for events that occupy a device: kernels, copies, fills and collectives."""
        return self.of_kind(DEVICE_KINDS)

    def of_kind(self, kinds: tuple[str, ...]) -> pd.DataFrame:
        """Return the rows of these kinds."""
        return self.once(kinds, lambda: rows(self.events, is_one_of(self.events["kind"], kinds)))


def is_one_of(column: pd.Series | pd.Categorical, values: Iterable[str]) -> np.ndarray:
    """Return a mask of the rows in which a categorical column has one of these values."""
    categorical, wanted = categorical_of(column), frozenset(values)
    is_wanted = [category in wanted for category in categorical.categories.tolist()]
    # The last element is for the code -1, which means <NA>.
    return np.array([*is_wanted, False])[categorical.codes]


def categorical_of(column: pd.Series | pd.Categorical) -> pd.Categorical:
    """Return a column as codes and categories. A column of strings is converted first."""
    if isinstance(column, pd.Categorical):
        return column
    return column.array if isinstance(column.dtype, pd.CategoricalDtype) else pd.Categorical(column)


def whole_numbers(column: pd.Series | np.ndarray) -> np.ndarray:
    """Return a column of integers as int64, with `ABSENT` for `<NA>`."""
    return column if isinstance(column, np.ndarray) else column.to_numpy(np.int64, na_value=ABSENT)


def rows(table: pd.DataFrame, chosen: np.ndarray) -> pd.DataFrame:
    """Return the rows that the mask selects. If the mask selects all rows, return the table itself
    instead of a copy.
    """
    return table if chosen.all() else table[chosen]


def empty_counters() -> pd.DataFrame:
    """Return a counter table with the contract's columns but without rows."""
    return _empty_counters().copy()


@cache
def _empty_counters() -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in COUNTER_DTYPES.items()})
