"""What a lesson shows: sentences, tables in readable units with their origin, figures with their
words.
"""

from __future__ import annotations

import re

import pandas as pd
import pytest

from proflab.display import Notice, Table, typeset_html
from proflab.showing import Picture, Prose, say, show_figure, show_roofline, show_table
from tidyprof import plots
from tidyprof.tables.contract import Origin

ALLOWED_TAGS = {
    f"<{end}{name}>" for end in ("", "/") for name in ("p", "pre", "code", "strong", "em")
} | {"<br>"}
ORIGIN = Origin("recorded", "AMD Instinct MI300X")


@pytest.fixture
def kernels() -> pd.DataFrame:
    columns = {
        "short_name": ["gemm", "<fill>"],
        "category": ["GEMM", "copy"],
        "calls": [1200, 3],
        "total_ns": [71_516_523, 400],
        "percent": [99.9994, 0.0006],
        "mean_ns": [59_597.1, float("nan")],
    }
    table = pd.DataFrame(columns)
    table.attrs["origin"] = ORIGIN
    return table


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_times_are_shown_in_the_unit_asked_for(
    kernels: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    show_table(kernels, "short_name calls total_ms mean_us percent", "Kernels")
    assert lines(capsys) == [
        ["Kernels"],
        ["short", "name", "calls", "total,", "ms", "mean,", "µs", "share,", "%"],
        ["gemm", "1,200", "71.5", "59.6", "100.0"],
        ["<fill>", "3", "<0.1", "<0.1"],
        ["recorded:", "AMD", "Instinct", "MI300X"],
    ]


def test_nanoseconds_stay_as_they_are(
    kernels: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    show_table(kernels, "total_ns", "Kernels")
    assert lines(capsys)[1:3] == [["total,", "ns"], ["71,516,523"]]


def test_headings_give_the_unit_of_other_columns_and_leave_counters_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = pd.DataFrame({"start_us": [1.0], "SQ_INSTS_VALU": [2]})
    show_table(table, "start_us SQ_INSTS_VALU", "Numbers", origin="modelled")
    assert lines(capsys)[1] == ["start,", "µs", "SQ_INSTS_VALU"]


def test_rows_left_out_are_counted(
    kernels: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    show_table(kernels, "short_name", "Kernels", rows=1)
    assert lines(capsys)[-2:] == [
        ["gemm"],
        ["1", "of", "2", "rows;", "recorded:", "AMD", "Instinct", "MI300X"],
    ]


def test_small_and_missing_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame(
        {"a": [0.00123, 0.0], "b": pd.array([None, 4], "Int64"), "c": [float("nan")] * 2}
    )
    show_table(frame, "a b c", "Numbers", origin="modelled")
    assert lines(capsys)[2:4] == [["0.00123"], ["0.00000", "4"]]


def test_a_table_without_origin_is_refused(kernels: pd.DataFrame) -> None:
    kernels.attrs.clear()
    with pytest.raises(ValueError, match="where its numbers come from"):
        show_table(kernels, "calls", "Kernels")


def test_an_unknown_column_is_named_with_its_neighbours(kernels: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"no column 'total_s_ms'.*total_ns"):
        show_table(kernels, "total_s_ms", "Kernels")


def test_numbers_are_flush_right_in_html(
    kernels: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []
    monkeypatch.setattr("proflab.showing.show", shown.append)
    show_table(kernels, "short_name calls", "Kernels")
    html = shown[0]._repr_html_()
    assert "text-align:right" in html.partition(">1,200<")[0].rpartition("<td")[2]
    assert "text-align:left" in html.partition(">&lt;fill&gt;<")[0].rpartition("<td")[2]


def test_a_figure_brings_its_words(
    kernels: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    figure = plots.top_kernels(kernels)
    show_figure(figure)
    assert figure.alternative_text in capsys.readouterr().out
    html = Picture(figure)._repr_html_()
    assert html.startswith("<img alt=")
    # With its triangle, also where a style sheet says `summary {display: block}`, as the classic
    # notebook's does.
    assert (
        '<details><summary style="display:list-item">This figure in words</summary><p>Bars of'
        in html
    )


def test_a_sentence_keeps_its_own_markup(capsys: pytest.CaptureFixture[str]) -> None:
    say("**Busy: 94 %**")
    assert capsys.readouterr().out == "**Busy: 94 %**\n"
    shown = Prose("**Busy, `gemm<T>`**\n`char** a, char** b`")._repr_html_()
    assert (
        shown == "<p><strong>Busy, <code>gemm&lt;T&gt;</code></strong><br><code>char** a, char**"
        " b</code></p>"
    )
    assert Prose("```sql\nSELECT a < b\n```")._repr_html_() == "<pre>SELECT a &lt; b</pre>"


@pytest.mark.parametrize(
    ("said", "html"),
    [
        ("Its *exposed copy* is the time.", "Its <em>exposed copy</em> is the time."),
        ("The verdict is *unproven*.", "The verdict is <em>unproven</em>."),
        (
            "*How many kernels?* asks (*who*) *a `b*c` d*",
            "<em>How many kernels?</em> asks (<em>who</em>) <em>a <code>b*c</code> d</em>",
        ),
        (
            "**Busy**: *least of all*, **more**, *x*",
            "<strong>Busy</strong>: <em>least of all</em>, <strong>more</strong>, <em>x</em>",
        ),
    ],
)
def test_a_word_between_asterisks_is_emphasis(said: str, html: str) -> None:
    assert Prose(said)._repr_html_() == f"<p>{html}</p>"


@pytest.mark.parametrize(
    "said",
    [
        *(
            "2 * 3 * 4",
            "2*3*4",
            "a *b",
            "*.csv and *.json",
            "*_trace.csv, *_stats.csv",
            "runs/*/rank*/trace_*.json",
        ),
        *(
            "kernel_*.csv *x",
            "f(float const*, int*)",
            "f(float *a, int *b)",
            "*a_*.csv",
            "trace*json* of",
            "*a*.csv",
        ),
    ],
)
def test_other_asterisks_stay(said: str) -> None:
    assert Prose(said)._repr_html_() == f"<p>{said}</p>"
    assert Prose(f"`{said}`")._repr_html_() == f"<p><code>{said}</code></p>"


@pytest.mark.parametrize(
    "name",
    [
        "[click](javascript:alert(1))",
        "<img src=x onerror=alert(1)>",
        "a`<b>`",
        "\\`<b>`",
        "```\n<script>\n```",
        "![x](y)",
    ],
)
def test_what_a_file_says_is_only_text(name: str) -> None:
    for sentence in (name, f"`{name}`", f"**{name}**", f"Longest: {name}.\n\n`"):
        shown = Prose(sentence)
        assert not set(re.findall(r"<[^>]*>", shown._repr_html_())) - ALLOWED_TAGS
        assert not hasattr(shown, "_repr_markdown_")


def test_a_ratio_near_one_keeps_its_digits(capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame({"case": ["a", "b"], "times_faster": [22.4, 1.04]})
    show_table(table, "case times_faster", "Cures", origin="by hand")
    assert "1.04" in capsys.readouterr().out


HOSTILE = "\x1b[2J\u202e\x00<b>\x9b"


@pytest.mark.parametrize(
    "shown",
    [
        Prose(f"{HOSTILE}\n`{HOSTILE}`"),
        Table(HOSTILE, (HOSTILE,), [(HOSTILE,)], HOSTILE),
        Notice(HOSTILE, HOSTILE, code=HOSTILE),
    ],
    ids=["prose", "table", "notice"],
)
def test_what_no_one_can_see_is_shown_as_such_in_a_notebook_and_as_text(
    shown: Prose | Table | Notice,
) -> None:
    for text in (shown._repr_html_(), str(shown)):
        assert all(letter.isprintable() for line in text.split("\n") for letter in line)
        assert "�[2J��" in text
    assert "<b>" not in shown._repr_html_()


def test_headings_are_words_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    columns = {
        "by_hand_mb": [18.93],
        "bus_gb_per_s": [248.2],
        "in_mib": [204.0],
        "lds_bytes": [16],
        "rate_per_gpu": [2.5],
        "spilled_vgprs": [1],
        "bytes": [7],
        "images_per_s": [9],
    }
    show_table(pd.DataFrame(columns), " ".join(columns), "Numbers", origin="by hand")
    head = " ".join(capsys.readouterr().out.splitlines()[1].split())
    words = "by hand, MB|bus, GB/s|in, MiB|LDS, bytes|rate per GPU|spilled VGPRs|bytes|images per s"
    assert head == words.replace("|", " ")


def test_numbers_that_name_something_have_no_separators(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = pd.DataFrame(
        {"tid": pd.array([2**53 + 1, None], "Int64"), "correlation_id": [4321, 9], "calls": 8765}
    )
    show_table(table, "tid correlation_id calls", "Numbers", origin="by hand")
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("9007199254740993", " 4321", "8,765"))


def test_a_column_of_whole_numbers_has_no_decimals(capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame({"waves": [6.0, 2.0], "load_percent": [30.0, float("nan")]})
    show_table(table, "waves load_percent", "Numbers", origin="by hand")
    assert lines(capsys)[2:4] == [["6", "30"], ["2"]]


def test_a_number_that_was_rounded_gets_no_decimals_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = pd.DataFrame({"expected": [7.7, 5.4, 0.0], "exact": [7.684, 5.42, 0.001]})
    show_table(table, "expected exact", "Numbers", origin="by hand")
    assert lines(capsys)[2:5] == [["7.7", "7.68"], ["5.4", "5.42"], ["0.0", "<0.01"]]


def test_times_in_any_unit_are_shown_in_the_one_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = pd.DataFrame({"wait_us": [13_358_753], "total_ms": [56_703.7]})
    show_table(table, "wait_s total_s", "Waiting", origin="by hand")
    assert lines(capsys)[1:3] == [["wait,", "s", "total,", "s"], ["13.4", "56.7"]]


ERROR = "error: kernel time -3 %, collectives -25 %"


def test_the_error_of_a_model_stands_in_full_below_the_first_table_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("proflab.showing._SHOWN_IN_FULL", {})
    origin = f"modelled: MI300X, {ERROR}; recorded: H200"

    def below(title: str) -> str:
        show_table(pd.DataFrame({"a": [1]}), "a", title, origin=origin)
        return capsys.readouterr().out.splitlines()[-1]

    assert below("First") == origin
    assert below("Second") == "modelled: MI300X; recorded: H200"
    assert below("First") == origin  # where its cell is run again


def test_the_error_of_times_does_not_stand_below_bytes_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("proflab.showing._SHOWN_IN_FULL", {})
    table = pd.DataFrame({"line": ["a"], "taken_bytes": [2**20], "total_ns": [5], "calls": [2]})

    def below(columns: str) -> str:
        show_table(table, columns, columns, origin=f"modelled: MI300X, {ERROR}")
        return capsys.readouterr().out.splitlines()[-1]

    assert below("line taken_mib calls") == "modelled: MI300X"
    assert below("line taken_mib total_us") == f"modelled: MI300X, {ERROR}"


def test_so_it_does_in_the_corner_of_a_figure(
    kernels: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proflab.showing._SHOWN_IN_FULL", {})
    kernels.attrs["origin"] = Origin("modelled", f"MI300X, {ERROR}")
    corners = []
    for title in ("First", "Second"):
        figure = plots.top_kernels(kernels, title=title)
        show_figure(figure)
        corners += [text.get_text() for text in figure.texts if text.get_gid() == "origin"]
        assert figure.origin == f"modelled: MI300X, {ERROR}"
    full = f"modelled: MI300X, {ERROR}".replace("-", "\N{MINUS SIGN}")
    assert corners == [full.replace(" %", "\N{NO-BREAK SPACE}%"), "modelled: MI300X"]


def test_no_line_begins_with_percent_and_a_minus_is_one_but_not_in_code() -> None:
    shown = Prose("-3 % of `a -1 % 2` on 2026-11-27, well-known")._repr_html_()
    assert shown == (
        "<p>\N{MINUS SIGN}3\N{NO-BREAK SPACE}% of <code>a -1 % 2</code>"
        " on 2026-11-27, well-known</p>"
    )


def test_kernels_stand_below_their_roofs_with_their_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proflab.showing.show_figure", figures.append)
        points, roofs = {"norm": (2.0, 1e12)}, {"peak": 1e15, "achievable": 6e14}
        others = ("others", [10.0, 100.0], [2e12, 1e12])
        show_roofline(points, roofs, 5e12, "Far below", "by hand", others)
    (figure,) = figures
    (axes,) = figure.axes
    texts = {text.get_text().strip() for text in axes.texts}
    assert texts == {
        "peak 1,000 TFLOP/s",
        "achievable 600 TFLOP/s",
        "memory 5.0 TB/s",
        "norm",
        "others",
    }
    assert axes.get_ylabel() == "TFLOP/s"
    assert figure.alternative_text == (
        "Far below: norm at 2 FLOP per byte, 10.0 % of the lowest roof there; others, 2 points."
    )


def test_times_that_are_compared_have_equal_decimals(capsys: pytest.CaptureFixture[str]) -> None:
    table = pd.DataFrame(
        {"base_ms": [1.37], "new_ms": [20.53], "mean_us": [3.142], "rest_ms": 0.42}
    )
    show_table(table, "base_ms new_ms mean_us rest_ms", "Kernels", origin="by hand")
    assert lines(capsys)[2] == ["1.4", "20.5", "3.14", "0.42"]


def test_a_time_near_one_is_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(pd.DataFrame({"longest_ms": [16.48, 0.94]}), "longest_ms", "Gaps", origin="by hand")
    assert lines(capsys)[2:4] == [["16.5"], ["0.9"]]


def test_tags_and_code_keep_their_hyphens():
    given = '<p style="margin:-1px">-3 % of <code>x -3 % y</code></p>'
    assert typeset_html(given) == (
        '<p style="margin:-1px">\u22123\u00a0% of <code>x -3 % y</code></p>'
    )
