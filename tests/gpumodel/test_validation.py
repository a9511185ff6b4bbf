"""The model against published figures: the comparison itself, its bars, and what it prints."""

from __future__ import annotations

import io

import pandas as pd
import pytest

from gpumodel import cli, validation
from gpumodel.devices import model_error
from gpumodel.run import TABLES, RankRun
from gpumodel.validation import Row
from tests.conftest import REPOSITORY

MS = 1_000_000


def row(published, modelled, bar=0.3):
    return Row("quantity", published, modelled, "ms", bar, "held out")


def filled(table: str, rows: list[dict]) -> pd.DataFrame:
    """A table of a Run from partial rows; what is not given is 0, "" or <NA>."""
    blank = {"Int64": pd.NA, "object": "", "bool": False}
    columns = TABLES[table]
    values = [
        {name: each.get(name, blank.get(dtype, 0)) for name, dtype in columns.items()}
        for each in rows
    ]
    return pd.DataFrame(values, columns=list(columns)).astype(columns)


@pytest.fixture
def rank() -> RankRun:
    """Steps 9 to 11 of 10 ms each; in step 9 computation 0-4 ms, a collective 3-7 ms, a copy 7-8
    ms.
    """
    steps = [
        {
            "name": f"ProfilerStep#{step}",
            "step": step,
            "start_ns": place * 10 * MS,
            "duration_ns": 10 * MS,
        }
        for place, step in enumerate((9, 10, 11))
    ]
    work = [
        {"kind": "kernel", "start_ns": 0, "duration_ns": 4 * MS, "step": 9},
        {"kind": "collective", "start_ns": 3 * MS, "duration_ns": 4 * MS, "step": 9},
        {"kind": "copy", "start_ns": 7 * MS, "duration_ns": MS, "step": 9},
        {"kind": "kernel", "start_ns": 29 * MS, "duration_ns": 5 * MS, "step": 11},
    ]
    return RankRun(
        0, 1, 2, 0, 2, filled("device_work", work), annotations=filled("annotations", steps)
    )


def test_an_error_is_relative_and_a_bar_counts_in_both_directions():
    assert row(10.0, 12.0).error == pytest.approx(0.2)
    assert not row(10.0, 12.0).missed
    assert row(10.0, 14.0).missed
    assert row(10.0, 6.0).missed


def test_what_nobody_published_has_no_error_and_misses_no_bar():
    assert row(None, 5.0, bar=None).error is None
    assert not row(None, 5.0, bar=None).missed


def test_a_bar_on_something_unpublished_is_missed():
    assert row(None, 5.0).missed


def test_times_of_a_rank_are_those_of_the_profiled_steps(rank):
    # 30 ms in three steps; kernels 4 ms and 1 ms of the last one, whose rest lies outside.
    assert validation._step_ms(rank) == pytest.approx(10)
    assert validation._compute_ms(rank) == pytest.approx(5 / 3)
    assert validation._collective_ms(rank) == pytest.approx(4 / 3)
    assert validation._exposed_ms(rank) == pytest.approx(3 / 3)
    assert validation._idle_share(rank) == pytest.approx(100 * (1 - 9 / 30))


def test_every_published_figure_names_its_source_and_where_it_comes_from():
    sources = validation.published()["sources"]
    for figure in validation.published()["figures"]:
        assert figure["origin"] in ("fitted", "held out")
        assert ("value" in figure) == (figure.get("source") in sources)


def test_the_clause_on_figures_is_current():
    assert model_error() == validation.clause()


def test_the_clause_says_how_far_off_a_kernel_is_in_the_median_and_at_worst(monkeypatch):
    published = [
        ("of calls", 50.0, "/step"),
        ("short", 1.0, "us"),
        ("long", 0.5, "us"),
        ("median error of averages", 0.1, "x"),
    ]
    rows = [
        Row(label, 1.0, 1.0 + error, unit, None, "held out") for label, error, unit in published
    ]
    monkeypatch.setattr(validation, "kernel_rows", lambda: rows)
    assert "one kernel ±10 % (worst +100 %), " in validation.clause()


def test_the_table_fits_80_columns_and_marks_what_is_missed():
    from rich.console import Console

    console = Console(width=80, record=True, file=io.StringIO())
    console.print(validation.table([*validation.kernel_rows(), row(10.0, 20.0)]))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert [line.split()[-1] for line in lines if line.strip().startswith("quantity")][
        -1
    ] == "missed"


def test_the_exit_code_tells_whether_a_bar_was_missed(monkeypatch, capsys):
    monkeypatch.setattr(validation, "rows", lambda: [row(10.0, 11.0)])
    assert cli.main(["validate"]) == 0
    assert "Bars missed: 0." in capsys.readouterr().out
    monkeypatch.setattr(validation, "rows", lambda: [row(10.0, 20.0)])
    assert cli.main(["validate"]) == 1
    assert "Bars missed: 1." in capsys.readouterr().out


def test_devices_are_listed_with_their_peaks(capsys):
    assert cli.main(["devices"]) == 0
    output = capsys.readouterr().out
    assert "MI300X" in output
    assert "1307.4" in output


@pytest.mark.parametrize(
    "arguments", [["validate", "--nonsense"], ["fly"], ["devices", "--batch-size", "4"]]
)
def test_what_the_command_line_does_not_know_is_refused_in_one_line(arguments, capsys):
    assert cli.main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_writing_refuses_an_option_of_the_trainer_that_cannot_be(tmp_path, capsys):
    assert cli.main(["write", "kineto", str(tmp_path), "--batch-size", "0"]) == 2
    assert "--batch-size" in capsys.readouterr().err


def test_no_bar_is_missed_and_the_page_shows_the_comparison_as_it_is():
    compared = validation.rows()
    assert [each.quantity for each in compared if each.missed] == []
    page = (REPOSITORY / "docs" / "gpumodel.md").read_text(encoding="utf-8")
    shown = page.partition(validation.TABLE_BEGINS)[2].partition(validation.TABLE_ENDS)[0]
    assert shown.strip() == validation.markdown(compared), (
        "renew it: gpumodel validate --page docs/gpumodel.md"
    )
