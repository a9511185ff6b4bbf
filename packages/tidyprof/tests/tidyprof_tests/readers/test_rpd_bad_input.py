"""Files that are no sound rpd files: one line that says what was found and what to do, never
another exception.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tidyprof import ProfileReadError
from tidyprof.readers.rpd.reader import read_rpd
from tidyprof_tests.damage import refusal
from tidyprof_tests.rpd_writer import RpdWriter, small_file


def changed(*statements: str, version: int = 2) -> Callable[[Path], None]:
    """The small file after some SQL."""

    def write(path: Path) -> None:
        small_file(path, version)
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return write


def content(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


def cut_short(share: float, pack: Callable[[bytes], bytes] = bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        data = pack(small_file(path).read_bytes())
        path.write_bytes(data[: int(len(data) * share)])

    return write


def other_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE results (name, value)")
    connection.close()


def nothing_recorded(path: Path) -> None:
    RpdWriter(path).close()


def endless_view(name: str) -> str:
    return (
        f"CREATE VIEW {name} AS WITH RECURSIVE r(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM r)"
        " SELECT id FROM r"
    )


BAD_FILES = {
    "JSON": content(json.dumps({"traceEvents": []}).encode()),
    "text": content(b"gpuId|GpuTime\n"),
    "the header alone": content(b"SQLite format 3\x00"),
    "a compressed JSON": content(gzip.compress(b'{"traceEvents": []}')),
    "half a file": cut_short(0.5),
    "nine tenths of a file": cut_short(0.9),
    "a page of a file": cut_short(0.02),
    "another database": other_database,
    "a database of ROCm 7": changed(
        "CREATE TABLE rocpd_kernel_dispatch_0000ddb5_8903_7903_b269_cd8d3745bb8a (id)"
    ),
    "nothing recorded": nothing_recorded,
    "an old schema": changed("UPDATE rocpd_metadata SET value = '1' WHERE tag = 'schema_version'"),
    "a future schema": changed(
        "UPDATE rocpd_metadata SET value = '4' WHERE tag = 'schema_version'"
    ),
    "no schema version": changed("DELETE FROM rocpd_metadata"),
    "a table misspelt": changed("ALTER TABLE rocpd_api_ops RENAME TO rocpd_apiops"),
    "a column misspelt": changed("ALTER TABLE rocpd_op RENAME COLUMN opType_id TO optype_ids"),
    "a view for a table": changed(
        "ALTER TABLE rocpd_op RENAME TO operations", endless_view("rocpd_op")
    ),
    "a damaged schema": (
        changed(
            "PRAGMA writable_schema = ON",
            "UPDATE sqlite_master SET sql = 'CREATE' WHERE name = 'rocpd_op'",
        )
    ),
    "times in microseconds": changed(
        "UPDATE rocpd_op SET start = start / 1000.0 + 0.5, end = end / 1000.0 + 0.25"
    ),
    "times as text": changed("UPDATE rocpd_op SET start = 'soon'"),
    "infinite times": changed("UPDATE rocpd_op SET start = 9e999"),
    "names that are not there": changed("DELETE FROM rocpd_string WHERE string = 'relu'"),
    "calls with negative duration": changed("UPDATE rocpd_api SET end = start - 1"),
    "operations twice": (
        changed(
            "CREATE TABLE copy AS SELECT * FROM rocpd_op",
            "DROP TABLE rocpd_op",
            "ALTER TABLE copy RENAME TO rocpd_op",
            "INSERT INTO rocpd_op SELECT * FROM rocpd_op",
        )
    ),
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_bad_files(tmp_path, what):
    write = BAD_FILES[what]
    path = tmp_path / "trace.rpd"
    write(path)
    refusal(path, read_rpd)


@pytest.mark.parametrize(
    ("suffix", "beside"),
    [("-wal", b"7\x7f\x06\x82" + bytes(28)), ("-journal", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7")],
)
def test_changes_that_are_not_in_the_file_yet(tmp_path, suffix, beside):
    path = small_file(tmp_path / "trace.rpd")
    other = path.with_name(path.name + suffix)
    other.write_bytes(beside)
    with pytest.raises(ProfileReadError, match=r"-wal or -journal"):
        read_rpd(path)
    other.write_bytes(b"")
    assert len(read_rpd(path).events)


def test_few_bad_rows_are_dropped_and_counted(tmp_path):
    writer = RpdWriter(tmp_path / "trace.rpd")
    for place in range(1, 401):
        writer.kernel("a", 10_000 * place, 1_000)
    writer.execute('UPDATE rocpd_op SET "end" = start - 5 WHERE id = 7')
    writer.execute("UPDATE rocpd_op SET start = 12.5 WHERE id = 9")
    writer.execute("UPDATE rocpd_api SET start = 0 WHERE id = 3")
    writer.monitor("fast", 0, 10)
    path = writer.close()
    profile = read_rpd(path)
    assert len(profile.device_events) == 398
    assert profile.meta["repairs"] == {
        "dropped events with negative duration": 1,
        "dropped events without start or end": 1,
        "dropped events at time zero": 1,
        "dropped events from incomplete samples": 1,
    }
    assert profile.device_events["launch_ns"].isna().sum() == 1
    assert len(profile.counters) == 0


def test_values_of_the_wrong_sort_are_missing_not_invented(tmp_path):
    writer = RpdWriter(tmp_path / "trace.rpd")
    writer.kernel("a", 10_000, 1_000)
    writer.copy("CopyHostToDevice", 20_000, 1_000)
    writer.execute("UPDATE rocpd_op SET gpuId = 'first', queueId = 1e30")
    writer.execute("UPDATE rocpd_kernelapi SET gridX = 2.5, stream = 'main'")
    writer.execute("UPDATE rocpd_copyapi SET size = 3.25")
    writer.execute("UPDATE rocpd_api SET tid = 'main'")
    device = read_rpd(writer.close()).events.query("kind in ['kernel', 'copy']")
    for column in ("device", "queue", "grid", "bytes", "launch_thread"):
        assert device[column].isna().all()
    assert device["stream"].tolist() == [pd.NA, 0x7F00]


def test_structural_damage_is_found_even_if_all_rows_can_be_read(tmp_path):
    """A page that two tables share: every row reads well, but some are of another table."""
    writer = RpdWriter(tmp_path / "trace.rpd", page_bytes=512)
    for place in range(1, 200):
        writer.kernel("a", 10_000 * place, 1_000)
    path = writer.close()
    data = bytearray(path.read_bytes())
    connection = sqlite3.connect(path)
    ((root,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'rocpd_op'")
    connection.close()
    page = (root - 1) * 512
    assert data[page] == 5, "the root must be an interior page"
    first_cell, second_cell = (
        int.from_bytes(data[page + at : page + at + 2], "big") for at in (12, 14)
    )
    data[page + first_cell : page + first_cell + 4] = data[
        page + second_cell : page + second_cell + 4
    ]
    path.write_bytes(bytes(data))
    with pytest.raises(ProfileReadError, match=r"damaged|identifier"):
        read_rpd(path)


LOSSES = {
    "operations": (
        "DELETE FROM rocpd_op WHERE id <= 2",
        "2 of 4 rows of rocpd_api_ops refer to missing GPU operations",
    ),
    "one operation": (
        "DELETE FROM rocpd_op WHERE id = 1",
        "1 of 4 rows of rocpd_api_ops refer to missing GPU operations",
    ),
    "calls": (
        "DELETE FROM rocpd_api WHERE id > 4",
        "1 of 4 rows of rocpd_api_ops refer to missing host calls",
    ),
    "calls of a range that rpd_trim left": (
        (
            "DELETE FROM rocpd_api WHERE id = 2; DELETE FROM rocpd_api_ops WHERE api_id = 2; "
            "DELETE FROM rocpd_op WHERE id = 1"
        ),
        "1 of 1 rows of rocpd_copyapi refer to missing host calls",
    ),
    "operations that counters name": (
        (
            "DELETE FROM rocpd_op WHERE id = 4; DELETE FROM rocpd_api_ops WHERE op_id = 4; INSERT"
            " INTO rocpd_counter (id, op_id, name_id, value) VALUES (1, 3, 1, 5), (2, 4, 1, 5)"
        ),
        "1 of 2 rows of rocpd_counter refer to missing GPU operations",
    ),
}


@pytest.mark.parametrize("what", LOSSES)
def test_rows_that_name_what_is_gone_are_told_first(tmp_path, what):
    path = tmp_path / "x.rpd"
    assert not read_rpd(small_file(path, 3)).meta["warnings"]
    path.unlink()
    statements, expected = LOSSES[what]
    changed(*statements.split("; "), version=3)(path)
    assert expected in read_rpd(path).meta["warnings"][0]


def test_a_file_without_nearly_all_that_it_names_is_refused(tmp_path):
    path = tmp_path / "x.rpd"
    changed("DELETE FROM rocpd_op")(path)
    assert "4 of 4 rows of rocpd_api_ops refer to missing GPU operations" in refusal(path, read_rpd)


def test_identifiers_that_are_no_whole_numbers_are_told(tmp_path):
    path = tmp_path / "x.rpd"
    changed("UPDATE rocpd_op SET gpuId = 'two' WHERE id < 3")(path)
    warnings = "".join(read_rpd(path).meta["warnings"])
    assert "2 values for the column device" in warnings
