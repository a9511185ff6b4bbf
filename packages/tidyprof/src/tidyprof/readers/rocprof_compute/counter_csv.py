"""CSV files with counters from rocprof-compute. Up to ROCm 7.2, they have one column per counter.
Later files can have one row per counter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from tidyprof.errors import DAMAGED, EMPTY, ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_HELD_BYTES, ByteStream
from tidyprof.io.csv_files import TEXT, CsvFile, mapped, text_codes, whole_numbers
from tidyprof.io.text_cells import ABSENT_TEXTS, whole_number
from tidyprof.readers.rocprofv3.columns import header_of
from tidyprof.tables.codes import ABSENT, KIND_CODE, NO_TEXT, Codes, by_code, refined, shape_codes
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

    The other attributes are:

    - names: names of the file's columns
    - rounded: True if times in the file have fractions of a nanosecond
    - warnings: warnings about text that was corrected while the file was read
    """

    path: Path
    names: list[str]
    dispatches: Records
    values: pd.DataFrame
    layout: str
    rows: int
    rounded: bool
    warnings: list[str]

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


def read_counters(path: Path, texts: Codes, maximum_bytes: int = MAXIMUM_HELD_BYTES) -> Measured:
    """Read dispatches and counters from a file in the long or wide layout.

    Raises ProfileReadError if a required column is missing, if a number can't be parsed, if there
    are no rows, or if a row has no dispatch number or kernel name.
    """
    head = ByteStream(path, maximum_bytes).head(_HEADER_BYTES)
    if not head.strip():
        raise ProfileReadError(path, *EMPTY)
    names = header_of(head)
    missing = [name for name in ("Dispatch_ID", NAME) if name not in names]
    if missing:
        shown = ", ".join(repr(name[:30]) for name in names[:4])
        raise ProfileReadError(
            path,
            f"no column {' and no column '.join(missing)} (the first columns are {shown})",
            "the file comes from another tool, or from omniperf before version 2",
            "pass the folder that contains pmc_perf.csv from rocprof-compute profile",
        )
    file = CsvFile(path, names, maximum_bytes)
    if not file.ends_with_line():
        raise ProfileReadError(path, "the last line has no newline", *DAMAGED)
    is_long = {_COUNTER_NAME, _COUNTER_VALUE} <= {*names}
    columns = [] if is_long else counter_columns(names)
    types = {NAME: TEXT} | dict.fromkeys((column.column for column in columns), pa.float64())
    if is_long:
        types |= {_COUNTER_NAME: TEXT, _COUNTER_VALUE: pa.float64()}
    frame, rounded = _frame(file, types)
    if not len(frame):
        raise no_dispatches(path)
    if is_long:
        dispatches, values = _long_values(path, frame, texts)
    else:
        dispatches, values = _dispatches(path, frame, texts), _wide_values(frame, columns, texts)
    layout = "long" if is_long else "wide"
    return Measured(path, names, dispatches, values, layout, len(frame), rounded, file.warnings)


def _frame(file: CsvFile, types: dict[str, pa.DataType]) -> tuple[pa.Table, bool]:
    """Return the columns of these types and the columns in WHOLE_COLUMNS as int64. Also return True
    if times have fractions of a nanosecond.
    """
    wholes = [name for name in file.header if name in WHOLE_COLUMNS]
    try:
        return file.frame(types | dict.fromkeys(wholes, pa.int64()), complete=True), False
    except ProfileReadError:
        # The integers may contain a fraction or `NA`, or something else may be wrong. Parse them
        # one by one.
        found = file.frame(types | dict.fromkeys(wholes, TEXT), complete=True)
    rounded = False

    def whole(text: str) -> int | None:
        nonlocal rounded
        number = whole_number(text)
        if number is None and text not in ABSENT_TEXTS:
            finding = f"{text[:40]!r} in the column {name!r} isn't an integer"
            raise ProfileReadError(file.path, finding, *DAMAGED)
        rounded |= name in (START, END) and bool(text.partition(".")[2].strip("0 "))
        return number

    columns = {name: found[name] for name in found.column_names}
    for name in wholes:
        columns[name] = mapped(found[name], whole, pa.int64())
    return pa.table(columns), rounded


