"""What a lesson shows: sentences, tables in readable units with their origin, figures with their
words.
"""

from __future__ import annotations

import re

import pandas as pd
import pytest
from proflab.parts.roofline import show_roofline

from proflab.display import Notice, Table, typeset_html
from proflab.showing import Picture, Prose, show_figure, show_table
from tidyprof import plots
from tidyprof.tables.contract import Origin

ALLOWED_TAGS = {
    f"<{end}{name}>" for end in ("", "/") for name in ("p", "pre", "code", "strong", "em")
} | {"<br>"}
KERNELS = {
    "short_name": ["gemm", "<fill>"],
    "category": ["GEMM", "copy"],
    "calls": [1200, 3],
    "total_ns": [71_516_523, 400],
    "percent": [99.9994, 0.0006],
    "mean_ns": [59_597.1, float("nan")],
}
ERROR = "error: kernel time -3 %, collectives -25 %"
HOSTILE = "\x1b[2J\u202e\x00<b>\x9b"


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("table", "columns", "shown"),
    [
        (
            KERNELS,
            "short_name calls total_ms mean_us percent",
            [
                "short name calls total, ms mean, µs share, %",
                "gemm 1,200 71.5 59.6 100.0",
                "<fill> 3 <0.1 <0.1",
            ],
        ),
        (KERNELS, "total_ns", ["total, ns", "71,516,523", "400"]),
        ({"start_us": [1.0], "SQ_WAVES": [2]}, "start_us SQ_WAVES", ["start, µs SQ_WAVES", "1 2"]),
        (
            {"lds_bytes": [16], "rate_per_gpu": [2.5], "bus_gb_per_s": [248.2], "in_mib": [204.0]},
            "lds_bytes rate_per_gpu bus_gb_per_s in_mib",
            ["LDS, bytes rate per GPU bus, GB/s in, MiB", "16 2.5 248 204"],
        ),
        ({"a": [0.00123, 0.0]}, "a", ["a", "0.00123", "0.00000"]),
        (
            {"tid": [2**53 + 1], "calls": [8765]},
            "tid calls",
            ["tid calls", "9007199254740993 8,765"],
        ),
        ({"expected": [7.7, 0.0]}, "expected", ["expected", "7.7", "0.0"]),
        ({"wait_us": [13_358_753]}, "wait_s", ["wait, s", "13.4"]),
        ({"times_faster": [22.4, 1.04]}, "times_faster", ["times faster", "22.40", "1.04"]),
        ({"longest_ms": [16.48, 0.94]}, "longest_ms", ["longest, ms", "16.5", "0.9"]),
        (
            {"base_ms": [1.37], "new_ms": [20.53], "mean_us": [3.142]},
            "base_ms new_ms mean_us",
            ["base, ms new, ms mean, µs", "1.4 20.5 3.14"],
        ),
    ],
)
def test_numbers_have_readable_units_and_decimals(table, columns: str, shown: list[str], capsys):
    frame = pd.DataFrame(table)
    frame.attrs["origin"] = Origin("recorded", "MI300X")
    show_table(frame, columns, "Caption")
    assert lines(capsys) == ["Caption", *shown, "recorded: MI300X"]


def test_rows_left_out_are_counted(capsys) -> None:
    show_table(pd.DataFrame(KERNELS), "short_name", "Kernels", rows=1, origin="by hand")
    assert lines(capsys)[-1] == "1 of 2 rows; by hand"


@pytest.mark.parametrize(("columns", "origin"), [("calls", None), ("total_s_ms", "by hand")])
def test_a_table_needs_its_origin_and_its_columns(columns: str, origin: str | None) -> None:
    with pytest.raises(ValueError, match=r"origin|total_ns"):
        show_table(pd.DataFrame(KERNELS), columns, "Kernels", origin=origin)


def test_the_error_of_a_model_stands_below_the_first_table_of_times(monkeypatch, capsys) -> None:
    monkeypatch.setattr("proflab.showing._SHOWN_IN_FULL", {})
    table = pd.DataFrame({"taken_bytes": [2**20], "total_ns": [5]})
    full, brief = f"modeled: MI300X, {ERROR}", "modeled: MI300X"
    for columns, title, below in (
        ("taken_mib", "Bytes", brief),
        ("total_us", "First", full),
        ("total_us", "Second", brief),
        ("total_us", "First", full),
    ):
        show_table(table, columns, title, origin=full)
        assert lines(capsys)[-1] == below


