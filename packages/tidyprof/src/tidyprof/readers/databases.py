"""Reading of formats that are SQLite databases, by a schema and queries in a reader's folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from tidyprof.errors import FOREIGN, ProfileReadError
from tidyprof.io.sqlite import Database, database_files, type_of
from tidyprof.package_data import table_of, text_of
from tidyprof.tables.codes import ABSENT, NO_TEXT, ON_DEVICE, Codes, by_code, nullable
from tidyprof.tables.contract import COUNTER_COLUMNS, Origin, Profile
from tidyprof.tables.damage import LATEST_START_NS, REPEATED
from tidyprof.tables.profiles import (
    Part,
    profile_of,
    rank_in_name,
    read_recorded,
    refuse_mixed_ranks,
    refuse_overlap,
    selected_rank,
)

RUN = "run"
"""The entry of a part's facts that identifies the profiler run. It isn't copied to the profile."""

MAX_BROKEN_LINKS_SHARE = 0.9
"""Maximum share of broken references in a vital link. Above this share, the file is rejected
because the other rows are useless without the missing data.
"""


class Schema(msgspec.Struct):
    """The tables of a format, as the file `schema.toml` in the folder of its reader describes them.

    - required, optional: the columns of each table that the reader uses.
    - filled: the optional columns that an existing table must have, because its rows are useless
      without them.
    - links: for each table, the columns that refer to the `id` of another table or query: column,
      table, the problem of rows without such a row, and `vital` if a file is useless without nearly
      all of these rows.
    - unique: the column of each table that identifies its rows.
    - versions: the versions of the schema that the reader supports.
    - strings: the table to which the columns `NAME_string` of the queries refer.
    - folder: the folder of the reader, such as rpd.
    """

    required: dict[str, list[str]]
    optional: dict[str, list[str]]
    filled: dict[str, list[str]]
    links: dict[str, list[list[str]]]
    unique: dict[str, str]
    versions: tuple[str, ...] = ()
    strings: str = ""
    folder: str = ""

    def query(self, name: str) -> str:
        """Return the SQL of a file in the reader's folder."""
        return text_of(f"readers/{self.folder}/{name}.sql")


def schema_of(folder: str) -> Schema:
    """Return the schema in the folder of a reader."""
    stated = table_of(f"readers/{folder}/schema.toml")
    return msgspec.convert(stated | {"folder": folder}, Schema)


class Tables:
    """The tables of a format in a file, as views with the names of the schema. Missing optional
    tables have no rows, and missing optional columns contain NULL.

    - suffix: the end of each table's name in the file.
    - others: tables in the file that take the place of missing ones.
    """

    def __init__(
        self,
        database: Database,
        schema: Schema,
        suffix: str = "",
        others: Mapping[str, str] | None = None,
    ) -> None:
        self.database, self.schema, self.suffix = database, schema, suffix
        self._others = {
            name: other for name, other in (others or {}).items() if name not in database.tables
        }
        for table in schema.required | schema.optional:
            columns = [*schema.required.get(table, ()), *schema.optional.get(table, ())]
            present = database.tables.get(self.name(table), ())
            absent = [column for column in columns if column not in present]
            database.define(table, self.name(table), absent)

    def name(self, table: str) -> str:
        """Return the name of a table in the file."""
        return self._others.get(table, table) + self.suffix

    def metadata(self) -> dict[str, Any]:
        """Return the values in rocpd_metadata by tag.

        Raises ProfileReadError if the file has another schema.
        """
        self.database.require(self.name("rocpd_metadata"), ("tag", "value"))
        rows = self.database.rows("SELECT tag, value FROM rocpd_metadata")
        stated = {str(tag): value for tag, value in rows}
        version = str(stated.get("schema_version", ""))
        if version.partition(".")[0] not in self.schema.versions:
            raise ProfileReadError(
                self.database.path,
                f"schema version {version!r}" if version else "no schema version in rocpd_metadata",
                "this reader doesn't support the version of the profiler",
                f"use a version of the profiler with schema {' or '.join(self.schema.versions)}",
            )
        self.require()
        return stated

    def require(self) -> None:
        """Raise ProfileReadError if required tables or columns are missing, or if identifiers of
        rows aren't unique.
        """
        for table, columns in self.schema.required.items():
            self.database.require(self.name(table), columns)
        for table, columns in self.schema.filled.items():
            if self.name(table) in self.database.tables:
                self.database.require(self.name(table), columns)
        for table, column in self.schema.unique.items():
            if column in self.database.tables.get(self.name(table), ()):
                self.database.refuse_repeated(self.name(table), column)

    def columns(self, query: str, texts: Codes) -> dict[str, np.ndarray]:
        """Return the columns of the query in a file of the reader's folder. See
        `Database.columns`.
        """
        return self.database.columns(
            self.schema.query(query), texts, (self.schema.strings, "string")
        )

    def doubts(self) -> list[str]:
        """Return warnings about values of the wrong type, and about optional tables that are
        probably in the file under a name that differs by one character, or as a view.
        """
        database = self.database
        known = {*map(self.name, self.schema.required | self.schema.optional)}
        lacking = known - {*database.tables}
        others = {*database.names} - (known - lacking)
        warnings, database.warnings = database.warnings, []
        return warnings + [
            f"{database.path.name}: {name!r} is missing, so its content was left out, but the file"
            f" has {near!r}. Likely cause: another program changed the file, or it is damaged."
            for name in sorted(lacking)
            for near in get_close_matches(name, others, 1, 1 - 1.01 / len(name))
        ]

    def losses(self, cause: str) -> list[str]:
        """Return a warning about all references to missing rows, if there are any.

        Raises ProfileReadError if nearly all references of a vital link are broken.
        """
        # Reading the numbers takes a quarter of the time of joins in SQLite.
        query = "SELECT {0} FROM {1} WHERE {0} IS NOT NULL"
        numbers = cache(lambda *where: self.database.columns(query.format(*where), Codes()))
        found = []
        for source, links in self.schema.links.items():
            present = self.database.tables.get(self.name(source), ())
            for column, target, problem, *vital in links:
                if column not in present:
                    continue
                stated = numbers(column, source)[column]
                broken = int(np.isin(stated, numbers("id", target)["id"], invert=True).sum())
                if not broken:
                    continue
                found.append(f"{broken:,} of {len(stated):,} rows of {self.name(source)} {problem}")
                if vital and broken >= MAX_BROKEN_LINKS_SHARE * len(stated):
                    raise ProfileReadError(
                        self.database.path, found[-1], cause, "copy it again, or record again"
                    )
        lost = f"Likely cause: {cause}. All counts and sums exclude the missing data."
        return [f"{self.database.path.name}: {'; '.join(found)}. {lost}"] if found else []


