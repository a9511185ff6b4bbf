"""A book of three pages: read by everybody, searched from a file, copied, and printed, page by page
and as a whole.
"""

from __future__ import annotations

import base64
import io
import re
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, unquote

import pytest
from nbformat import v4, writes

import tidyprof
from docs.book.__main__ import DOWNLOADS, build_site, lesson_note
from docs.book.contents import Part, toctrees
from docs.book.lesson_pages import FOLDED, METADATA
from docs.book.pdf import print_book
from proflab.lessons import lessons
from proflab.perfetto_button import PerfettoButton, viewer_page
from proflab.perfetto_trace import Trace, prepare
from tests.browser.conftest import Site
from tests.browser.pages import LOOKS, barriers, hard_to_read, overhang, show
from tests.browser.test_viewer import HOSTILE, drawn, opened, press, said, timeline
from tests.conftest import REPOSITORY, require
from tidyprof.plots import viewer
from tidyprof_tests.patience import PATIENCE_S

LESSON, GATE, SHORT = "notebooks/00_first.ipynb", "docs/gate.md", "docs/short.md"
GLOSSARY, CHANGELOG = "docs/glossary.md", "CHANGELOG.md"
PARTS = (Part("Lessons", (LESSON,)), Part("To look up", (GATE, SHORT, GLOSSARY, CHANGELOG)))
WORDS = (
    "The queue of a stream holds what the host has launched and the device has not yet begun. " * 12
)
TITLE = (
    "00 · A first lesson, whose title is so long that it needs a second line on a sheet of paper"
)
LONGEST = f"text = '{'x' * 91}'"
"""As long as a line of code may be: 100 characters."""

RECORDING = REPOSITORY / "recordings/torch-h200-resnet50"
"""Whose trace a figure of the lesson hands to Perfetto, twice."""

FETCHED = """
const [address, done] = arguments;
fetch(address).then(answer => answer.blob()).then(blob => Object.assign(new FileReader(), {
    onload: event => done(event.target.result.split(',')[1]) }).readAsDataURL(blob));
"""
"""Bytes of an address, in base64, as any page may fetch them."""

SHEET = 672
"""Pixels of a line on A4: 210 mm less two margins of 16 mm, at 96 pixels an inch."""

LINE = """
const range = document.createRange();
range.selectNodeContents([...document.querySelectorAll('article p')]\
.find(found => found.innerText.length > 900));
return range.toString().length / new Set([...range.getClientRects()].map(box => box.top)).size;
"""


def lesson() -> str:
    """A lesson with a long line, a figure, a solution that is folded, and a cell that is longer
    than a sheet.
    """
    rows = "# A remark\n" + "\n".join(f"row_{number} = {number}" for number in range(90))
    figure = (REPOSITORY / "docs/first_look.png").read_bytes()
    image = (
        '<img alt="A timeline." width="1056"'
        f' src="data:image/png;base64,{base64.b64encode(figure).decode()}">'
        f"{viewer.panel(timeline(HOSTILE.format).closer)}{viewer.script()}"
    )
    words = "<details><summary>This figure in words</summary><p>Nothing overlaps.</p></details>"
    shown = v4.new_output("display_data", data={"text/html": image + words})
    printed = v4.new_output("stream", text="what was printed, and the straggler\n")
    button = PerfettoButton(trace(), viewer_page(), "One step.")._repr_html_()
    origin = '<div style="font-size:smaller">measured by <code>time</code></div>'
    shown_below = f"<div>{wide_table()}{origin}</div>{button}"
    wide = v4.new_output("display_data", data={"text/html": shown_below})
    three = (
        f'<div><table class="three"><tr>{"<td>computecomputecompute</td>" * 3}</tr></table></div>'
    )
    long = v4.new_output("display_data", data={"text/html": three})
    headed = (
        f'<div><table class="headed"><thead><tr>{"<th>forwardforward</th>" * 3}</tr></thead>'
        f"<tbody><tr>{'<td>computecomputecompute</td>' * 3}</tr></tbody></table></div>"
    )
    headed = v4.new_output("display_data", data={"text/html": headed})
    note = lesson_note(lessons()["00"], date(2026, 1, 2))
    cells = [
        v4.new_markdown_cell(f"# {TITLE}\n\n{note}\n\n{WORDS}\n\n[the gate](../{GATE}#when)"),
        v4.new_code_cell(LONGEST, execution_count=1, outputs=[printed, shown]),
        v4.new_markdown_cell("## Sheets\n\nA short paragraph on wavefronts before a long cell."),
        v4.new_code_cell(rows, execution_count=2),
        v4.new_markdown_cell("## An exercise\n\nThe memory of a step."),
        v4.new_code_cell("answer = 42", execution_count=3, metadata={"tags": [FOLDED]}),
        v4.new_code_cell("show()", execution_count=4, outputs=[wide, wide, long, long, headed]),
        v4.new_markdown_cell('Type {"kind": 1}.'),
    ]
    return writes(v4.new_notebook(metadata=METADATA, cells=cells))