def test_a_figure_brings_its_words_and_its_origin(monkeypatch, capsys) -> None:
    monkeypatch.setattr("proflab.showing._SHOWN_IN_FULL", {})
    frame = pd.DataFrame(KERNELS)
    frame.attrs["origin"] = Origin("modeled", f"MI300X, {ERROR}")
    corners = []
    for title in ("First", "Second"):
        figure = plots.top_kernels(frame, title=title)
        show_figure(figure)
        assert figure.alternative_text in capsys.readouterr().out
        corners += [text.get_text() for text in figure.texts if text.get_gid() == "origin"]
    assert ["error" in corner for corner in corners] == [True, False]
    assert "<details><summary" in Picture(figure)._repr_html_()


@pytest.mark.parametrize(
    ("said", "html"),
    [
        ("Its *exposed copy* is", "<p>Its <em>exposed copy</em> is</p>"),
        ("(*who*) *a `b*c` d*", "<p>(<em>who</em>) <em>a <code>b*c</code> d</em></p>"),
        ("**Busy, `gemm<T>`**\nb", "<p><strong>Busy, <code>gemm&lt;T&gt;</code></strong><br>b</p>"),
        ("```sql\nSELECT a < b\n```", "<pre>SELECT a &lt; b</pre>"),
        ("2 * 3 * 4", "<p>2 * 3 * 4</p>"),
        ("*_trace.csv, *_stats.csv", "<p>*_trace.csv, *_stats.csv</p>"),
        ("f(float const*, int*)", "<p>f(float const*, int*)</p>"),
        ("-3 % of `a -1 % 2`", "<p>\u22123\u00a0% of <code>a -1 % 2</code></p>"),
    ],
)
def test_prose_sets_code_and_emphasis(said: str, html: str) -> None:
    assert Prose(said)._repr_html_() == html


@pytest.mark.parametrize(
    "name", ["[click](javascript:alert(1))", "<img src=x onerror=alert(1)>", "a`<b>`", "![x](y)"]
)
def test_what_a_file_says_is_only_text(name: str) -> None:
    for sentence in (name, f"`{name}`", f"**{name}**", f"```\n{name}\n```"):
        html = Prose(sentence)._repr_html_()
        assert not set(re.findall(r"<[^>]*>", html)) - ALLOWED_TAGS


@pytest.mark.parametrize(
    "shown",
    [
        Prose(f"{HOSTILE}\n`{HOSTILE}`"),
        Table(HOSTILE, (HOSTILE,), [(HOSTILE,)], HOSTILE),
        Notice(HOSTILE, HOSTILE, code=HOSTILE),
    ],
    ids=["prose", "table", "notice"],
)
def test_what_no_one_can_see_is_shown_as_such(shown: Prose | Table | Notice) -> None:
    for text in (shown._repr_html_(), str(shown)):
        assert all(letter.isprintable() for line in text.split("\n") for letter in line)
    assert "<b>" not in shown._repr_html_()


def test_a_wide_table_is_written_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proflab.display.terminal_width", lambda *_: 30)
    table = Table("Caption", ("a", "b"), [("x" * 20, "words " * 9)], "note " * 9)
    text = str(table)
    assert max(map(len, text.splitlines())) <= 30
    assert "x" * 20 in text
    html = Table("Caption", ("a", "n"), [("x", "1")], flush_right=("n",))._repr_html_()
    assert "text-align:right" in html.partition(">1<")[0].rpartition("<td")[2]
    assert typeset_html("<p class='-1'>-1 %</p>") == "<p class='-1'>\u22121\u00a0%</p>"


def test_kernels_stand_below_their_roofs_with_their_names(monkeypatch) -> None:
    figures: list = []
    monkeypatch.setattr("proflab.parts.roofline.show_figure", figures.append)
    points = {"norm": ([2.0], [1e12]), "others": ([10.0, 100.0], [2e12, 1e12])}
    roofs = {"peak": 1e15, "achievable": 6e14, "vector": 1e14}
    show_roofline(points, roofs, 5e12, "Far below", "by hand")
    axes = figures[0].axes[0]
    texts = {text.get_text().split()[0] for text in axes.texts}
    assert texts == {"peak", "achievable", "vector", "memory", "fastest:"}
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["norm", "others"]
    assert "norm 1, others 2" in figures[0].alternative_text
