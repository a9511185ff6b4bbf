"""The counters of rocprof-compute: sound CSV with a column per counter (up to ROCm 7.2) or a row
per counter.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tidyprof.errors import DAMAGED, EMPTY, ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_HELD_BYTES, ByteStream
from tidyprof.io.csv_files import TEXT, CsvFile, mapped, text_codes, whole_numbers
from tidyprof.io.text_cells import ABSENT_TEXTS, whole_number
from tidyprof.tables.codes import ABSENT, KIND_CODE, NO_TEXT, Codes, refined, shape_codes
from tidyprof.tables.damage import durations
from tidyprof.tables.records import Records, joined

NAME = "Kernel_Name"
START, END = "Start_Timestamp", "End_Timestamp"
WHOLE_COLUMNS = {
    "Dispatch_ID": "dispatch_id",
    "GPU_ID": "device",
    START: "start_ns",
    END: "end_ns",
    "Grid_Size": "grid",
    "Workgroup_Size": "block",
    "LDS_Per_Workgroup": "lds_bytes",
    "Scratch_Per_Workitem": "scratch_bytes",
    "Arch_VGPR": "vgprs",
    "Accum_VGPR": "accum_vgprs",
    "SGPR": "sgprs",
    "Wave_Size": "wave_size",
    "wave_size": "wave_size",
}
"""Columns of whole numbers about dispatches, in any version -> their names in the event table."""

_HEADER_BYTES = 2**20


class CounterCsv:
    """A CSV file whose rows are all as long as its header.

    names -- its columns; rounded -- whether the times that were read have fractions of a
    nanosecond. Raises ProfileReadError if the file is no such file, or is not complete.
    """

    def __init__(self, path: Path, maximum_bytes: int = MAXIMUM_HELD_BYTES) -> None:
        self.path = path
        self.rounded = False
        self.names = self._header(ByteStream(path, maximum_bytes).head(_HEADER_BYTES))
        self._file = CsvFile(path, self.names, maximum_bytes)
        if not self._file.ends_with_line():
            raise self._refusal("its last line has no end")

    @property
    def warnings(self) -> list[str]:
        """Sentences on what was mended in the text when it was read."""
        return self._file.warnings

    def frame(self, texts: Iterable[str], numbers: Iterable[str]) -> pa.Table:
        """These columns as text and as float64, and all of WHOLE_COLUMNS as int64, with null for
        empty cells.

        Raises ProfileReadError if a column that every dispatch needs is missing, and for cells that
        are no numbers.
        """
        self._require()
        wholes = [name for name in self.names if name in WHOLE_COLUMNS]
        types = dict.fromkeys(texts, TEXT) | dict.fromkeys(numbers, pa.float64())
        try:
            return self._file.frame(types | dict.fromkeys(wholes, pa.int64()), complete=True)
        except ProfileReadError:
            # Something else may be wrong, or whole numbers are written with a fraction or as `NA`:
            # look at each.
            found = self._file.frame(types | dict.fromkeys(wholes, TEXT), complete=True)
        columns = {name: found[name] for name in found.column_names}
        columns |= {
            name: mapped(found[name], partial(self._whole, name), pa.int64()) for name in wholes
        }
        return pa.table(columns)

    def _header(self, head: bytes) -> list[str]:
        if not head.strip():
            raise ProfileReadError(self.path, *EMPTY)
        rows = csv.reader(io.StringIO(head.decode("utf-8-sig", "replace"), newline=""), strict=True)
        try:
            return next(rows)
        except csv.Error as error:
            raise self._refusal(f"no sound CSV in line 1 ({error})") from None

    def _require(self) -> None:
        missing = [name for name in ("Dispatch_ID", NAME) if name not in self.names]
        if missing:
            shown = ", ".join(repr(name[:30]) for name in self.names[:4])
            raise ProfileReadError(
                self.path,
                f"no column {' and no column '.join(missing)} (it begins with {shown})",
                "another tool wrote it, or a version before omniperf 2",
                "pass the folder with pmc_perf.csv that rocprof-compute profile wrote",
            )

    def _whole(self, column: str, text: str) -> int | None:
        number = whole_number(text)
        if number is None and text not in ABSENT_TEXTS:
            raise self._refusal(
                f"{text[:40]!r} in the column {column!r}, which is for whole numbers"
            )
        self.rounded |= column in (START, END) and bool(text.partition(".")[2].strip("0 "))
        return number

    def _refusal(self, finding: str) -> ProfileReadError:
        return ProfileReadError(self.path, finding, *DAMAGED)


def dispatch_records(path: Path, rows: pa.Table, texts: Codes) -> Records:
    """An event for each of these rows of a file, not yet checked for damage. Without times, start
    and duration are ABSENT.

    Raises ProfileReadError for a row without a dispatch number or a kernel name, and for a file
    without a row.
    """
    if not len(rows):
        raise no_dispatches(path)
    columns = {
        column: whole_numbers(rows[name])
        for name, column in WHOLE_COLUMNS.items()
        if name in rows.column_names
    }
    name = text_codes(rows[NAME], texts)
    # The last place answers the code -1 of an empty cell.
    is_unnamed = np.array([*(text in ABSENT_TEXTS for text in texts), True])[name]
    lost = int((is_unnamed | (columns["dispatch_id"] == ABSENT)).sum())
    if lost:
        raise ProfileReadError(
            path, f"{lost} rows without a dispatch number or a kernel name", *DAMAGED
        )
    nothing = np.full(len(rows), ABSENT, np.int64)
    start, end = columns.pop("start_ns", nothing), columns.pop("end_ns", nothing)
    kind = refined(np.full(len(rows), KIND_CODE["kernel"], np.int8), name, texts)
    for shape in ("grid", "block"):
        if shape in columns:
            columns[shape] = shape_codes([columns[shape]], texts)
    times = {"start_ns": start, "duration_ns": durations(start, end)}
    columns.setdefault("device", nothing.copy())
    return Records({"kind": kind, "name": name, **times, **columns})


def no_dispatches(path: Path) -> ProfileReadError:
    """The error for a file without a single dispatch."""
    return ProfileReadError(
        path,
        "no dispatch of any kernel",
        "the program launched no kernel, ended early, or a filter (-k, -d) matched nothing",
        "run it without filters, and read log.txt in the same folder",
    )


ACCUMULATED_LEVELS = (
    "SQ_LEVEL_WAVES",
    "SQ_IFETCH_LEVEL",
    "SQ_INST_LEVEL_LDS",
    "SQ_INST_LEVEL_SMEM",
    "SQ_INST_LEVEL_VMEM",
)
"""Counters whose sum over cycles SQ_ACCUM_PREV_HIRES holds in the same run of the program. From
rocprof-compute 3.2 on the sum has a name of its own, `<level>_ACCUM`, which is used for older files
too.
"""

_COUNTER_NAME, _COUNTER_VALUE = "Counter_Name", "Counter_Value"
_ACCUMULATED = "SQ_ACCUM_PREV_HIRES"
_COUNTER = re.compile(r"[A-Z][A-Z0-9]{1,5}_\w+(\[\d+\])?", re.ASCII)
_REPEATED = re.compile(
    r"(wave_size|obj|correlation_id|kernel_id|xcc_index)(?:_(\d{1,4}))?", re.IGNORECASE | re.ASCII
)
UNUSED = frozenset(
    {
        "queue-id",
        "queue-index",
        "queue_id",
        "pid",
        "tid",
        "sig",
        "dispatchns",
        "completens",
        "index",
        "node",
        "obj",
        "correlation_id",
        "kernel_id",
        "xcc_index",
    }
)
"""Columns, in small letters, that this reader knows and does not use. The last four come in every
run.
"""

_OTHER_COLUMNS = {*(name.lower() for name in (NAME, *WHOLE_COLUMNS)), *UNUSED}


@dataclass
class Measured:
    """The content of a counter file, damage included.

    dispatches -- a row per dispatch; in the long layout a row per dispatch and run of the program,
                  each with times.
    values     -- a row per counter value: `row` (position in dispatches), `name` (code of a text,
                  NO_TEXT without one), `value`, `replay_pass` (run of the program, from 0, where
                  the file numbers the runs).
    """

    dispatches: Records
    values: pd.DataFrame
    layout: str
    rows: int

    @property
    def has_times(self) -> bool:
        """Whether any dispatch has times."""
        return bool((self.dispatches["duration_ns"] != ABSENT).any())


@dataclass(frozen=True)
class CounterColumn:
    """A column of the file: the counter it holds and the run of the program (from 0) it was read
    in.
    """

    column: str
    counter: str
    replay_pass: int


def read_layout(text: CounterCsv, texts: Codes) -> Measured:
    """Dispatches and counters of a file in either layout. Raises ProfileReadError if it is not
    sound.
    """
    is_long = _COUNTER_NAME in text.names and _COUNTER_VALUE in text.names
    return _read_long(text, texts) if is_long else _read_wide(text, texts)


def together(runs: Sequence[Measured]) -> Measured:
    """Runs of the program from separate files, as if one file had all of them."""
    if len(runs) == 1:
        return runs[0]
    begins = np.cumsum([0, *(len(run.dispatches) for run in runs)])
    values = [
        run.values.assign(row=run.values["row"] + begin)
        for run, begin in zip(runs, begins, strict=False)
    ]
    rows = sum(run.rows for run in runs)
    return Measured(
        joined([run.dispatches for run in runs]), pd.concat(values, ignore_index=True), "long", rows
    )


def _read_wide(text: CounterCsv, texts: Codes) -> Measured:
    columns = counter_columns(text.names)
    frame = text.frame([NAME], [column.column for column in columns])
    dispatches = dispatch_records(text.path, frame, texts)
    numbers = pd.DataFrame({name: dispatches[name] for name in ("device", "dispatch_id")})
    _refuse_repeated(text, int(numbers.duplicated().sum()), "dispatch numbers more than once")
    value = np.empty((len(frame), len(columns)))
    for position, column in enumerate(columns):
        value[:, position] = frame[column.column].to_numpy()
    value = value.ravel()
    # Empty cells are values that were not measured.
    row, position = np.divmod(np.flatnonzero(~np.isnan(value)), max(1, len(columns)))
    name = texts.of(column.counter for column in columns)
    replay = np.array([column.replay_pass for column in columns], np.int32)
    value = value[~np.isnan(value)]
    columns_of_values = {"name": name[position], "replay_pass": replay[position]}
    values = pd.DataFrame({"row": row, "value": value, **columns_of_values}, copy=False)
    return Measured(dispatches, values, "wide", len(frame))


def _read_long(text: CounterCsv, texts: Codes) -> Measured:
    frame = text.frame([NAME, _COUNTER_NAME], [_COUNTER_VALUE])
    identity = [
        name for name in ("Dispatch_ID", "GPU_ID", START, END) if name in frame.column_names
    ]
    columns = [text_codes(frame[NAME], texts), *(whole_numbers(frame[name]) for name in identity)]
    # The counters of a dispatch stand below each other: a stretch of rows with one identity, which
    # may come again after other stretches. Finding dispatches among the stretches is quicker than
    # among all rows, since there are far fewer stretches.
    begins = np.ones(len(frame), bool)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    stretches = pd.DataFrame({place: column[begins] for place, column in enumerate(columns)})
    key = stretches.groupby(list(stretches), sort=False).ngroup().to_numpy()
    # For each dispatch the first row of its first stretch.
    first = np.flatnonzero(begins)[np.unique(key, return_index=True)[1]]
    dispatches = dispatch_records(text.path, frame.take(pa.array(first)), texts)
    name = text_codes(frame[_COUNTER_NAME], texts)
    is_name = np.array([*(text not in ABSENT_TEXTS for text in texts), False])[name]
    # cumsum numbers the stretches from 1: the stretch of a row, and with it the dispatch of the
    # row.
    values = {"row": key[np.cumsum(begins) - 1], "name": np.where(is_name, name, np.int32(NO_TEXT))}
    values |= {"value": frame[_COUNTER_VALUE].to_numpy(), "replay_pass": np.int32(0)}
    return Measured(dispatches, pd.DataFrame(values, copy=False), "long", len(frame))


def refuse_repeated_counters(text: CounterCsv, measured: Measured, texts: Codes) -> None:
    """Raise ProfileReadError for two values of a counter in one dispatch of one run."""
    values = measured.values
    places = (values["row"] * (values["replay_pass"].max() + 1) + values["replay_pass"]) * len(
        texts
    ) + values["name"]
    _refuse_repeated(
        text, int(places.duplicated().sum()), "counters of a dispatch twice in one run"
    )


def _refuse_repeated(text: CounterCsv, repeated: int, what: str) -> None:
    if repeated:
        raise ProfileReadError(
            text.path,
            f"{repeated} {what}",
            "files of several runs or processes were put together",
            "profile one process, and keep one run in a folder",
        )


def counter_columns(names: list[str]) -> list[CounterColumn]:
    """The columns that hold counters, in order.

    The runs' columns stand one run after the other, each beginning with its wave size, kernel id or
    the like, which carry the run's number from the second run on (`wave_size_1`). A counter that an
    earlier run has too carries it as well (`GRBM_COUNT_10`), and is the same counter.
    """
    columns: list[CounterColumn] = []
    seen: set[str] = set()
    run = 0
    for name in names:
        repeated = _REPEATED.fullmatch(name)
        if repeated:
            run = int(repeated[2] or 0)
        elif _COUNTER.fullmatch(name) and name.lower() not in _OTHER_COLUMNS:
            plain = name.removesuffix(f"_{run}")
            counter = plain if plain in seen else name
            seen.add(counter)
            columns.append(CounterColumn(name, counter, run))
    return [_with_level(column, columns) for column in columns]


def _with_level(column: CounterColumn, columns: list[CounterColumn]) -> CounterColumn:
    """The column of the sum over cycles, named after the level that was summed if that is clear;
    other columns as they are.
    """
    if column.counter != _ACCUMULATED:
        return column
    levels = [other.counter for other in columns if other.replay_pass == column.replay_pass]
    levels = [level for level in levels if level in ACCUMULATED_LEVELS]
    return (
        CounterColumn(column.column, f"{levels[0]}_ACCUM", column.replay_pass)
        if len(levels) == 1
        else column
    )


def ignored_columns(names: list[str]) -> list[str]:
    """Columns of the wide layout that hold neither a counter nor anything about the dispatch."""
    counters = {column.column for column in counter_columns(names)}
    others = [name for name in names if name not in counters and name.lower() not in _OTHER_COLUMNS]
    return [name for name in others if not _REPEATED.fullmatch(name)]
