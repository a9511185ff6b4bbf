"""CSV files with counters from rocprof-compute. Up to ROCm 7.2, they have one column per counter.
Later files can have one row per counter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.io.byte_stream import MAXIMUM_HELD_BYTES, ByteStream
from tidyprof.readers.columns import column_table, foreign, header_of
from tidyprof.readers.csv_rows import Rows, read_rows
from tidyprof.tables.codes import ABSENT, KIND_CODE, Codes, refined, shape_codes
from tidyprof.tables.damage import durations
from tidyprof.tables.records import Records

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

_HEADER_BYTES = 2**20
_ACCUMULATED = "SQ_ACCUM_PREV_HIRES"
_REPEATED = re.compile(
    r"(wave_size|obj|correlation_id|kernel_id|xcc_index)(?:_(\d{1,4}))?", re.IGNORECASE | re.ASCII
)
_TABLE = column_table("rocprof_compute")


@dataclass
class Measured:
    """The contents of counter files, including damaged values.

    - layout: `wide` if the file has one column per counter, and `long` if it has one row
    - dispatches: table with one row per dispatch. In the long layout, the table has one row per
      dispatch and program run, and each row has times.
    - values: table with one row per counter value
    - warnings: warnings about text that was corrected while the file was read

    The columns of `values` are:

    - row: position of the dispatch's row in `dispatches`
    - name: code of the counter's name, or NO_TEXT
    - value: value of the counter
    - replay_pass: number of the program run, starting with 0, if the file numbers its runs
    """

    layout: str
    dispatches: Records
    values: pd.DataFrame
    warnings: list[str]


def read_counters(
    paths: Sequence[Path], texts: Codes, maximum_bytes: int = MAXIMUM_HELD_BYTES
) -> Measured:
    """Read dispatches and counters from a file, or from the files of several program runs.

    Raises ProfileReadError if a required column is missing, if a number can't be parsed, or if
    there are no rows.
    """
    parts = []
    for path in paths:
        head = ByteStream(path, maximum_bytes).head(_HEADER_BYTES)
        header = header_of(head)
        layout = _TABLE.contents_of(header)
        if layout is None or (layout == "wide" and len(paths) > 1):
            next_step = "pass the folder that contains pmc_perf.csv from rocprof-compute profile"
            raise foreign(path, head, "rocprof-compute", next_step)
        parts.append(read_rows(path, header, _TABLE, texts, maximum_bytes))
    first = parts[0].columns
    columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in first}
    if layout == "long":
        dispatches, values = _of_rows(columns, texts)
    else:
        dispatches, values = _dispatches(columns, texts), _of_columns(parts[0], header, texts)
    dispatches.dropped = sum((part.dropped for part in parts), Counter())
    return Measured(
        layout,
        dispatches,
        values,
        [warning for part in parts for warning in part.warnings],
    )


def _dispatches(columns: dict[str, np.ndarray], texts: Codes) -> Records:
    """Return one event per row without checking for damage. Missing times are ABSENT."""
    columns = dict(columns)
    nothing = np.full(len(columns["name"]), ABSENT, np.int64)
    columns["start_ns"] = columns.pop("start", nothing)
    columns["duration_ns"] = durations(columns["start_ns"], columns.pop("end", nothing))
    kind = np.full(len(nothing), KIND_CODE["kernel"], np.int8)
    columns["kind"] = refined(kind, columns["name"], texts)
    for shape in ("grid", "block"):
        if shape in columns:
            columns[shape] = shape_codes([columns[shape]], texts)
    return Records(columns)


def _of_rows(columns: dict[str, np.ndarray], texts: Codes) -> tuple[Records, pd.DataFrame]:
    identity = ("name", "dispatch_id", "device", "start", "end")
    rows = pd.DataFrame({name: columns[name] for name in identity if name in columns}, copy=False)
    dispatch = rows.groupby(list(rows), sort=False).ngroup().to_numpy()
    values = {"row": dispatch, "name": columns.pop("counter"), "value": columns.pop("value")}
    first = np.unique(dispatch, return_index=True)[1]
    dispatches = _dispatches({name: cells[first] for name, cells in columns.items()}, texts)
    return dispatches, pd.DataFrame(values | {"replay_pass": np.int32(0)}, copy=False)


def _of_columns(rows: Rows, header: Sequence[str], texts: Codes) -> pd.DataFrame:
    counters = counter_columns(header)
    # Empty cells are counters that weren't measured.
    row, position, value = rows.counter_values()
    name = texts.of(name for name, _ in counters)[position]
    replay = np.array([run for _, run in counters], np.int32)[position]
    return pd.DataFrame({"row": row, "value": value, "name": name, "replay_pass": replay})


def counter_columns(header: Sequence[str]) -> list[tuple[str, int]]:
    """Return the counter and the program run of each counter column. Runs are numbered starting
    with 0.

    The columns of each run start with its wave size, kernel ID or a similar column. Starting with
    the second run, the names of these columns end with the run's number, such as `wave_size_1`. If
    an earlier run has the same counter, the name of the counter's column also ends with the run's
    number, such as `GRBM_COUNT_10`. Both columns are treated as the same counter.
    """
    columns: list[tuple[str, int]] = []
    seen: set[str] = set()
    run = 0
    for column in header:
        if repeated := _REPEATED.fullmatch(column):
            run = int(repeated[2] or 0)
        elif _TABLE.is_counter(column):
            plain = column.removesuffix(f"_{run}")
            columns.append((plain if plain in seen else column, run))
            seen.add(columns[-1][0])
    return [(_level(run, columns) if name == _ACCUMULATED else name, run) for name, run in columns]


def _level(run: int, columns: Sequence[tuple[str, int]]) -> str:
    """Return the name of the sum over cycles that a run counts. The sum belongs to the level that
    the run counts, if there is exactly one.
    """
    levels = [name for name, other in columns if other == run and name in ACCUMULATED_LEVELS]
    return f"{levels[0]}_ACCUM" if len(levels) == 1 else _ACCUMULATED
