"""Rows of the CSV files of ROCm's profilers as arrays, under the names of a column table."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.io.csv_files import TEXT, coded, read_columns, text_codes, whole_numbers
from tidyprof.readers.columns import ColumnTable
from tidyprof.tables.codes import ABSENT, Codes, by_code
from tidyprof.tables.damage import refuse_damage

CELL_TYPES = {
    "text": TEXT,
    "agent": TEXT,
    "time": pa.int64(),
    "id": pa.uint64(),
    "mask": pa.uint64(),
    "size": pa.uint32(),
    "value": pa.float64(),
    "decimal": pa.decimal128(38, 15),
}
"""Types of cells in a column table. `rocprofv3/tables.toml` explains them."""

_AGENT = re.compile(r"(?:(Agent|GPU|CPU) )?(\d{1,9})")


@dataclass
class Rows:
    """The rows of a CSV file, or of one list in a JSON file.

    - columns: one array per column, under tidyprof's names. Numbers are int64 with ABSENT, strings
      are codes with NO_TEXT, and values are float64 with NaN.
    - counters: in a file with one column per counter, the values of each counter
    - dropped: number of incomplete rows, which aren't in `columns`
    - counts_gpus: True if agent numbers count only GPUs, as in `GPU 0` instead of `Agent 4`
    - warnings: warnings about corrected text
    """

    columns: dict[str, np.ndarray]
    counters: dict[str, np.ndarray] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)
    counts_gpus: bool = False
    warnings: list[str] = field(default_factory=list)

    def add(self, entry: str, values: pa.ChunkedArray | pa.Array, texts: Codes) -> None:
        """Add a column.

        - entry: name in tidyprof and type of the cells, as in a column table
        """
        name, kind = entry.split()
        if kind == "text":
            self.columns[name] = text_codes(values, texts)
        elif kind == "agent":
            codes, labels = coded(values)
            numbers = [int(match[2]) if (match := _AGENT.fullmatch(label)) else ABSENT
                       for label in labels]  # fmt: skip
            self.columns[name] = by_code(numbers, codes, ABSENT, np.int64)
            self.counts_gpus |= any(label.startswith("GPU") for label in labels)
        elif kind == "value":
            self.columns[name] = values.to_numpy()
        else:
            numbers = whole_numbers(pc.round(values) if kind == "decimal" else values)
            self.columns[name] = np.where(numbers < 0, ABSENT, numbers) if kind == "id" else numbers

    def counter_values(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the row, the position of the counter, and the value of each cell in the counter
        columns that isn't empty.
        """
        if not self.counters:
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        values = np.column_stack([*self.counters.values()])
        row, counter = np.nonzero(~np.isnan(values))
        return row, counter, values[row, counter]


# rocprofv3 encloses strings in quotes but doesn't double the quotes inside them (csv_encoder in
# source/lib/output/csv.hpp of https://github.com/ROCm/rocprofiler-sdk).
_QUOTED_MARKS = (
    (
        "a marker or a --kernel-rename range contains quotes, which rocprofv3 doesn't escape, or"
        " the file is damaged"
    ),
    "record with --output-format json or rocpd, or remove the quotes from the markers",
)


def read_rows(
    path: Path, header: list[str], table: ColumnTable, texts: Codes, maximum_bytes: int
) -> Rows:
    """Read the rows of a CSV file. If several columns have the same name in `table`, only the first
    one is used.

    Raises ProfileReadError if the file is damaged.
    """
    known: dict[str, str] = {}
    for column in header:
        entry = table.columns.get(column.lower())
        if entry and entry.split()[0] not in (other.split()[0] for other in known.values()):
            known[column] = entry
    counters = [column for column in header if table.is_counter(column)]
    # This column is always read, because it shows whether a row is complete.
    last = next(
        (column for column, entry in known.items() if entry.split()[0] == table.complete),
        [column for column in header if column][-1],
    )
    types = {last: pa.string()} | {
        column: CELL_TYPES[entry.split()[1]] for column, entry in known.items()
    }
    types |= dict.fromkeys(counters, pa.float64())
    cells, cut, warnings = read_columns(
        path,
        header,
        types,
        last,
        table.missing,
        maximum_bytes=maximum_bytes,
        quotes=_QUOTED_MARKS,
    )
    dropped = Counter({"cut short": cut})
    refuse_damage(path, "rows", dropped, len(cells) + cut)
    rows = Rows({}, dropped=dropped, warnings=warnings)
    for column, entry in known.items():
        try:
            rows.add(entry, cells[column], texts)
        except pa.ArrowInvalid:
            found = f"a number in the column {column!r} doesn't fit into 64 bits"
            raise ProfileReadError(path, found, *DAMAGED) from None
        # Without its cells, a large file isn't in memory twice.
        cells = cells.drop_columns([column])
    rows.counters = {column: cells[column].to_numpy() for column in counters}
    return rows