def _dispatches(path: Path, rows: pa.Table, texts: Codes) -> Records:
    """Return one event per row without checking for damage. Missing times are ABSENT."""
    columns = {
        column: whole_numbers(rows[name])
        for name, column in WHOLE_COLUMNS.items()
        if name in rows.column_names
    }
    name = text_codes(rows[NAME], texts)
    unnamed = by_code((text in ABSENT_TEXTS for text in texts), name, True)
    if lost := int((unnamed | (columns["dispatch_id"] == ABSENT)).sum()):
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
    return Records({"device": nothing, "kind": kind, "name": name, **times, **columns})


def _wide_values(frame: pa.Table, columns: list[CounterColumn], texts: Codes) -> pd.DataFrame:
    value = np.empty((len(frame), len(columns)))
    for position, column in enumerate(columns):
        value[:, position] = frame[column.column].to_numpy()
    # Empty cells are counters that weren't measured.
    row, position = np.nonzero(~np.isnan(value))
    name = texts.of(column.counter for column in columns)
    replay = np.array([column.replay_pass for column in columns], np.int32)
    found = {"row": row, "value": value[row, position], "name": name[position]}
    return pd.DataFrame(found | {"replay_pass": replay[position]}, copy=False)


def _long_values(path: Path, frame: pa.Table, texts: Codes) -> tuple[Records, pd.DataFrame]:
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
    dispatches = _dispatches(path, frame.take(pa.array(first)), texts)
    name = text_codes(frame[_COUNTER_NAME], texts)
    is_name = by_code((text not in ABSENT_TEXTS for text in texts), name, False)
    # cumsum gives each row the number of its stretch, starting with 1. The stretch gives the
    # dispatch.
    values = {"row": key[np.cumsum(begins) - 1], "name": np.where(is_name, name, np.int32(NO_TEXT))}
    values |= {"value": frame[_COUNTER_VALUE].to_numpy(), "replay_pass": np.int32(0)}
    return dispatches, pd.DataFrame(values, copy=False)


def refuse_repeated(path: Path, measured: Measured, texts: Codes) -> None:
    """Raise ProfileReadError if a dispatch number occurs twice in the wide layout, or if a counter
    has two values for the same dispatch in the same run.
    """
    values, dispatches = measured.values, measured.dispatches
    runs = values["replay_pass"].max() + 1
    places = (values["row"] * runs + values["replay_pass"]) * len(texts) + values["name"]
    found = {"counters of a dispatch occur twice in one run": int(places.duplicated().sum())}
    if measured.layout == "wide":
        numbers = pd.DataFrame({name: dispatches[name] for name in ("device", "dispatch_id")})
        found["dispatch numbers occur repeatedly"] = int(numbers.duplicated().sum())
    for what, repeated in found.items():
        if repeated:
            raise ProfileReadError(
                path,
                f"{repeated} {what}",
                "files from several runs or processes were merged",
                "profile one process, and put each run into a separate folder",
            )


def together(runs: Sequence[Measured]) -> Measured:
    """Combine program runs from separate files."""
    if len(runs) == 1:
        return runs[0]
    begins = np.cumsum([0, *(len(run.dispatches) for run in runs)])
    values = [
        run.values.assign(row=run.values["row"] + begin)
        for run, begin in zip(runs, begins, strict=False)
    ]
    return replace(
        runs[0],
        dispatches=joined([run.dispatches for run in runs]),
        values=pd.concat(values, ignore_index=True),
        layout="long",
        rows=sum(run.rows for run in runs),
        rounded=any(run.rounded for run in runs),
        warnings=[warning for run in runs for warning in run.warnings],
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
