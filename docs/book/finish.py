"""Finish the pages that Sphinx wrote, for screen readers, small screens and the search.

The search doesn't need a server. The replaced strings come from Furo (theme/furo/page.html) and
myst-nb (core/render.py).
"""

from __future__ import annotations

import base64
import json
import re
from hashlib import sha256
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

from docs.book import traces

DESCRIPTION_LENGTH = 155
"""Length of a page's description in characters. Much longer descriptions are cut where they are
shown.
"""

_REPLACED = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<summary aria-label="Toggle hidden content">': "<summary>",
    '<aside class="sidebar-drawer"': '<aside class="sidebar-drawer" aria-label="All pages"',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    'alt="Logo"': 'alt=""',
}
"""Replacements that give headings a level, buttons a spoken text, and landmarks a name."""

_ARTICLE = re.compile(r'<article role="main"[^>]*>(.*?)</article>', re.DOTALL)
"""The part of a page that differs between pages."""

_EMPTY_HEADER = re.compile(r"<th\b([^>]*)>((?:\s|&nbsp;|&#160;|</?p>)*)</th>")
_SCOPE = re.compile(r'\s*\bscope="[^"]*"')
_IMAGE = re.compile(r"<img\b[^>]*>")
_FIGURE = re.compile(r"(<a\b[^>]*>\s*)?(<img\b[^>]*>)")
_DATA = re.compile(r'src="data:image/(png|svg\+xml);base64,([^"]+)"')
_SOURCE = re.compile(r'src="([^"]+)"')
_WIDTH = re.compile(r'width="(\d+)"')
_TABLE = re.compile(r"<table\b.*?</table>", re.DOTALL)
_CODE = re.compile(r"<code\b.*?</code>|<a\b[^>]*>https?:.*?</a>", re.DOTALL)
"""Code within a sentence, or a link that shows its address."""

_LONG_NAME = re.compile(r"(?<![^<>\s])(?=[^<>\s]{14})[^<>\s&;]*[_/.][^<>\s]*(?![^<>]*>)")
"""A name in a table or in code that is too long for a narrow column and can be broken."""

_HYPHENS = re.compile(r"(?<![^\s>;])(?=[^\s<>&]{1,40}(?![^\s<]))[^\s<>&]*\w-\w[^\s<>&]*(?![^<>]*>)")
"""A word of a command with a hyphen that fits a phone's line, so it must not be broken."""

_COMMANDS = re.compile(
    r'(<div class="highlight-(?:none|bash|console) notranslate"><div class="highlight"><pre>)(.*?)'
    r"(?=</pre>)",
    re.DOTALL,
)