def trace() -> Trace:
    """What the button of a notebook hands over."""
    return prepare(next(RECORDING.glob("*.json.gz")))[0]


def wide_table() -> str:
    """A table that is wider than a window: its names can be broken on paper, its words can't."""
    names = "".join(f"<th>exposed_{'time_waiting_' * 3}{number}</th>" for number in range(9))
    return (
        f"<table><caption>Times</caption><thead><tr>{names}</tr></thead>"
        f"<tr>{'<td>compute</td>' * 9}</tr></table>"
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require(find_spec("sphinx") is not None, "what makes the book: make .venv/.book")
    folder = tmp_path_factory.mktemp("book")
    gate = (
        "# The gate\n\nWords of a lesson.\n\n## Wavefronts\n\nThere are many.\n\n## When\n\n"
        "| | time |\n| --- | --- |\n| a step | 2 ms |\n\nThe occupancy of a step.\n\n"
        "## An exercise on a device\n\n| kernel | where it was seen | since |\n"
        "| --- | --- | --- |\n| a | b | c |\n"
    )
    first = (
        "# A course\n\nWhat it is about.\n\n```\nmake book  #"
        f" {'all of it, ' * 9}\n```\n\n{toctrees(PARTS)}"
    )
    pages = {
        "index.md": first,
        LESSON: lesson(),
        GATE: gate,
        SHORT: (
            "# A short page\n\nA word of a device and an exercise of a lesson.\n\nMemory is full."
            "\n\nOne job waits. Another job hangs, or it was out of memory."
        ),
        GLOSSARY: (
            "# Glossary\n\n- straggler: the rank that the others wait for.\n- copy: from one of two"
            " memories to the other in a lesson."
        ),
        CHANGELOG: "# Changelog\n\n## Straggler\n\nA straggler has its name.",
        f"{DOWNLOADS}/00_start_here.ipynb": "{}",
    }
    for page, text in pages.items():
        (folder / "pages" / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / "pages" / page).write_text(text, encoding="utf-8")
    assert build_site(folder / "pages", folder / "html") == 0
    return folder / "html"


@contextmanager
def served(site: Path, *, certificate: Path | None = None, **headers: str) -> Iterator[str]:
    """Serve the book from the folder `site`, over https with a certificate; yields its address."""

    class Handler(SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            super().end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=site))
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and its certificate, which the browser takes from anybody."""
    require(shutil.which("openssl") is not None, "openssl (apt-get install openssl)")
    path = tmp_path_factory.mktemp("certificate") / "both.pem"
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=127.0.0.1",
        "-keyout",
    ]
    subprocess.run(["openssl", *words, path, "-out", path], check=True, capture_output=True)
    return path


def wait_for(browser: Any, selector: str) -> list[Any]:
    """The elements that a style selector names, once there are any."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, PATIENCE_S).until(
        lambda _: browser.find_elements("css selector", selector)
    )