def samples_of(found: dict[str, np.ndarray], texts: Codes) -> tuple[pd.DataFrame, Counter[str]]:
    """Return the columns of a query as a table of counter samples, and the number of unusable
    samples for each reason.
    """
    columns = {
        name: by_code(texts, values, None, object)
        if type_of(name) == "text"
        else nullable(values.copy(), COUNTER_COLUMNS.get(name, "Int64"))
        if type_of(name) == "integer" and name != "time_ns"
        else values
        for name, values in found.items()
    }
    table = pd.DataFrame(columns, copy=False)
    duration = found.get("duration_ns", np.zeros(len(table), np.int64))
    end = found["time_ns"] + np.where(duration == ABSENT, 0, duration)
    sound = (found["time_ns"] > 0) & (end >= found["time_ns"]) & (end < LATEST_START_NS)
    sound &= np.isfinite(found["value"]) & (found["name"] != NO_TEXT)
    again = sound & table.duplicated().to_numpy()
    lost = {"from incomplete samples": ~sound, f"from samples {REPEATED}": again}
    return table[sound & ~again], +Counter({why: int(rows.sum()) for why, rows in lost.items()})


def read_databases(
    path: Path,
    is_database: Callable[[bytes], bool],
    patterns: Sequence[str],
    what: str,
    read_file: Callable[[Path, Codes], Iterable[Part]],
    rank: int | None,
    meta: dict[str, Any],
    origin: Origin | None,
) -> Profile:
    """Read a file, or the files of a folder that match a pattern.

    - what: the name of the files in the plural.
    - read_file: returns the parts of a file, one per process.

    Raises ProfileReadError if the processes that used a GPU don't state different ranks, or if a
    run occurs twice.
    """
    files, ignored = database_files(path, is_database, patterns, what)
    texts = Codes()
    of_files, nothing = read_recorded(files, lambda file: list(read_file(file, texts)))
    parts = [part for of_file in of_files for part in of_file]
    for part in parts:
        part.rank = rank_in_name(part.path, path) if part.rank is None else part.rank
    on_gpu = [ON_DEVICE[part.records["kind"]].any() for part in parts]
    extents = [part.extent() for part, is_used in zip(parts, on_gpu, strict=True) if is_used]
    refuse_mixed_ranks(path, extents)
    runs = [(part.facts.pop(RUN, None) or number, part) for number, part in enumerate(parts)]
    refuse_overlap(path, [(f"run {run}", *part.extent().span, part.path) for run, part in runs])
    for part, is_used in zip(parts, on_gpu, strict=True):
        # Helper processes, such as data loader workers, don't use a GPU.
        if any(on_gpu) and not is_used:
            part.warnings = []
    parts = selected_rank(path, parts, rank)
    parts[0].ignored = nothing | dict.fromkeys(ignored, FOREIGN)
    return profile_of(parts, texts, meta, origin)
