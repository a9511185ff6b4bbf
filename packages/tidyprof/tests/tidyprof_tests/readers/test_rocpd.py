"""The rocpd reader against databases written in the documented schema (no file of the real tool is
public here).
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import tidyprof
from tidyprof import ProfileReadError
from tidyprof.readers.rocpd.reader import read_rocpd
from tidyprof_tests.readers.kit import assert_case, cases_in_file
from tidyprof_tests.rocpd_writer import GUID, RocpdWriter, small_database

OTHER_GUID = "0000ddb5-8903-7903-b269-cd8d3745bb8b"
CASES = cases_in_file("rocpd")


@pytest.mark.parametrize("name", CASES)
def test_a_written_database(name, tmp_path):
    assert_case(CASES[name], RocpdWriter, tmp_path / "file.db")


# Several processes


def job(folder: Path, ranks: int = 2) -> Path:
    """What rocprofv3 writes for a job on one node: OUT/HOST/PID_results.db."""
    (folder / "node17").mkdir(parents=True)
    for rank in range(ranks):
        small_database(
            folder / "node17" / f"{4000 + rank}_results.db",
            guid=GUID[:-1] + str(rank),
            pid=4000 + rank,
            environment={"RANK": str(rank), "WORLD_SIZE": str(ranks)},
        )
    return folder


def test_a_folder_with_a_database_per_process(tmp_path):
    profile = tidyprof.read(job(tmp_path / "out"))
    assert profile.meta["ranks"] == [0, 1]
    assert profile.meta["processes"] == [4000, 4001]
    assert profile.events.groupby("rank").size().tolist() == [11, 11]
    assert len(profile.meta["files"]) == 2
    assert profile.meta["gpu"] == "AMD Instinct MI300X"
    assert read_rocpd(tmp_path / "out", rank=1).meta["rank"] == 1
    with pytest.raises(ProfileReadError, match="no rank 9, only 0, 1"):
        read_rocpd(tmp_path / "out", rank=9)


def test_two_gpu_processes_must_state_their_ranks(tmp_path):
    small_database(tmp_path / "1_results.db")
    small_database(tmp_path / "2_results.db", guid=OTHER_GUID)
    with pytest.raises(ProfileReadError, match=r"2 .* rank"):
        read_rocpd(tmp_path)


def test_a_copy_of_a_database_is_not_counted_twice(tmp_path):
    path = small_database(tmp_path / "rank0_results.db")
    (tmp_path / "rank1_results.db").write_bytes(path.read_bytes())
    with pytest.raises(ProfileReadError, match="both cover run"):
        read_rocpd(tmp_path)


def test_two_processes_in_one_database(tmp_path):
    """A merged database has the tables of each process, with their own suffix."""
    path = small_database(tmp_path / "a.db", environment={"RANK": "0"}, views=False)
    other = small_database(
        tmp_path / "b.db", guid=OTHER_GUID, pid=99, environment={"RANK": "1"}, views=False
    )
    connection = sqlite3.connect(path)
    connection.execute("ATTACH ? AS other", (str(other),))
    for name, sql in connection.execute(
        "SELECT name, sql FROM other.sqlite_master WHERE type = 'table'"
    ).fetchall():
        connection.execute(sql)
        connection.execute(f'INSERT INTO main."{name}" SELECT * FROM other."{name}"')
    connection.commit()
    connection.close()
    profile = read_rocpd(path)
    assert profile.meta["ranks"] == [0, 1]
    assert profile.meta["processes"] == [99, 4242]
    assert profile.meta["files"] == [str(path)]
    assert len(profile.events) == 22