@pytest.fixture(scope="module")
def paper(site: Path) -> Any:
    """The whole book, printed."""
    from pypdf import PdfReader

    return PdfReader(print_book(site.with_name("pages")))


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 1280),
        ("dark", 390),
        *(pytest.param(*look, marks=pytest.mark.long) for look in LOOKS[1:-1]),
    ],
)
def test_a_book_has_no_barrier_and_fits_its_window(
    site: Path, browser: Any, scheme: str, width: int
):
    for page in ("index.html", "notebooks/00_first.html", "docs/gate.html", "search.html"):
        show(browser, f"{site.as_uri()}/{page}", scheme, width)
        assert overhang(browser) <= 0, page
        assert barriers(browser) == [], page


def test_grey_on_white_is_found_with_axe_and_without_it(tmp_path: Path, browser: Any):
    page = tmp_path / "page.html"
    page.write_text(
        "<!doctype html><body><p>black</p><p style='color:#999'>grey</p><p style='color:#fff'"
        " hidden>no</p>"
    )
    show(browser, page.as_uri(), "light", 1280)
    assert any("color-contrast" in barrier for barrier in barriers(browser))
    assert not any("color-contrast" in barrier for barrier in barriers(browser, contrast=False))
    texts, hard = hard_to_read(browser, "body", "svg")
    assert (texts, [found.partition(":")[0] for found in hard]) == (2, ["2.8"])


def test_lines_have_a_length_that_eyes_can_follow_and_code_does_not_scroll(
    site: Path, browser: Any
):
    show(browser, f"{site.as_uri()}/notebooks/00_first.html", "light", 1280)
    assert 60 < browser.execute_script(LINE) < 80
    code = "const code = document.querySelector('.cell_input pre');"
    assert browser.execute_script(f"{code} return code.scrollWidth - code.clientWidth") <= 0
    assert (
        browser.execute_script(f"{code} return parseFloat(getComputedStyle(code).fontSize)") >= 12.5
    )
    contents = (
        "return document.querySelector('.toc-drawer').getBoundingClientRect().right <= innerWidth"
    )
    assert browser.execute_script(contents)


def test_a_figure_loads_when_it_is_needed_and_opens_whole(site: Path, browser: Any):
    show(browser, f"{site.as_uri()}/notebooks/00_first.html", "light", 390)
    link, image = browser.execute_script(
        "const image = document.querySelector('.cell_output img'); return"
        " [image.parentElement.href, image.loading]"
    )
    assert image == "lazy"
    browser.get(link)
    assert browser.execute_script("return document.images[0].naturalWidth") > 390


@pytest.mark.parametrize(("scheme", "width"), LOOKS[::3])
def test_the_viewer_of_a_figure_opens_in_the_book(
    site: Path, browser: Any, scheme: str, width: int
):
    opened(browser, f"{site.as_uri()}/notebooks/00_first.html", scheme, width)
    press(browser, "n", "+")
    assert drawn(browser) == (10_000_000, 30_000_000)
    assert said(browser).startswith("ProfilerStep#7")
    assert overhang(browser) <= 0
    assert barriers(browser) == []


def test_perfetto_opens_the_very_trace_from_where_the_book_is(
    site: Path, certificate: Path, notebook: Site, browser: Any, tmp_path: Path
):
    with served(site, certificate=certificate, Access_Control_Allow_Origin="*") as address:
        show(browser, f"{address}/notebooks/00_first.html", "light", 1280)
        links = [link.get_attribute("href") for link in wait_for(browser, "a.open:not([hidden])")]
        assert len(set(links)) == 1
        page, _, given = links[0].partition("#!/?url=")
        assert page == "https://ui.perfetto.dev/"
        assert unquote(given).startswith(f"{address}/_traces/")
        assert barriers(browser) == []
        browser.get(notebook.serve("/elsewhere", "<p>another origin, as Perfetto's is</p>"))
        fetched = browser.execute_async_script(FETCHED, unquote(given))
    copy = tmp_path / "fetched.json.gz"
    copy.write_bytes(base64.b64decode(fetched))
    assert copy.read_bytes() == trace().content
    assert len(tidyprof.steps(tidyprof.read(copy))) == 3
    assert len(list((site / "_traces").iterdir())) == 1


