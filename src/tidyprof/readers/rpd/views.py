"""The answers of the views that rpd files ship with, by the views' own definitions but quickly.

Definitions: rocpd_python/rocpd/schema_data/utilitySchema.cmd of https://github.com/ROCm/rocmProfileData.
They aggregate numbers by identifier before they look at a name, and never run SQL that the file brings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.errors import ProfileReadError
from tidyprof.io.sqlite import Database, open_database
from tidyprof.readers.rpd.meta import read_facts
from tidyprof.readers.rpd.tables import read_calls
from tidyprof.readers.torch.events import ABSENT, Codes
from tidyprof.tables.database_rows import text_codes
from tidyprof.tables.event_blocks import first_equal, taken

_US = 1000
"""Nanoseconds in a microsecond."""


def rpd_top(path: str | PathLike[str], *, maximum_bytes: int = MAXIMUM_BYTES) -> pd.DataFrame:
    """The view `top`: GPU time by kernel name, copies under their operation type.

    Columns: Name, TotalCalls, TotalDuration_us and Ave_us (cut to whole microseconds), Percentage of the summed
    duration of all operations (0-100). Like the view it counts operations of the same name, start and end once.
    """
    texts = Codes()
    with _rpd_database(path, maximum_bytes, ("rocpd_op",)) as database:
        rows = database.integers("rocpd_op", ("start", "end", "description_id", "opType_id"))
        name = text_codes(database, rows["description_id"], texts)
        name = np.where(name == texts[""], text_codes(database, rows["opType_id"], texts), name)
    total = int(_durations(rows).sum())
    kept = (name >= 0) & ~_repeated(name, rows["start"], rows["end"])
    return _ranked(name[kept], _durations(rows)[kept], total, texts)


def rpd_ktop(path: str | PathLike[str], *, maximum_bytes: int = MAXIMUM_BYTES) -> pd.DataFrame:
    """The view `ktop` of schema 2: time of the calls that launch kernels, by kernel name. It is no GPU time.

    A launch returns long before its kernel runs, so this ranks kernels by what they cost the host.
    Columns as `rpd_top`; Percentage relates to the summed duration of all launching calls.
    """
    texts = Codes()
    with _rpd_database(path, maximum_bytes, ("rocpd_api", "rocpd_kernelapi")) as database:
        calls = database.integers("rocpd_api", ("id", "start", "end"))
        launches = database.integers("rocpd_kernelapi", ("api_ptr_id", "kernelName_id"))
        name = text_codes(database, launches["kernelName_id"], texts)
    call = first_equal(calls["id"], launches["api_ptr_id"])
    duration = taken(_durations(calls), call, 0)
    kept = (call >= 0) & (name >= 0)
    return _ranked(name[kept], duration[kept], int(duration[call >= 0].sum()), texts)


def rpd_busy(path: str | PathLike[str], *, maximum_bytes: int = MAXIMUM_BYTES) -> pd.DataFrame:
    """The view `busy`: one row per GPU, in order of gpuId.

    Columns: gpuId, GpuTime_ns (durations of its operations added up, overlapping ones too), WallTime_ns (from the
    first start to the last end on any GPU), Busy (their ratio). Operations that overlap can make it exceed 1.
    """
    with _rpd_database(path, maximum_bytes, ("rocpd_op",)) as database:
        rows = database.integers("rocpd_op", ("gpuId", "start", "end"))
    known = (rows["start"] != ABSENT) & (rows["end"] != ABSENT)
    wall = int(rows["end"][known].max() - rows["start"][known].min()) if known.any() else 0
    time = pd.Series(_durations(rows)).groupby(rows["gpuId"]).sum()
    busy = time / wall if wall else time * np.nan
    return pd.DataFrame(
        {"gpuId": time.index, "GpuTime_ns": time.to_numpy(), "WallTime_ns": wall, "Busy": busy.to_numpy(float)}
    )


def rpd_call_stacks(path: str | PathLike[str], *, maximum_bytes: int = MAXIMUM_BYTES) -> pd.DataFrame:
    """Host and GPU time by call, from the table that `python3 -m rocpd.call_stacks` adds to a file.

    One row per name (of a marked range its text), largest total_gpu_ns first. Columns: name, calls, self_cpu_ns,
    total_cpu_ns, self_gpu_ns, total_gpu_ns: self is without, total with what it calls. A name that calls itself
    counts the inner calls again in its totals. Raises ProfileReadError if the file has no such table.
    """
    texts = Codes()
    with _rpd_database(path, maximum_bytes, ("ext_callstack", "rocpd_api")) as database:
        if "ext_callstack" not in database.tables:
            raise ProfileReadError(
                path,
                "no call stacks in the file (no table ext_callstack)",
                "they are not recorded but computed afterwards",
                "run: python3 -m rocpd.call_stacks FILE, with the rocpd of rocmProfileData",
            )
        stacks = database.integers("ext_callstack", ("parent_id", "depth", "cpu_time", "gpu_time"))
        calls = read_calls(database, texts)
    name = taken(calls["name"], first_equal(calls["id"], stacks["parent_id"]), -1)
    table = pd.DataFrame({"name": name, "own": stacks["depth"] == 0, **stacks})[name >= 0]
    own = (
        table[table["own"]]
        .groupby("name")
        .agg(calls=("own", "size"), self_cpu_ns=("cpu_time", "sum"), self_gpu_ns=("gpu_time", "sum"))
    )
    total = table.groupby("name").agg(total_cpu_ns=("cpu_time", "sum"), total_gpu_ns=("gpu_time", "sum"))
    result = own.join(total).reset_index()
    result["name"] = [list(texts)[code] for code in result["name"].tolist()]
    columns = ["name", "calls", "self_cpu_ns", "total_cpu_ns", "self_gpu_ns", "total_gpu_ns"]
    order = ["total_gpu_ns", "total_cpu_ns", "name"]
    return result[columns].sort_values(order, ascending=[False, False, True], ignore_index=True)


def rpd_stack_frames(path: str | PathLike[str], *, maximum_bytes: int = MAXIMUM_BYTES) -> pd.DataFrame:
    """C++ stack frames of host calls, which schema 3 stores with RPDT_STACKFRAMES=1; without rows if it has none.

    Columns: correlation_id (of the call, as in `events`), depth (0 is the call itself), frame (text).
    """
    texts = Codes()
    columns = ("api_ptr_id", "depth", "name_id")
    with _rpd_database(path, maximum_bytes, ("rocpd_stackframe",)) as database:
        rows = dict.fromkeys(columns, np.empty(0, np.int64))
        if "rocpd_stackframe" in database.tables:
            rows = database.integers("rocpd_stackframe", columns)
        name = text_codes(database, rows["name_id"], texts)
    frame = pd.Categorical.from_codes(name, list(texts))
    table = pd.DataFrame({"correlation_id": rows["api_ptr_id"], "depth": rows["depth"], "frame": frame})
    return table.sort_values(["correlation_id", "depth"], kind="stable", ignore_index=True)


@contextmanager
def _rpd_database(path: str | PathLike[str], maximum_bytes: int, checked: tuple[str, ...]) -> Iterator[Database]:
    with open_database(Path(path), maximum_bytes) as database:
        read_facts(database)
        database.check(checked)
        yield database


def _durations(rows: dict[str, np.ndarray]) -> np.ndarray:
    """End minus start in ns; 0 where the file lacks one, as SQL's sum does."""
    known = (rows["start"] != ABSENT) & (rows["end"] != ABSENT)
    return np.where(known, rows["end"] - rows["start"], 0)


