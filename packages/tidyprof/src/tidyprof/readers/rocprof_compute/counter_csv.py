"""CSV files with counters from rocprof-compute. Up to ROCm 7.2, they have one column per counter.
Later files can have one row per counter.
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
"""Integer columns about dispatches in all supported versions, and the matching columns of the event
table.
"""

_HEADER_BYTES = 2**20


class CounterCsv:
    """A CSV file in which every row is as long as the header.

    - names: names of the file's columns
    - rounded: True if times in the file have fractions of a nanosecond
    """

    def __init__(self, path: Path, maximum_bytes: int = MAXIMUM_HELD_BYTES) -> None:
        self.path = path
        self.rounded = False
        self.names = self._header(ByteStream(path, maximum_bytes).head(_HEADER_BYTES))
        self._file = CsvFile(path, self.names, maximum_bytes)
        if not self._file.ends_with_line():
            raise self._refusal("the last line has no newline")

    @property
    def warnings(self) -> list[str]:
        """Warnings about text that was corrected while the file was read."""
        return self._file.warnings

    def frame(self, texts: Iterable[str], numbers: Iterable[str]) -> pa.Table:
        """Return text columns as strings and number columns as float64. The columns in
        WHOLE_COLUMNS are returned as int64, and empty cells are null.

        Raises ProfileReadError if a required column is missing or if a number can't be parsed.
        """
        self._require()
        wholes = [name for name in self.names if name in WHOLE_COLUMNS]
        types = dict.fromkeys(texts, TEXT) | dict.fromkeys(numbers, pa.float64())
        try:
            return self._file.frame(types | dict.fromkeys(wholes, pa.int64()), complete=True)
        except ProfileReadError:
            # The integers may contain a fraction or `NA`, or something else may be wrong. Parse
            # them one by one.
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
            raise self._refusal(f"line 1 isn't valid CSV ({error})") from None

    def _require(self) -> None:
        missing = [name for name in ("Dispatch_ID", NAME) if name not in self.names]
        if missing:
            shown = ", ".join(repr(name[:30]) for name in self.names[:4])
            raise ProfileReadError(
                self.path,
                f"no column {' and no column '.join(missing)} (the first columns are {shown})",
                "the file comes from another tool, or from omniperf before version 2",
                "pass the folder that contains pmc_perf.csv from rocprof-compute profile",
            )

    def _whole(self, column: str, text: str) -> int | None:
        number = whole_number(text)
        if number is None and text not in ABSENT_TEXTS:
            raise self._refusal(f"{text[:40]!r} in the column {column!r} isn't an integer")
        self.rounded |= column in (START, END) and bool(text.partition(".")[2].strip("0 "))
        return number

    def _refusal(self, finding: str) -> ProfileReadError:
        return ProfileReadError(self.path, finding, *DAMAGED)


def dispatch_records(path: Path, rows: pa.Table, texts: Codes) -> Records:
    """Return one event per row without checking for damage. Missing times are ABSENT.

    Raises ProfileReadError if there are no rows, or if a row has no dispatch number or kernel name.
    """
    if not len(rows):
        raise no_dispatches(path)
    columns = {
        column: whole_numbers(rows[name])
        for name, column in WHOLE_COLUMNS.items()
        if name in rows.column_names
    }
    name = text_codes(rows[NAME], texts)
    # The last value is for empty cells (code -1).
    is_unnamed = np.array([*(text in ABSENT_TEXTS for text in texts), True])[name]
    lost = int((is_unnamed | (columns["dispatch_id"] == ABSENT)).sum())
    if lost:
        raise ProfileReadError(
            path, f"{lost} rows have no dispatch number or kernel name", *DAMAGED
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
    """Return the error for a file without dispatches."""
    return ProfileReadError(
        path,
        "the file contains no kernel dispatches",
        "the program launched no kernels, it ended early, or a filter (-k, -d) matched no kernels",
        "run the program without filters, and read log.txt in the same folder",
    )


ACCUMULATED_LEVELS = (
    "SQ_LEVEL_WAVES",
    "SQ_IFETCH_LEVEL",
    "SQ_INST_LEVEL_LDS",
    "SQ_INST_LEVEL_SMEM",
    "SQ_INST_LEVEL_VMEM",
)
"""Counters whose sum over all cycles is stored in `SQ_ACCUM_PREV_HIRES` in the same program run.
Since rocprof-compute 3.2, this sum is named `<level>_ACCUM`. The reader uses the same name for
older files.
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
"""Known columns, in lowercase, that this reader doesn't use. The last four columns occur in every
run.
"""