def test_perfetto_is_not_offered_where_it_could_not_fetch_and_the_trace_can_be_saved(
    site: Path, certificate: Path, browser: Any
):
    page = "notebooks/00_first.html"
    with (
        served(site, Access_Control_Allow_Origin="*") as plain,
        served(site, certificate=certificate) as closed,
    ):
        for address in (site.as_uri(), plain, closed):
            show(browser, f"{address}/{page}", "light", 390)
            browser.execute_async_script("offers.finally(arguments[0])")
            assert not any(link.is_displayed() for link in wait_for(browser, "a.open")), address
            saved = wait_for(browser, ".perfetto a[download]")[0].get_attribute("href")
            assert (site / saved.removeprefix(f"{address}/")).read_bytes() == trace().content


def test_code_is_copied_at_a_click_and_outputs_are_not_offered(site: Path, browser: Any):
    show(browser, f"{site.as_uri()}/notebooks/00_first.html", "light", 1280)
    buttons = wait_for(browser, ".copybtn")
    assert len(buttons) == 4
    browser.execute_script(
        "addEventListener('copy', () => { window.copied = document.activeElement.value ??"
        " `${getSelection()}` }, true)"
    )
    buttons[0].click()
    assert browser.execute_script("return window.copied") == LONGEST


def test_the_search_from_a_file_shows_what_stands_around_the_words_and_where(
    site: Path, browser: Any
):
    show(browser, f"{site.as_uri()}/search.html?q=occupancies", "light", 1280)
    item = wait_for(browser, "#search-results li .context")[0]
    assert item.text == "The occupancy of a step."
    assert item.find_element("css selector", "mark").text == "occupancy"
    links = browser.find_elements("css selector", "#search-results li a")
    assert [link.text for link in links] == ["The gate", "When"]
    assert links[1].get_attribute("href").endswith("docs/gate.html#when")


def test_the_search_field_shows_that_it_has_the_keyboard(site: Path, browser: Any):
    show(browser, f"{site.as_uri()}/index.html", "light", 1280)
    look = (
        "const look = getComputedStyle(arguments[0]); return [look.outlineStyle,"
        " parseFloat(look.outlineWidth)]"
    )
    field = browser.find_element("css selector", ".sidebar-search")
    assert browser.execute_script(look, field)[0] == "none"
    field.send_keys("x")
    style, width = browser.execute_script(look, field)
    assert style == "solid"
    assert width >= 2


def test_a_printed_page_hides_nothing_and_cuts_nothing(site: Path, browser: Any):
    from pypdf import PdfReader

    show(browser, f"{site.as_uri()}/notebooks/00_first.html", "dark", 1280)
    assert "answer = 42" not in browser.execute_script("return document.body.innerText")
    sheets = [
        sheet.extract_text()
        for sheet in PdfReader(io.BytesIO(base64.b64decode(browser.print_page()))).pages
    ]
    text = "\n".join(sheets)
    assert "Skip to content" not in text
    assert "Back to top" not in text
    assert "answer = 42" in text
    assert "Nothing overlaps." in text
    assert "behind a click" not in text
    assert "One step." not in text
    assert text.count("x") >= 91
    # A cell that is longer than a sheet begins below its paragraph, instead of on a sheet of its
    # own.
    assert any("A short paragraph" in sheet and "row_0 = 0" in sheet for sheet in sheets)
    assert all(f"row_{number} = {number}" in text for number in range(90))


