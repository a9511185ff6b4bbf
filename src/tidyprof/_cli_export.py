"""Writing a table to a file that other programs read."""

from __future__ import annotations

from argparse import Namespace
from importlib.util import find_spec

import pandas as pd

from tidyprof.cli import UsageError

FORMATS = ("csv", "json", "parquet")


def check_export(options: Namespace) -> None:
    """Raise UsageError before any work is done if the table could not be written as asked."""
    if options.parquet and find_spec("pyarrow") is None:
        raise UsageError("--parquet needs pyarrow, which is not installed: pip install pyarrow, or use --csv")


def export(table: pd.DataFrame, options: Namespace) -> None:
    """Write the table to each file asked for, with its origin as last column, because no file has room beside it.

    Raises UsageError where a file cannot be written.
    """
    if not any(getattr(options, kind) for kind in FORMATS):
        return
    table = table.assign(origin=pd.array([str(table.attrs["origin"])] * len(table), dtype="string"))
    table.attrs = {}
    writers = {
        "csv": lambda path: table.to_csv(path, index=False),
        "json": lambda path: table.to_json(path, orient="records", double_precision=15, indent=1),
        "parquet": lambda path: table.to_parquet(path, index=False, engine="pyarrow"),
    }
    for kind in FORMATS:
        path = getattr(options, kind)
        if path:
            try:
                writers[kind](path)
            except OSError as error:
                raise UsageError(f"{path}: {error.strerror or error}; give --{kind} another file") from None