_OTHER_COLUMNS = {*(name.lower() for name in (NAME, *WHOLE_COLUMNS)), *UNUSED}


@dataclass
class Measured:
    """The contents of a counter file, including damaged values.

    - dispatches: table with one row per dispatch. In the long layout, the table has one row per
      dispatch and program run, and each row has times.
    - values: table with one row per counter value

    The columns of `values` are:

    - row: position of the dispatch's row in `dispatches`
    - name: code of the counter's name, or NO_TEXT
    - value: value of the counter
    - replay_pass: number of the program run, starting with 0, if the file numbers its runs
    """

    dispatches: Records
    values: pd.DataFrame
    layout: str
    rows: int

    @property
    def has_times(self) -> bool:
        """True if any dispatch has times."""
        return bool((self.dispatches["duration_ns"] != ABSENT).any())


@dataclass(frozen=True)
class CounterColumn:
    """A column that contains a counter. Program runs are numbered starting with 0."""

    column: str
    counter: str
    replay_pass: int


def read_layout(text: CounterCsv, texts: Codes) -> Measured:
    """Read dispatches and counters from a file in the long or wide layout."""
    is_long = _COUNTER_NAME in text.names and _COUNTER_VALUE in text.names
    return _read_long(text, texts) if is_long else _read_wide(text, texts)


def together(runs: Sequence[Measured]) -> Measured:
    """Combine program runs from separate files."""
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
    _refuse_repeated(text, int(numbers.duplicated().sum()), "dispatch numbers occur repeatedly")
    value = np.empty((len(frame), len(columns)))
    for position, column in enumerate(columns):
        value[:, position] = frame[column.column].to_numpy()
    value = value.ravel()
    # Empty cells are counters that weren't measured.
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
    # The counters of a dispatch are in consecutive rows (a stretch), but more stretches of the same
    # dispatch may follow later. Grouping stretches is faster than grouping rows, because there are
    # far fewer stretches.
    begins = np.ones(len(frame), bool)
    begins[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    stretches = pd.DataFrame({place: column[begins] for place, column in enumerate(columns)})
    key = stretches.groupby(list(stretches), sort=False).ngroup().to_numpy()
    # Select the first row of each dispatch's first stretch.
    first = np.flatnonzero(begins)[np.unique(key, return_index=True)[1]]
    dispatches = dispatch_records(text.path, frame.take(pa.array(first)), texts)
    name = text_codes(frame[_COUNTER_NAME], texts)
    is_name = np.array([*(text not in ABSENT_TEXTS for text in texts), False])[name]
    # cumsum gives each row the number of its stretch, starting with 1. The stretch gives the
    # dispatch.
    values = {"row": key[np.cumsum(begins) - 1], "name": np.where(is_name, name, np.int32(NO_TEXT))}
    values |= {"value": frame[_COUNTER_VALUE].to_numpy(), "replay_pass": np.int32(0)}
    return Measured(dispatches, pd.DataFrame(values, copy=False), "long", len(frame))


def refuse_repeated_counters(text: CounterCsv, measured: Measured, texts: Codes) -> None:
    """Raise ProfileReadError if a counter has two values for the same dispatch in the same run."""
    values = measured.values
    places = (values["row"] * (values["replay_pass"].max() + 1) + values["replay_pass"]) * len(
        texts
    ) + values["name"]
    _refuse_repeated(
        text, int(places.duplicated().sum()), "counters of a dispatch occur twice in one run"
    )


def _refuse_repeated(text: CounterCsv, repeated: int, what: str) -> None:
    if repeated:
        raise ProfileReadError(
            text.path,
            f"{repeated} {what}",
            "files from several runs or processes were merged",
            "profile one process, and put each run into a separate folder",
        )


def counter_columns(names: list[str]) -> list[CounterColumn]:
    """Return the counter columns in order.

    The columns of each run start with its wave size, kernel ID or a similar column. Starting with
    the second run, the names of these columns end with the run's number, such as `wave_size_1`. If
    an earlier run has the same counter, the name of the counter's column also ends with the run's
    number, such as `GRBM_COUNT_10`. Both columns are treated as the same counter.
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
    """If the column contains a sum over cycles of exactly one level, rename the column after this
    level. Return other columns unchanged.
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
    """Return the columns of the wide layout that aren't about a counter or a dispatch."""
    counters = {column.column for column in counter_columns(names)}
    others = [name for name in names if name not in counters and name.lower() not in _OTHER_COLUMNS]
    return [name for name in others if not _REPEATED.fullmatch(name)]
