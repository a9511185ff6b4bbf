"""How writers make files: whole or not at all, SQLite table by table, and with the names that
rocprofv3 gives.

Each file says that its numbers were computed, by what, and how large the known error is.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas as pd

from cifar_train.config import TrainConfig
from gpumodel.run import RankRun, Run
from tidyprof.errors import UserError
from tidyprof.whole_files import whole_file


class NewDatabase:
    """A context manager that replaces the file at `path` at its end. After an error that file is as
    it was.

    schema -- the statements that define its tables and views.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self._path, self._schema, self._file = path, schema, ExitStack()

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.enter_context(whole_file(self._path))
        self._connection = sqlite3.connect(partial, isolation_level=None)
        # A file that is only useful as a whole needs no protection against a crash half-way.
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.executescript(f"BEGIN;{self._schema}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        self._connection.close()
        self._file.__exit__(kind, error, trace)

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns."""
        return [name for _, name, *_ in self._connection.execute(f'PRAGMA table_info("{table}")')]

    def insert(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        """Insert `rows` rows. A column is a Series, a list, or one value for all rows; <NA> becomes
        NULL.
        """
        if not rows:
            return
        names = ", ".join(f'"{name}"' for name in columns)
        marks = ", ".join("?" * len(columns))
        values = [_column(values, rows) for values in columns.values()]
        statement = f'INSERT INTO "{table}" ({names}) VALUES ({marks})'
        self._connection.executemany(statement, zip(*values, strict=True))


def _column(values: Any, rows: int) -> list[Any]:
    if isinstance(values, pd.Series):
        return values.astype(object).where(values.notna(), None).tolist()
    if isinstance(values, (list, range)):
        return list(values)
    return [values] * rows


def put(path: Path, content: bytes | str) -> Path:
    """Write a file; returns its path. It replaces an older one only when it is whole, since another
    program may be reading that.
    """
    with whole_file(path) as partial:
        partial.write_bytes(
            content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        )
    return path


DEFAULT_PREFIX = "%hostname%/%pid%"
"""What rocprofv3 takes where `--output-file` is not given (source/lib/output of
ROCm/rocprofiler-sdk).
"""


def output_path(run: Run, rank: RankRun, folder: Path, prefix: str, ending: str) -> Path:
    """The path `folder`/`prefix`_`ending`, whose folder is made. In the prefix %hostname%, %pid%,
    %rank% and %size% (or %h%, %p%, %r% and %s%) stand for those of the rank.

    A prefix without %pid% or %rank% is the same for all ranks: then, as with the tool, the last
    rank overwrites the others.
    """
    values = {
        "hostname": run.hostname,
        "pid": rank.process_id,
        "rank": rank.rank,
        "size": len(run.ranks),
    }
    for name, value in values.items():
        prefix = prefix.replace(f"%{name}%", str(value)).replace(f"%{name[0]}%", str(value))
    path = folder / f"{prefix}_{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


VERSION = "0.1.0"
"""Version of the model, not of the course: it changes only when the model's numbers do, so the same
model writes the same files.
"""

MARK = "modelled"
"""Name of the member, tag or file that says that numbers come from the model."""


def marker(run: Run) -> dict[str, Any]:
    """Who computed the run: `by`, `version`, `device`, `seed`, and the model's known `error` in
    words.
    """
    return {
        "by": "gpumodel",
        "version": VERSION,
        "device": run.device.name,
        "seed": run.workload.seed,
        "error": run.error,
    }


def marker_text(run: Run) -> str:
    """The marker as JSON in one line."""
    return json.dumps(marker(run), ensure_ascii=False)


def write_marker(run: Run, folder: Path) -> Path:
    """Write `modelled.json` into the folder: an object with the single key `modelled`."""
    folder.mkdir(parents=True, exist_ok=True)
    return put(
        folder / f"{MARK}.json",
        json.dumps({MARK: marker(run)}, ensure_ascii=False, indent=1) + "\n",
    )


def ranks_of(run: Run, rank: int | None) -> tuple[RankRun, ...]:
    """The ranks to write: all, or the one asked for. Raises UserError if the run does not have
    it.
    """
    if rank is None:
        return run.ranks
    chosen = tuple(one for one in run.ranks if one.rank == rank)
    if not chosen:
        raise UserError(
            f"the modelled run has no rank {rank}; it has {len(run.ranks)}, counted from 0"
        )
    return chosen


def config_of(run: Run) -> TrainConfig | None:
    """The trainer's configuration; None for a workload that is not a training."""
    return getattr(run.workload, "config", None)


def has_ranges(run: Run) -> bool:
    """Whether the program marks its phases with ROCTx ranges, which AMD's profilers record."""
    config = config_of(run)
    return config is not None and config.roctx


def identity(run: Run, rank: RankRun) -> str:
    """32 hexadecimal digits that name a rank's recording; they are the same for the same run."""
    text = (
        f"{run.workload!r} {run.command!r} {run.hostname} {run.start_ns} {rank.rank}"
        f" {rank.process_id}"
    )
    text += getattr(run.workload, "altered", "")
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
