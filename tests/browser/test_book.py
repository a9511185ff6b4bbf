"""A book of three pages: read by everybody, searched from a file, copied, and printed, page by page
and as a whole.
"""

from __future__ import annotations

import base64
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
from proflab.lessons import lessons
from proflab.perfetto_button import PerfettoButton, viewer_page
from proflab.perfetto_trace import Trace, prepare
from tests.browser.conftest import Site
from tests.browser.pages import LOOKS, barriers, overhang, show
from tests.browser.test_viewer import HOSTILE, timeline
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
