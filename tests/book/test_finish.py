"""What is done to pages that Sphinx wrote, and the one page that the PDF is printed of."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from docs.book import pdf
from docs.book.finish import (
    PAPER_COLUMNS,
    SHORT_LINES,
    breakable,
    description,
    finish,
    finished,
    folded,
    labelled,
    sections,
    whole_options,
)
from docs.book.traces import with_files
from proflab.perfetto_button import PerfettoButton
from proflab.perfetto_trace import Trace
from tidyprof.errors import UserError

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (2000).to_bytes(4) + (500).to_bytes(4)
"""The head of a picture of 2000 by 500 pixels, which is all that is read of it."""

DATA = f'src="data:image/png;base64,{base64.b64encode(PNG).decode()}"'


def page(article: str, title: str = "A page") -> str:
    """A page like Furo's."""
    heading = (
        f'<section id="top"><h1>{title}<a class="headerlink"'
        f' href="#top">#</a></h1>{article}</section>'
    )
    return (
        '<html><head></head><body><article role="main"'
        f' id="furo-main-content">{heading}</article></body></html>'
    )


def test_a_picture_within_a_page_becomes_a_file_with_its_shape_and_a_link(tmp_path: Path):
    done = finished(page(f'<img alt="A" width="1000" {DATA}>'), tmp_path / "_images", "../")
    (image,) = (tmp_path / "_images").iterdir()
    assert image.read_bytes() == PNG
    assert f'<a class="whole-picture" href="../_images/{image.name}"' in done
    assert (
        f'<img loading="lazy" alt="A" width="1000" height="250" src="../_images/{image.name}"></a>'
        in done
    )


def test_a_light_and_a_dark_picture_share_a_link_and_no_link_gets_another(tmp_path: Path):
    pair = '<img class="tidy-light" src="a.png"><img class="tidy-dark" src="b.png">'
    done = finished(page(f'{pair}<a href="x"><img src="c.png"></a>'), tmp_path, "")
    assert re.findall(r'<a class="whole-picture" href="([^"]+)"', done) == ["a.png"]
    assert done.count("<a ") == 3


def test_a_header_without_a_name_is_a_cell_like_others(tmp_path: Path):
    done = finished(
        page(
            '<tr><th class="head"><p></p></th><th scope="col"'
            ' style="a">&nbsp;</th><th>time</th></tr>'
        ),
        tmp_path,
        "",
    )
    assert '<td class="head"><p></p></td><td style="a">&nbsp;</td><th>time</th>' in done


def test_a_page_is_described_by_its_first_words_that_are_no_note_and_no_picture():
    assert (
        description('<p><em>A note.</em></p><p><img src="a"></p><p>A <b>step</b> &amp;\n more.</p>')
        == "A step & more."
    )
    long = description(f"<p>{'word ' * 60}</p>")
    assert long.endswith("word …")
    assert len(long) < 160
    assert '<meta name="description" content="It &lt; that.">' in finished(
        page("<p>It &lt; that.</p>"), Path(), ""
    )


def test_long_names_break_after_an_underscore_a_slash_or_a_point_and_nothing_else_is_touched(
    tmp_path: Path,
):
    table = (
        '<table><td><a href="a_long/long/long_name">a_b</a> <code>ROCPROFSYS_USE_MEMORY</code>'
        " __next__</td></table>"
    )
    assert breakable(table) == table.replace("SYS_USE_", "SYS_<wbr>USE_<wbr>")
    assert (
        breakable("<td>src/tidyprof/io.py &amp; more</td>")
        == "<td>src/<wbr>tidyprof/<wbr>io.<wbr>py &amp; more</td>"
    )
    assert finished(page("<p>ROCPROFSYS_USE_MEMORY</p>" + table), tmp_path, "").count("<wbr>") == 2
    code = finished(page("<p><code>torch.cuda.synchronize</code></p>"), tmp_path, "")
    assert "<code>torch.<wbr>cuda.<wbr>synchronize</code>" in code


def test_an_option_stays_whole_and_a_minus_is_none():
    code = '<code class="a --b">train --num-workers -m 3 -1 a-b --</code>'
    whole = code.replace("--num-workers", '<span class="option">--num-workers</span>')
    whole = whole.replace(" -m", ' <span class="option">-m</span>')
    assert whole_options(code) == whole_options(whole) == whole