def test_words_of_a_table_stay_whole_on_paper_and_the_table_stays_on_the_sheet(
    site: Path, browser: Any
):
    show(browser, f"{site.as_uri()}/notebooks/00_first.html", "light", SHEET)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    wide, lines, kept = browser.execute_script(
        "const table = document.querySelector('.cell_output table'), cell = document.createRange();"
        "cell.selectNodeContents(table.querySelector('td'));"
        "return [table.getBoundingClientRect().right, cell.getClientRects().length,"
        " getComputedStyle(table.tHead).breakAfter]"
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert wide <= SHEET
    assert lines == 1
    assert kept == "avoid"


def test_a_wide_table_with_headings_is_stacked_on_a_small_screen(site: Path, browser: Any):
    cells = (
        "return [...document.querySelectorAll('table.headed td')].map(cell =>"
        " [getComputedStyle(cell).display, getComputedStyle(cell, '::before').content])"
    )
    page = f"{site.as_uri()}/notebooks/00_first.html"
    show(browser, page, "light", 390)
    assert browser.execute_script(cells) == [
        ["block", "none"],
        *[["block", '"forwardforward: "']] * 2,
    ]
    show(browser, page, "light", 1280)
    assert {display for display, _ in browser.execute_script(cells)} == {"table-cell"}


def test_each_wide_table_scrolls_in_a_box_of_its_own(site: Path, browser: Any):
    show(browser, f"{site.as_uri()}/notebooks/00_first.html", "light", 390)
    below = browser.execute_script(
        "return [...document.querySelectorAll('.cell_output table.three')].map(table => {"
        "  let box = table;"
        "  do { box = box.parentElement } while (box.scrollWidth <= box.clientWidth);"
        "  return [getComputedStyle(box).overflowX, box.querySelectorAll('table').length] })"
    )
    assert below == [["auto", 1]] * 2


def test_only_what_goes_on_beyond_its_edge_has_a_shade(site: Path, browser: Any):
    shades = (
        "return [...document.querySelectorAll('article pre')].map(box =>"
        " [box.scrollWidth > box.clientWidth, getComputedStyle(box).boxShadow !== 'none'])"
    )
    page = f"{site.as_uri()}/notebooks/00_first.html"
    for width in (1280, 390):
        show(browser, page, "light", width)
        found = browser.execute_script(shades)
        assert all(goes_on == shaded for goes_on, shaded in found)
    assert any(goes_on for goes_on, _ in found)


def test_a_small_screen_cuts_no_command_and_gives_columns_and_icons_room(site: Path, browser: Any):
    show(browser, f"{site.as_uri()}/index.html", "light", 390)
    code = (
        "const code = document.querySelector('article pre'); return code.scrollWidth -"
        " code.clientWidth"
    )
    assert browser.execute_script(code) <= 0
    show(browser, f"{site.as_uri()}/notebooks/00_first.html", "light", 390)
    gap = "const [one, other] = document.querySelector('.header-right').children; "
    gap += "return other.getBoundingClientRect().left - one.getBoundingClientRect().right"
    assert browser.execute_script(gap) >= 8
    show(browser, f"{site.as_uri()}/docs/gate.html", "light", 390)
    stacked = (
        "const cells = [...document.querySelectorAll('table')[1].rows[1].cells];"
        "return [new Set(cells.map(cell => cell.getBoundingClientRect().top)).size,"
        " cells.map(cell => getComputedStyle(cell, '::before').content)]"
    )
    assert browser.execute_script(stacked) == [
        3,
        ["none", '"where it was seen: "', '"since: "'],
    ]


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_smaller_than_12_5_pixels(site: Path, browser: Any, width: int):
    sizes = (
        "return [...document.querySelectorAll('body *')].filter(element =>"
        " element.checkVisibility() && !element.closest('svg, .visually-hidden, option') &&"
        " [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()) &&"
        " parseFloat(getComputedStyle(element).fontSize) < 12.495).map(found => found.outerHTML)"
    )
    for page in ("index.html", "notebooks/00_first.html", "docs/gate.html", "search.html"):
        show(browser, f"{site.as_uri()}/{page}", "light", width)
        assert browser.execute_script(sizes) == []


def test_code_has_an_edge_and_its_comments_are_quieter_than_it(site: Path, browser: Any):
    style = (
        "const look = getComputedStyle(document.querySelector(arguments[0])); return"
        " look[arguments[1]]"
    )
    show(browser, f"{site.as_uri()}/index.html", "light", 1280)
    assert browser.execute_script(style, "article div.highlight", "borderTopWidth") == "1px"
    show(browser, f"{site.as_uri()}/notebooks/00_first.html", "dark", 1280)
    remark, code = (
        browser.execute_script(style, name, "color")
        for name in (".highlight .c1", ".cell_input pre")
    )
    assert sum(map(int, re.findall(r"\d+", remark))) < 0.8 * sum(map(int, re.findall(r"\d+", code)))


def test_what_is_to_be_typed_keeps_its_quotes_and_a_heading_has_no_line_for_its_mark(
    site: Path, browser: Any
):
    show(browser, f"{site.as_uri()}/notebooks/00_first.html", "light", 1280)
    assert 'Type {"kind": 1}.' in browser.execute_script(
        "return document.querySelector('article').innerText"
    )
    narrow = (
        "const heading = document.querySelector('h2'), range = document.createRange();"
        "heading.style.width = 'max-content'; range.selectNodeContents(heading.firstChild);"
        "heading.style.width = `${Math.ceil(range.getBoundingClientRect().width)}px`;"
        "return heading.getBoundingClientRect().height / range.getBoundingClientRect().height"
    )
    assert browser.execute_script(narrow) < 1.7


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        ("device exercise", ["The gate", TITLE, "A short page"]),
        ("short", ["A short page", TITLE]),
        ("lesson wavefront", ["The gate", TITLE]),
        ("out of memory", ["A short page", TITLE, "Glossary"]),
        ("straggler", ["Glossary", TITLE, "Changelog > Straggler"]),
        ("hang", ["A short page"]),
        ("straggle", ["Glossary", TITLE, "Changelog > Straggler"]),
    ],
    ids=str,
)
def test_the_search_has_each_page_once_by_titles_then_by_nearness_and_what_changed_last(
    words: str, titles: list[str], site: Path, browser: Any
):
    """Whole words alone count, in any of their forms, unless no page has them; a word that few
    pages have counts more than one that stands in a title, but in most pages as well.
    """
    assert [title for title, _, _ in found(words, site, browser)] == titles