def _repeated(name: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Which rows repeat an earlier one; only few rows share their start, so only those are compared."""
    ordered = np.sort(start)
    shared = np.flatnonzero(np.isin(start, ordered[1:][ordered[1:] == ordered[:-1]]))
    repeated = np.zeros(len(name), bool)
    table = pd.DataFrame({"name": name[shared], "start": start[shared], "end": end[shared]})
    repeated[shared] = table.duplicated().to_numpy()
    return repeated


def _ranked(name: np.ndarray, duration: np.ndarray, whole: int, texts: Codes) -> pd.DataFrame:
    """Calls and time by name, largest first, in whole microseconds as the views have them."""
    groups = pd.Series(duration).groupby(name)
    calls, total = groups.size().to_numpy(), groups.sum().to_numpy()
    labels = list(texts)
    table = pd.DataFrame(
        {
            "Name": [labels[code] for code in groups.size().index.tolist()],
            "TotalCalls": calls,
            "TotalDuration_us": _whole(total, _US),
            "Ave_us": _whole(_whole(total, calls), _US),
            "Percentage": total * 100.0 / whole if whole else np.full(len(total), np.nan),
        }
    )
    return table.sort_values(["TotalDuration_us", "Name"], ascending=[False, True], ignore_index=True)


def _whole(number: np.ndarray, divisor: np.ndarray | int) -> np.ndarray:
    """Integer division that cuts towards zero, as SQLite's does."""
    return np.sign(number) * (np.abs(number) // divisor)
