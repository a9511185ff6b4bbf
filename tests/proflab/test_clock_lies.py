"""The seven lies: numbers that can be worked out by hand, and a table that says which are whose."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from proflab.parts.clock_lies import CURES, Lie, clock_lies, lies_table, rounded
from proflab.training import training_run
from tests.proflab.training_records import write_run


@pytest.fixture
def lies(tmp_path: Path) -> list[Lie]:
    run = training_run(write_run(tmp_path / "run", [900, 20, 20, 20], warmup=1))
    watched = training_run(write_run(tmp_path / "watched", [900, 22, 22, 44], warmup=1, profiled=[3]))
    larger = training_run(write_run(tmp_path / "larger", [900, 40, 40], warmup=1, batch=32))
    rates = {"reported_images_per_second": [5e6], "true_images_per_second": [1e4]}
    return clock_lies(run, watched, larger, pd.DataFrame({"timer": ["lying"], **rates}))


def test_numbers_are_those_of_the_data(lies: list[Lie]) -> None:
    assert [(lie.said, lie.second) for lie in lies] == [
        (pytest.approx(4 * 8 / 0.96), pytest.approx(400)),
        (pytest.approx(21.96, abs=0.01), pytest.approx(20.02, abs=0.01)),
        (5e6, 1e4),
        (3115.56, pytest.approx(3115.56 * 136 / 256)),
        (44, 20),
        (22, 20),
        (pytest.approx(800), pytest.approx(400)),
    ]
    assert [lie.factor for lie in lies][2:7:2] == [500, pytest.approx(2.2), pytest.approx(2)]
    assert [lie.origin for lie in lies] == [
        *["measured", "recorded", "measured", "recorded", "measured", "measured", "measured"]
    ]


def test_table_keeps_numbers_with_their_units(lies: list[Lie]) -> None:
    table = lies_table(lies)
    assert [row[-1] for row in table.rows] == list(CURES)
    assert table.rows[5][1:4] == ("22.0\N{NO-BREAK SPACE}ms", "20.0\N{NO-BREAK SPACE}ms", "10.0\N{NO-BREAK SPACE}%")
    assert table.rows[2][3] == "500\N{NO-BREAK SPACE}times"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12786.7, "12,800"),
        (30_071_655, "30,100,000"),
        (999.6, "1,000"),
        (140.2, "140"),
        (20.02, "20.0"),
        (1.514, "1.51"),
    ],
)
def test_rounded_has_three_digits(value: float, text: str) -> None:
    assert rounded(value) == text