_OPTION = re.compile(r'(?<![\w-])(?<!"option">)--?[A-Za-z][\w-]*(?![^<>]*>)')
_ROW = re.compile(r"<tr\b.*?</tr>", re.DOTALL)
_CELL = re.compile(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", re.DOTALL)
_CELL_BEGIN = re.compile(r"<t[dh]\b")
_PERCENT = re.compile(r"(?<=\d) (?=%)")
"""The space in `8 %`, which must not end a line."""

_DASH = re.compile(r"(<td\b[^>]*)(?=>\s*(?:<p>)?–(?:</p>)?\s*</td>)")
"""A cell with a dash, which means that there is nothing to report."""
_SHORT_NAME = re.compile(r"<tr\b[^>]*>\s*<t[dh]\b(?=[^>]*>(?:<p>)?[^<]{1,16}(?:</p>)?\s*</t[dh]>)")
"""The first cell of a row if it contains only a short name, such as `A, control`, that fits on a
line.
"""

_REMARK = re.compile(r"(?<=\S)( {2,})(#.*)")
_SHELL_REMARK = re.compile(r'(<span class="w">[^\S\n]+</span><span class="c1)(?=">)')
"""Start of a comment after a command, in blocks without and with colors."""
_TYPED = re.compile(
    r'(<div class="highlight-none notranslate"><div class="highlight"><pre>)(.*?)(?=</pre>)',
    re.DOTALL,
)
_PRINTED = re.compile(
    r'(<div class="output [^>]*>\s*<div class="highlight"><pre)>(.*?)(?=</pre>)', re.DOTALL
)

OUTPUT_COLUMNS, PAGE_COLUMNS = 44, 100
"""Characters per line of output that a phone and a laptop show without scrolling."""

MIN_SPACES, MIN_SPACES_OF_A_PAGE = 4, 8
"""Minimum number of spaces in a sentence that fills a line on a phone or on a laptop.

A horizontal rule or a path has fewer spaces.
"""

_PROGRAM = re.compile(
    r"^ {1,16}\S| (?:[-+*/%&|^@]|//|\*\*|<<|>>)?= |[\w\])]\(|[\[{(,:]$|^ *[#$]| ; |\"{3}"
    r"|^(?:from|import|for|while|if|elif|with|return|yield|raise|assert|del|def|class) "
    r"|^(?:else|try|finally):|^except\b"
)
"""Patterns in lines of programs, whose meaning would change if they were folded.

The lines below a label of a diagnosis are indented further.
"""

_DATA_LINE = re.compile(r"^\t|^ *(?:[{|]|\[[\[({'\"])|  \| ")
"""Patterns in assembly, dictionaries, lists and rows of tables with borders.

These lines are never folded.
"""

_LABEL = re.compile(r"\S[^ ]*(?: [^ ]+)*  +")
"""Label at the left of a line, such as `evidence` in a diagnosis."""

SHORT_LINES = 30
"""Maximum number of output lines that stay together on one sheet of paper."""

PAPER_COLUMNS = range(104, 150)
"""Line lengths in characters that fit on paper in smaller type.

Shorter lines fit anyway, and longer lines would be too small to read.
"""

_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_LINES = ("p", "pre", "li", "td", "th", "tr", "caption", "div", "summary")
"""Elements whose end also ends a word and, outside of a table, a line."""

_PARAGRAPH = re.compile(r"<p>(?!<em>)(.*?)</p>", re.DOTALL)


def finish(html: Path) -> None:
    """Finish all pages of the site in the folder `html`, and write their texts for the search."""
    texts = {}
    for path in sorted(html.rglob("*.html")):
        name = path.relative_to(html)
        up = "../" * (len(name.parts) - 1)
        page = traces.with_files(path.read_text(encoding="utf-8"), html, up)
        page = finished(page, html / "_images", up)
        path.write_text(page, encoding="utf-8")
        texts[name.as_posix()] = sections(page)
    written = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
    # Write a script, because a page that was opened as a file can't read JSON.
    (html / "search_texts.js").write_text(f"const SEARCH_TEXTS = {written};\n", encoding="utf-8")


def finished(page: str, images: Path, up: str) -> str:
    """Return a finished page.

    images -- folder for the images that the page contains
    up     -- path from the page to the parent folder of `images`
    """
    for old, new in _REPLACED.items():
        page = page.replace(old, new)
    # A header without text is useless for a screen reader.
    page = _EMPTY_HEADER.sub(lambda found: f"<td{_SCOPE.sub('', found[1])}>{found[2]}</td>", page)
    page = _IMAGE.sub(lambda found: picture(found[0], images, up), page)
    found = _ARTICLE.search(page)
    if not found:
        return page
    article = _FIGURE.sub(_linked, found[1])
    article = _TABLE.sub(lambda table: labeled(breakable(whole_options(table[0]))), article)
    article = _CODE.sub(lambda code: breakable(whole_options(code[0])), article)
    article = _PRINTED.sub(
        lambda one: f"{one[1]}{paper_marks(one[2])}>{folded(one[2])}",
        _TYPED.sub(_remarked, article),
    )
    article = _SHELL_REMARK.sub(r"\1 remark", article)
    article = _COMMANDS.sub(
        lambda one: one[1] + _HYPHENS.sub(r'<span class="option">\g<0></span>', one[2]), article
    )
    head, text = page[: found.start(1)], description(article)
    if text:
        head = head.replace(
            "</head>", f'<meta name="description" content="{escape(text)}">\n</head>', 1
        )
    return head + article + page[found.end(1) :]


def picture(tag: str, images: Path, up: str) -> str:
    """Return an image that the browser loads when it comes into view.

    An image inside the page becomes a file, and its height is added.
    """
    tag = tag.replace("<img", '<img loading="lazy"', 1)
    data, width = _DATA.search(tag), _WIDTH.search(tag)
    if not data:
        return tag
    content = base64.b64decode(data[2])
    name = f"{sha256(content).hexdigest()[:16]}.{data[1].partition('+')[0]}"
    images.mkdir(exist_ok=True)
    (images / name).write_bytes(content)
    tag = tag.replace(data[0], f'src="{up}{images.name}/{name}"')
    if data[1] == "png" and width:
        # The first chunk starts with width and height (https://www.w3.org/TR/png-3/#11IHDR).
        across, down = int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
        tag = tag.replace(width[0], f'{width[0]} height="{round(int(width[1]) * down / across)}"')
    return tag


def breakable(html: str) -> str:
    """Return HTML whose long names can break after an underscore, slash or period.

    Other words stay whole.
    """
    return _LONG_NAME.sub(
        lambda name: re.sub(r"(?<=[^_/.])([_/.]+)(?=[^_/.<])", r"\1<wbr>", name[0]), html
    )


def whole_options(html: str) -> str:
    """Return HTML in which a line can break before an option such as `--num-workers` but not within
    it.
    """
    return _OPTION.sub(r'<span class="option">\g<0></span>', html)


def labeled(table: str) -> str:
    """Return a table whose cells contain their column headings.

    A narrow screen shows each row as a block without the header. The cells also state which names
    are too short to break, and which cells contain a dash. A name in the first column is the
    heading of its block, but a number would be unclear without its label. The table of the findings
    log has its own labels.
    """
    header, end, rows = table.partition("</thead>")
    if not end or "table-layout:fixed" in header:
        return table
    names = [" ".join(_plain(cell).split()) for cell in _CELL.findall(header)]
    firsts = [_plain(cell[1]).strip() for row in _ROW.findall(rows) if (cell := _CELL.search(row))]
    if names and not all(first[:1].isdecimal() for first in firsts if first):
        names[0] = ""

    def with_names(row: re.Match[str]) -> str:
        left = iter(names)
        return _CELL_BEGIN.sub(
            lambda cell: (
                f'{cell[0]} data-label="{escape(name)}"' if (name := next(left, "")) else cell[0]
            ),
            row[0],
        )

    rows = _DASH.sub(r"\1 data-none", _SHORT_NAME.sub(r"\g<0> data-short", rows))
    rows = _PERCENT.sub("\N{NO-BREAK SPACE}", rows)
    return header + end + _ROW.sub(with_names, rows)


def _plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def paper_marks(printed: str) -> str:
    """Return attributes for a cell's output.

    They state whether the output is short, and the length of its longest line if that line needs
    smaller type.
    """
    lines = [line.rstrip() for line in _plain(printed).splitlines()]
    longest = max(map(len, lines), default=0)
    short = ' class="short"' if len(lines) <= SHORT_LINES else ""
    return short + (f' style="--columns: {longest}"' if longest in PAPER_COLUMNS else "")


def folded(printed: str) -> str:
    """Return a cell's output with long sentences folded as in a terminal.

    The folded lines start below the beginning of the sentence. Lines of tables, whose cells are
    apart, stay whole.
    """
    return "\n".join(map(_folded_line, printed.split("\n")))


def _folded_line(line: str) -> str:
    text = _plain(line)
    label = _LABEL.match(text)
    begin = label.end() if label else len(text) - len(text.lstrip())
    words = text[begin:].strip()
    fills_a_page = len(text) > PAGE_COLUMNS
    is_sentence = (
        "  " not in words
        and not _DATA_LINE.search(text)
        and words.count(" ") >= (MIN_SPACES_OF_A_PAGE if fills_a_page else MIN_SPACES)
        and (fills_a_page or not _PROGRAM.search(text))
    )
    # Another tag for one line can't contain a tag that spans lines.
    is_whole = line.count("<span") == line.count("</span>")
    if len(text) <= OUTPUT_COLUMNS or not is_sentence or not is_whole:
        return line
    indent = begin or 2
    # On a phone, a folded line also starts below the text after its label.
    kind = "prose more" if begin and not label else "prose"
    return f'<span class="{kind}" style="--indent: {indent}ch">{line}</span>'


def _remarked(found: re.Match[str]) -> str:
    """Return a block of commands without colors, with the comments after commands marked."""
    return found[1] + _REMARK.sub(r'\1<span class="c1 remark">\2</span>', found[2])


def _linked(found: re.Match[str]) -> str:
    """Return a figure as a link to the full image.

    Small screens shrink the figure.
    """
    source = _SOURCE.search(found[2])
    if found[1] or not source or source[1].startswith("data:"):
        return found[0]
    return (
        f'<a class="whole-picture" href="{source[1]}" title="Open the whole picture">{found[2]}</a>'
    )


def description(article: str) -> str:
    """Return a page's first paragraph of text, cut to the length of a description.

    Notes and images don't count as text.
    """
    texts = (" ".join(_plain(text).split()) for text in _PARAGRAPH.findall(article))
    text = next(filter(None, texts), "")
    return (
        text
        if len(text) <= DESCRIPTION_LENGTH
        else text[:DESCRIPTION_LENGTH].rpartition(" ")[0] + " …"
    )


def sections(page: str) -> list[tuple[str, str, str, str]]:
    """Return the sections of a page's article: anchor, title, text, and code with its output.

    Each paragraph, table row and line of code is one line. The text and code of a section exclude
    its subsections.
    """
    parser = _Sections()
    parser.feed(page)
    return [tuple(map(_whole_lines, parts)) for parts in parser.sections]


def _whole_lines(text: str) -> str:
    return "\n".join(filter(None, (" ".join(line.split()) for line in text.split("\n"))))


class _Sections(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sections: list[list[str]] = []
        self.open: list[list[str]] = []
        self.within: list[str] = []
        """Open elements of headings and of parts that aren't text of the page."""
        self.cell: list[str] = []
        """Open boxes of a cell or of a code block."""
        self.rows = 0
        """Number of open table rows."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = (given.get("class") or "").split()
        self.rows += tag == "tr"
        if tag in ("div", "pre") and (self.cell or tag == "pre" or "cell" in classes):
            self.cell.append(tag)
        if tag == "section":
            self.open.append([given.get("id") or "", "", "", ""])
            self.sections.append(self.open[-1])
        elif tag in _HEADINGS or tag in ("script", "style") or "headerlink" in classes:
            self.within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.rows -= tag == "tr"
        if tag == "section":
            self.open.pop()
        elif self.within and tag == self.within[-1]:
            self.within.pop()
        elif self.open and tag in _LINES:
            self._add(" " if self.rows else "\n")
        if self.cell and tag in ("div", "pre"):
            self.cell.pop()

    def handle_data(self, data: str) -> None:
        if self.open and not self.within:
            self._add(data if "pre" in self.cell else data.replace("\n", " "))
        elif self.open and self.within[-1] in _HEADINGS:
            self.open[-1][1] += data

    def _add(self, text: str) -> None:
        self.open[-1][3 if self.cell else 2] += text
