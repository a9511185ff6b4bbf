"""What the readers of SQLite files share."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np

from tidyprof.io.sqlite import open_database
from tidyprof.tables.codes import ABSENT, Codes


def test_values_of_many_sorts(tmp_path):
    """A column whose first rows are integers and whose later ones are anything."""
    rows = [(number, number) for number in range(20_000)]
    rows += [("x", "x"), (None, None), (1.5, 1.5), (9e999, 9e999), (b"0", b"0"), (2**63 - 1, -1)]
    with closing(sqlite3.connect(tmp_path / "mixed.db")) as connection:
        connection.execute("CREATE TABLE t (a integer, b real)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", rows)
        connection.commit()
    with open_database(tmp_path / "mixed.db") as opened:
        found = opened.columns("SELECT a AS thread, b AS value FROM t", Codes())
        (warning,) = opened.warnings
    assert found["thread"].dtype == np.int64
    assert found["thread"][:20_000].tolist() == list(range(20_000))
    assert found["thread"][20_000:].tolist() == [ABSENT] * 5 + [2**63 - 1]
    assert found["value"][19_999] == 19_999
    assert np.isnan(found["value"][[20_000, 20_001, 20_003, 20_004]]).all()
    assert found["value"][[20_002, 20_005]].tolist() == [1.5, -1.0]
    assert "4 in the column thread" in warning
