"""What the readers of SQLite files share: opening, columns of numbers, matching."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidyprof.io.sqlite import open_database
from tidyprof.tables.codes import ABSENT, KIND_CODE, Codes, first_equal, taken
from tidyprof.tables.profiles import event_table
from tidyprof.tables.records import Records, joined


def database(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


@pytest.fixture
def mixed(tmp_path) -> Path:
    """A column whose first rows are integers and whose later ones are anything, which SQLite
    allows.
    """
    rows = ", ".join(
        [
            *(f"({number}, {number})" for number in range(20_000)),
            "('x', 'x')",
            "(NULL, NULL)",
            "(1.5, 1.5)",
        ]
    )
    return database(
        tmp_path / "mixed.db",
        "CREATE TABLE t (a integer, b real)",
        f"INSERT INTO t VALUES {rows}, (9e999, 9e999), (x'00', x'00'), (9223372036854775807, -1)",
    )


def test_values_of_many_sorts(mixed):
    with open_database(mixed) as opened:
        found = opened.columns("SELECT a AS thread, b AS value FROM t", Codes())
        (warning,) = opened.warnings
    assert found["thread"].dtype == np.int64
    assert found["thread"][:20_000].tolist() == list(range(20_000))
    assert found["thread"][20_000:].tolist() == [ABSENT] * 5 + [2**63 - 1]
    assert found["value"][19_999] == 19_999
    assert np.isnan(found["value"][[20_000, 20_001, 20_003, 20_004]]).all()
    assert found["value"][[20_002, 20_005]].tolist() == [1.5, -1.0]
    assert "4 in the column thread" in warning


@pytest.mark.parametrize(
    "texts", [[], ["a"], ["a"] * 5, ["b", "a", "b"], ["", "é", "a\x00b"] * 7000]
)
def test_texts_are_codes(tmp_path, texts):
    path = database(tmp_path / "t.db", "CREATE TABLE t (id integer primary key, string text)")
    with closing(sqlite3.connect(path)) as connection:
        connection.executemany("INSERT INTO t (string) VALUES (?)", [(text,) for text in texts])
        connection.commit()
    codes = Codes()
    query = "SELECT string AS name, id + 1 AS operator_string FROM t ORDER BY id"
    with open_database(path) as opened:
        found = opened.columns(query, codes, ("t", "string"))
    labels = [*codes, None]
    assert [labels[code] for code in found["name"]] == texts
    assert [labels[code] for code in found["operator"]] == [*texts, None][1 : len(texts) + 1]


# Matching

NUMBERS = st.lists(st.integers(-5, 5) | st.integers(-(2**62), 2**62), max_size=20)


@given(NUMBERS, NUMBERS)
def test_first_equal(identifiers, wanted):
    found = first_equal(np.array(identifiers, np.int64), np.array(wanted, np.int64)).tolist()
    assert found == [
        identifiers.index(number) if number in identifiers else -1 for number in wanted
    ]


@given(NUMBERS)
def test_taken(values):
    rows = np.array([*range(len(values)), -1], np.int64)
    assert taken(np.array(values, np.int64), rows).tolist() == [*values, ABSENT]


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 30), max_size=8), min_size=1, max_size=4))
def test_the_table_orders_the_events_of_all_parts(parts):
    texts = ["f", "kernel<int>()"]
    made = [
        Records(
            {
                "kind": np.full(
                    len(starts), KIND_CODE["kernel" if place % 2 else "runtime"], np.int8
                ),
                "start_ns": np.array(starts, np.int64),
                "duration_ns": np.full(len(starts), place, np.int64),
                "name": np.full(len(starts), place % 2, np.int32),
            }
        )
        for place, starts in enumerate(parts)
    ]
    frame = event_table(joined(made), texts)
    expected = sorted(
        ((start, place) for place, starts in enumerate(parts) for start in starts),
        key=lambda pair: pair[0],
    )
    assert list(zip(frame["start_ns"], frame["duration_ns"], strict=True)) == expected
    assert [texts.index(name) for name in frame["name"]] == [place % 2 for _, place in expected]
    assert frame["device"].isna().all()
