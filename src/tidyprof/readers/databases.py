"""What the readers of databases share: files of a folder, texts by number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tidyprof.errors import ProfileReadError
from tidyprof.io.byte_stream import SQLITE_MAGIC, head_or_nothing
from tidyprof.io.sqlite import Database
from tidyprof.tables.codes import NO_TEXT, Codes

NAMELESS = "whose name is not in the file"
"""Why rows are left out that refer to a text which is not there."""


def database_files(
    path: Path, is_database: Callable[[Path], bool], patterns: Sequence[str], what: str
) -> tuple[list[Path], list[Path]]:
    """The file, or those of a folder that match a pattern and are databases of the format; and the other databases.

    A file that matches and is no database at all may be a damaged rank: it is kept, so that reading it tells
    what is wrong. Raises ProfileReadError if the folder has none of the format.
    """
    if not path.is_dir():
        return [path], []
    named = sorted({file for pattern in patterns for file in path.glob(pattern) if file.is_file()})
    own = [file for file in named if is_database(file)]
    if not own:
        raise ProfileReadError(
            path,
            f"{len(named)} files in the folder that are named like {what}, none of them one",
            "the folder is another one, or the profiler wrote elsewhere",
            "pass the folder or file that the profiler wrote to",
        )
    databases = [file for file in named if head_or_nothing(file, len(SQLITE_MAGIC)) == SQLITE_MAGIC]
    others = [file for file in databases if file not in own]
    return [file for file in named if file not in others], others


def text_codes(
    database: Database, ids: np.ndarray, texts: Codes, table: str = "rocpd_string", column: str = "string"
) -> np.ndarray:
    """The codes of the texts with these identifiers, int32; NO_TEXT where the file has no such text."""
    places, unique = pd.factorize(ids)
    found = database.texts(table, unique, column)
    codes = [texts[found[number]] if number in found else NO_TEXT for number in unique.tolist()]
    return np.array([*codes, NO_TEXT], np.int32)[places]
