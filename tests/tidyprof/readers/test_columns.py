"""A column that a newer release adds is read, or a reader's UNUSED lists it: until then these tests
fail.
"""

from __future__ import annotations

import ast
import re
import sqlite3
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import tidyprof
from gpumodel import writers
from tests.gpumodel.handmade import small_run
from tests.tidyprof.rocpd_writer import small_database
from tests.tidyprof.rpd_writer import small_file
from tidyprof.readers.rocprof_compute.counter_csv import counter_columns
from tidyprof.readers.rocprofv3.columns import header_of, is_known, role_of

READERS = Path(tidyprof.__file__).parent / "readers"

WRITTEN = {
    "rocprofv3": [("rocprofv3-csv", {})],
    "rocpd": [("rocpd", {})],
    "rpd": [("rpd", {})],
    "rocprof_compute": [("rocprof-compute", {"layout": layout}) for layout in ("long", "wide")],
}
"""Reader -> what gpumodel writes for it."""


@cache
def named_in(reader: str) -> set[str]:
    """Every word of the texts in a reader's code, UNUSED among them and docstrings not; in small
    letters.
    """
    found: set[str] = set()
    for path in (READERS / reader).glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = (
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        found |= {
            word
            for text in texts
            if id(text) not in docstrings
            for word in re.findall(r"\w+", text.value.lower())
        }
    return found


def unknown(reader: str, columns: Iterable[str]) -> set[str]:
    """The columns that a reader neither reads nor lists."""
    if reader == "rocprofv3":
        return {column for column in columns if not is_known(column)}
    words = named_in(reader)
    counters = (
        {one.column for one in counter_columns([*columns])}
        if reader == "rocprof_compute"
        else set()
    )
    return {
        column for column in columns if re.sub(r"_\d+$", "", column.lower()) not in words
    } - counters


def columns_of(reader: str, folders: Iterable[Path]) -> Iterator[tuple[Path, list[str]]]:
    """The columns of the files of a reader's format, and of the tables in them."""
    for path in (
        path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()
    ):
        with path.open("rb") as file:
            head = file.read(2**20)
        if reader in ("rpd", "rocpd") and head.startswith(b"SQLite"):
            connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
            names = [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            ]
            if ("rocpd_api_ops" in names) == (reader == "rpd"):
                for name in (name for name in names if name.startswith(("rocpd_", "ext_"))):
                    yield (
                        path,
                        [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')],
                    )
            connection.close()
        header = header_of(head) if path.suffix == ".csv" else None
        if reader == "rocprofv3" and header and role_of(header) in ("trace", "samples", "counters"):
            yield path, header
        if (
            reader == "rocprof_compute"
            and path.name.startswith(("pmc_perf", "results_"))
            and header
        ):
            yield path, header


@pytest.mark.parametrize(
    ("reader", "origin"),
    [
        *((reader, "written") for reader in WRITTEN),
        *((reader, "recorded") for reader in WRITTEN if reader != "rocpd"),  # none is public
    ],
)
def test_no_column_is_left_out_unnoticed(
    reader: str, origin: str, tmp_path: Path, recordings: Path
) -> None:
    folders = [*recordings.glob("r*")] if origin == "recorded" else written(reader, tmp_path)
    found = list(columns_of(reader, folders))
    assert len(found) >= len(WRITTEN[reader])
    missed = {(path.name, column) for path, columns in found for column in unknown(reader, columns)}
    assert not missed, f"read them in readers/{reader}, or list them in its UNUSED"


def written(reader: str, tmp_path: Path) -> list[Path]:
    """Folder with what our writers make of a run for a reader."""
    for place, (name, options) in enumerate(WRITTEN[reader]):
        writers.write(name, small_run(), tmp_path / str(place), **options)
    if reader == "rocpd":
        small_database(tmp_path / "small.db")
    if reader == "rpd":
        small_file(tmp_path / "small.rpd", 3)
    return [tmp_path]


@pytest.mark.parametrize("reader", WRITTEN)
def test_a_column_of_a_newer_release_is_noticed(reader: str) -> None:
    assert unknown(reader, ["Warp_Color"]) == {"Warp_Color"}
    assert not unknown(
        reader,
        {"rocprofv3": ["Kernel_Name", "Address"], "rocpd": ["kernel_id", "xcc"]}.get(reader, []),
    )