def test_each_cell_says_below_which_heading_it_stands():
    table = "<table><thead><tr><td></td><th>time, <b>ms</b></th></tr></thead>{}</table>"
    row = "<tr><td>a</td><td{}>2</td></tr>"
    named = table.format(row.format(' data-label="time, ms"') * 2).replace(
        "<td>a", "<td data-short>a"
    )
    assert labelled(table.format(row.format("") * 2)) == named
    assert "\N{NO-BREAK SPACE}%" in labelled(table.format("<tr><td>a</td><td>8 %</td></tr>"))
    sheet = "<table style='table-layout:fixed'><thead><tr><th>a</th></tr></thead></table>"
    assert labelled(sheet) == sheet
    assert labelled("<table><tr><td>a</td></tr></table>") == "<table><tr><td>a</td></tr></table>"


def test_a_first_cell_says_its_heading_where_it_holds_a_number_and_a_name_stays_bare():
    table = (
        "<table><thead><tr><th>duration, µs</th><th>before</th></tr></thead>"
        "<tr><td>{}</td><td>one</td></tr><tr><td></td><td>two</td></tr></table>"
    )
    numbers = labelled(table.format("35,938"))
    assert '<td data-label="duration, µs" data-short>35,938' in numbers
    assert 'data-label="duration, µs"' not in labelled(table.format("kernel"))


def test_a_cell_with_a_dash_is_marked():
    table = "<table><thead><tr><th>a</th></tr></thead><tr>{}</tr></table>"
    assert labelled(table.format("<td><p>–</p></td>")).count("data-none") == 1
    assert "data-none" not in labelled(table.format("<td><p>1 – 2</p></td>"))


def test_a_remark_after_a_command_is_marked_and_nothing_else_of_a_block_without_colours(
    tmp_path: Path,
):
    block = (
        '<div class="highlight-none notranslate"><div'
        ' class="highlight"><pre><span></span>{}</pre></div></div>'
    )
    page = f'<article role="main" id="x">{block}</article>'
    lines = "make lab    # takes minutes\n# all of it\nnumber #1\n"
    marked = lines.replace("# takes minutes", '<span class="c1 remark"># takes minutes</span>')
    assert block.format(marked) in finished(page.format(lines), tmp_path, "")


def test_a_command_breaks_between_its_words_only(tmp_path: Path):
    block = (
        '<article role="main" id="x"><div class="highlight-{} notranslate"><div class="highlight">'
        "<pre><span></span>{}</pre></div></div></article>"
    )
    line = "gate<span class='w'> </span>old --in-turns <i>{}</i>\nls -l a_b " + "long-" * 20 + "end"
    kept = '<span class="option">{}</span>'
    for language in ("none", "bash", "console"):
        done = finished(block.format(language, line.format("tidy-x")), tmp_path, "")
        assert done.count('class="option"') == 2
        assert kept.format("--in-turns") in done
        assert kept.format("tidy-x") in done
    assert "option" not in finished(block.format("python", line.format("a-b")), tmp_path, "")


def test_a_remark_behind_a_command_is_told_from_a_line_of_its_own(tmp_path: Path):
    remark = '<span class="w">{}</span><span class="c1"># {}</span>'
    shell = f"amd-smi{remark.format('  ', 'behind')}\n{remark.format(chr(10), 'alone')}"
    done = finished(f'<article role="main" id="x"><pre>{shell}</pre></article>', tmp_path, "")
    assert done.count("remark") == 1
    assert 'class="c1 remark"># behind' in done


@pytest.mark.parametrize(
    ("printed", "marks"),
    [
        ("a line\n" * SHORT_LINES, ' class="short"'),
        ("a line\n" * (SHORT_LINES + 1), ""),
        (f"<span>{'&lt;' * 124}</span>  \n", ' class="short" style="--columns: 124"'),
        ("-" * PAPER_COLUMNS.stop, ' class="short"'),
    ],
)
def test_paper_knows_what_is_short_and_what_needs_smaller_type(
    tmp_path: Path, printed: str, marks: str
):
    output = (
        '<div class="output stream notranslate"><div class="highlight"><pre{}>{}</pre></div></div>'
    )
    page = f'<article role="main" id="x">{output.format("", printed)}</article>'
    assert output.format(marks, printed) in finished(page, tmp_path, "")


