"""What is done to pages that Sphinx wrote, and the one page that the PDF is printed of."""

from __future__ import annotations

import base64
from pathlib import Path

from docs.book.finish import (
    finish,
    finished,
    sections,
)
from docs.book.traces import with_files
from proflab.perfetto_button import PerfettoButton
from proflab.perfetto_trace import Trace

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