@pytest.mark.parametrize(
    ("words", "sentence", "marks"),
    [
        ("hang", "… Another job hangs, or it was out of memory.", ["hangs"]),
        ("out of memory", "… Another job hangs, or it was out of memory.", ["out of memory"]),
        ("kind", 'Type {"kind": 1}.', ["kind"]),
        ("straggle", "straggler: the rank that the others wait for.", ["straggler"]),
    ],
    ids=str,
)
def test_the_search_shows_the_sentence_with_the_words_and_marks_them_alone(
    words: str, sentence: str, marks: list[str], site: Path, browser: Any
):
    assert found(words, site, browser)[0][1:] == (sentence, marks)


def found(words: str, site: Path, browser: Any) -> list[tuple[str, str, list[str]]]:
    """What the book's search finds: titles of pages, excerpts, and what is marked in them."""
    show(browser, f"{site.as_uri()}/search.html?q={quote_plus(words)}", "light", 1280)
    number = re.search(
        r"found (\w+) page", wait_for(browser, ".search-summary:not(:empty)")[0].text
    )
    items = browser.find_elements("css selector", "#search-results li")
    assert len(items) == (1 if number[1] == "one" else int(number[1]))
    return [
        (
            item.find_element("css selector", "a").text,
            item.find_element("css selector", ".context").text,
            [mark.text for mark in item.find_elements("css selector", "mark")],
        )
        for item in items
    ]


def test_the_whole_book_has_all_pages_and_an_outline(paper: Any):
    assert "What it is about." in paper.pages[0].extract_text()
    titles = [entry.title for entry in paper.outline if not isinstance(entry, list)]
    assert titles == ["A course", "All pages"]
    sheets = {
        place.title: paper.get_destination_page_number(place) for place in parts_of(paper.outline)
    }
    for title in (TITLE, "The gate", "A short page"):
        assert title in " ".join(paper.pages[sheets[title]].extract_text().split())
    assert 0 < sheets[TITLE] < sheets["The gate"] == sheets["When"] < sheets["A short page"]


def parts_of(outline: list[Any]) -> list[Any]:
    """The entries of an outline, those below others too."""
    return [
        place
        for entry in outline
        for place in (parts_of(entry) if isinstance(entry, list) else [entry])
    ]


def test_links_between_pages_stay_within_the_pdf(paper: Any):
    assert paper.named_destinations
    links = [link.get_object() for sheet in paper.pages for link in sheet.get("/Annots", [])]
    assert not [
        link
        for link in links
        if "/URI" in link.get("/A", {}) and "file:" in str(link["/A"]["/URI"])
    ]