def test_the_search_knows_each_section_with_its_title_its_own_text_and_its_code(tmp_path: Path):
    table = (
        "<table><caption>slow?</caption><tr><td><p>now</p></td>\n<td><p>2\nms</p></td></tr></table>"
    )
    cell = f'<div class="cell docutils"><div><pre>step()</pre></div><div>{table}</div></div>'
    inner = (
        f'<section id="when"><h2>When</h2>{table}{cell}<p>After.</p></section>'
        '<section id="empty"><h2>Of parts alone</h2></section>'
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.html").write_text(
        page(f"<p>Before.</p><pre>a = 1</pre><style>p {{}}</style>{inner}")
    )
    assert sections((tmp_path / "docs/a.html").read_text()) == [
        ("top", "A page", "Before.", "a = 1"),
        ("when", "When", "slow?\nnow 2 ms\nAfter.", "step()\nslow?\nnow 2 ms"),
        ("empty", "Of parts alone", "", ""),
    ]
    finish(tmp_path)
    texts = (tmp_path / "search_texts.js").read_text()
    assert texts.startswith(
        'const SEARCH_TEXTS = {"docs/a.html":[["top","A page","Before.","a = 1"],["when"'
    )


def test_a_print_that_fails_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(UserError, match="run `make book` first"):
        pdf.print_book(tmp_path / "none")
    page, browser = tmp_path / "page.html", tmp_path / "chromium"
    browser.write_text("#!/bin/sh\necho it is out of memory >&2\n")
    browser.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        UserError, match="chromium printed nothing: it is out of memory; try it by hand on /"
    ):
        pdf.to_paper(page, tmp_path / "book.pdf")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="install one of chromium"):
        pdf.to_paper(page, tmp_path / "book.pdf")


def test_the_trace_of_a_button_becomes_one_file_and_names_of_files_stay_in_their_folder(
    tmp_path: Path,
):
    button = PerfettoButton(
        Trace("../a b.json.gz", b"\x1f\x8bbytes"), "https://ui.perfetto.dev/", "<b>"
    )
    done = with_files(
        page(button._repr_html_() + "<p>and</p>" + button._repr_html_()), tmp_path, "../"
    )
    (folder,) = tmp_path.iterdir()
    (file,) = folder.iterdir()
    assert file.read_bytes() == b"\x1f\x8bbytes"
    assert done.count(f'href="../_traces/{file.name}" download="..-a-b.json.gz"') == 2
    assert "<strong>&lt;b&gt;</strong>" in done
    assert "<p>and</p>" in done
    assert "<script" not in done
    assert "data-config" not in done


def test_a_long_sentence_of_an_output_folds_below_its_begin_and_a_table_does_not():
    words = "word " * 40
    assert folded(f"== skipped\n{words}") == (
        f'== skipped\n<span class="prose" style="--indent: 2ch">{words}</span>'
    )
    assert 'style="--indent: 10ch"' in folded(f"evidence  {words}")
    assert '<span class="prose more" style="--indent: 10ch">' in folded(f"{' ' * 10}{words}")
    verdict = "late-data: the data come late, up to 45 % of the time"  # a phone's line is shorter
    for sentence in (
        verdict,
        "try to record more steps, and look whether they differ",
        "rank 0: 1.2 ms, rank 1: 1.3 ms, rank 2: 1.4 ms; healthy",
        "[rank 1] Timed out waiting 4000ms for recv operation",
    ):
        assert "prose" in folded(sentence)
    for kept in (
        "short",
        "name" + "      12.0" * 12,
        f"<span>{words}\nred</span>",
        "-" * 120,
        "        self.head = nn.Linear(64, 2) and more words",
        "    for numbers, wanted in the loader of this training:",
        "from the loader of a training import all of its letters",
        "while the loader of a training has letters:  # go on",
        "elif letters is None and the loader is not done yet:",
        "else: letters is in the list of names of the loader",
        "with the loader of a training as letters: print it all",
        "assert letters is not None, 'the loader has none of them'",
        "raise ValueError from error if letters is None else error",
        "letters += [one] if one else [] and more words follow it",
        '''"""Learns which lines of a log need a human. Alone."""''',
        "\tscratch_store_dwordx2 off, v[0:1], off offset:116 ; 8-byte Spill",
        "v_add_f32 v0, v1, v2 ; some words that follow it",
        "{'vgpr_count': 208, 'agpr_count': 0, 'fixed_size': 0}",
        "{'picked': ('torch.float32', (128,)), " * 4,
        "[('vgpr_count', 208), ('agpr_count', 0), ('size', 0)]",
        "| a name | and its value | and what it is for | yes |",
        "SAMPLING_REALTIME         | sample by the clock on the wall",
        f"SAMPLING_FREQ             | {words}",
        "a  b  " + "c" * 120,
    ):
        assert folded(kept) == kept
