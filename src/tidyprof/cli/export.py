"""Writing tables to files that other programs read."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import pandas as pd

from tidyprof.analyses.stacking import join
from tidyprof.cli.main import UsageError
from tidyprof.cli.targets import cannot_write, targets
from tidyprof.io.errors import one_line

_WRITERS = {
    "--csv": lambda table, path: table.to_csv(path, index=False),
    "--json": lambda table, path: table.to_json(path, orient="records", double_precision=15, indent=1),
    "--parquet": lambda table, path: table.to_parquet(path, index=False, engine="pyarrow"),
}


def of_file(table: pd.DataFrame, path: str) -> pd.DataFrame:
    """The table with the recording's path as first column and its origin as last."""
    return with_origin(table.assign(file=_repeated(path, table)))[["file", *table.columns, "origin"]]


def with_origin(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its origin as last column, because no file has room beside it."""
    return table.assign(origin=_repeated(str(table.attrs["origin"]), table))


def _repeated(text: str, table: pd.DataFrame) -> pd.Series:
    return pd.Series(text, index=table.index, dtype="string")


def export(tables: Sequence[pd.DataFrame], options: Namespace) -> None:
    """Write the tables as one to each file asked for.

    Raises UsageError where a file cannot be written, and for tables with different columns.
    """
    wanted = targets(options)
    if not wanted:
        return
    try:
        table = join(tables)
    except ValueError:
        found = "the recordings give tables with different columns, which make none together"
        cause = "some are of a GPU and some of a CPU"
        cure = "give recordings of one kind at a time"
        raise UsageError(one_line(", ".join(options.files), found, cause, cure)) from None
    table.attrs = {}
    for option, path in wanted.items():
        try:
            _WRITERS[option](table, path)
        except OSError as error:
            raise cannot_write(option, path, error) from None
