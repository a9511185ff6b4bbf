"""Slides from the page of a lesson: by one rule, without solutions, and each with what its words
speak of.
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from docs.book.lesson_pages import FOLDED, VIEWER
from proflab.display import inline_html
from tidyprof.harmless import html_text
from tools.notebooks import QUESTION_TAG
from tools.notebooks.minutes import RECALL

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token
    from nbformat import NotebookNode

WHOLE = re.compile(
    r"\b(traps?|lies?|predict|decide|picture to keep in mind|key points)\b", re.IGNORECASE
)
"""Sections whose text is shown whole; of others the first PARAGRAPHS, and one of each later
text.
"""

LEFT_OUT = ("Known issues", "At work, without this course")
"""Sections to read at home."""

CASE_SHEET = "Case sheet: "
"""How the caption of the table begins that has no room on a slide."""

PICTURE = 'class="tidy-light"'

ROWS = 8
"""Rows of a table and lines of code that can be read from the last row of seats."""

ROOM_PX = 640
"""Height below the heading of a slide of 1280 x 720 px that is a tenth smaller than slides.css
says.
"""

PARAGRAPHS = 2
"""Paragraphs that say what a section is about."""

LINE_PX, LINE_CHARACTERS, CODE_CHARACTERS = 36, 80, 86
"""A line in the sizes of slides.css: text of 26 px, 1.4 times as high, over 88 % of the width; code
is smaller.
"""

_PREDICTED = "predict"
_SAY = "say("
_SET_UP = "proflab.start("
_LINK_WITHIN = re.compile(r'<a href="(?!https?:)[^"]*">(.*?)</a>', re.DOTALL)
_LINK_ALONE = re.compile(r'(?<=[.?!])\s<a href="(?!https?:)[^"]*">[^<]*</a>\.')
_RECALLED = re.compile(r"(<p>(?:(?!</p>).)*</p>)((?:<details>.*?</details>)+)", re.DOTALL)
_ANSWER = re.compile(r"<summary[^>]*>(.*?)</summary>", re.DOTALL)
_ROW = re.compile(r"<tr\b.*?</tr>\s*", re.DOTALL)
_CELL = re.compile(r"</t[dh]>")
_RULE = re.compile(r"-{2,}(?: +-{2,})+ *")
_LEADS_ON = re.compile(r"(?:(?<=[.?!]\s)|(?<=^<p>))(?:(?![.?!]\s).)*:</p>\s*$", re.DOTALL)
"""The last sentence of a text, if it ends in a colon."""

_POINTS = re.compile(
    r"\bBelow, (\w)|(?<=[a-z]), (?:see|of which more) below\b|\b([Tt]he \w+) below\b"
)
"""Words that point to something that is on no slide of a section without tables and figures."""


@dataclass(frozen=True)
class Slide:
    """What stands on one slide: the heading of its section, and HTML."""

    heading: str
    body: str


@dataclass(frozen=True)
class Block:
    """A part of a slide that is not cut in two; `kind` is text, list, code, table, figure or
    question.
    """

    kind: str
    html: str

    @cached_property
    def text(self) -> str:
        """Its words, without the marks of HTML."""
        return html.unescape(
            re.sub(r"<style.*?</style>|<[^>]*>", "", self.html, flags=re.DOTALL)
        ).strip()

    @cached_property
    def leads_on(self) -> bool:
        """Whether its words end in a colon."""
        return self.kind in ("text", "question") and self.text.endswith(":")

    @cached_property
    def large(self) -> bool:
        """Whether a slide has room for only one of its kind."""
        return self.kind in ("table", "figure")

    @cached_property
    def height_px(self) -> int:
        """An estimate; a figure takes up to 60 % of the window, and its words to unfold one line
        more.
        """
        if self.kind == "figure":
            return 470
        if self.kind == "table":
            rows = (
                re.sub(r"<[^>]*>", "", _CELL.sub("    ", row)) for row in _ROW.findall(self.html)
            )
            return LINE_PX + sum(_lines(row, 110) * 30 + 8 for row in rows)
        if self.kind == "code":
            return 40 + 30 * sum(_lines(line, CODE_CHARACTERS) for line in self.text.splitlines())
        return 13 + LINE_PX * sum(_lines(line, LINE_CHARACTERS) for line in self.text.splitlines())


@dataclass
class Section:
    """What a lesson says under one heading."""

    heading: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def thin(self) -> bool:
        """Whether it is too little for a slide: less than two sentences, and nothing to look at or
        to answer.
        """
        sentences = re.findall(r"[.?!](?:\s|$)", " ".join(block.text for block in self.blocks))
        return len(sentences) < 2 and all(block.kind in ("text", "list") for block in self.blocks)

    def take(self, blocks: Iterable[Block]) -> None:
        """Go on with what a cell shows; words that lead on to nothing, or only to other words,
        go.
        """
        before = len(self.blocks)
        for block in blocks:
            if block.kind == "text":
                self.close()
            self.blocks.append(block)
        if len(self.blocks) == before:
            self.close()

    def close(self) -> None:
        """Drop a sentence that leads on to what is not shown."""
        while self.blocks and self.blocks[-1].leads_on:
            block = self.blocks.pop()
            kept, sentences = _LEADS_ON.subn("", block.html)
            if sentences and kept != "<p>":
                self.blocks.append(Block(block.kind, f"{kept.strip()}</p>\n"))

    def fits(self, blocks: list[Block]) -> bool:
        """Whether these have room below its own."""
        both = [*self.blocks, *blocks]
        return (
            sum(block.height_px for block in both) <= ROOM_PX
            and sum(block.large for block in both) < 2
        )


def slides(page: NotebookNode) -> list[Slide]:
    """The slides of a lesson's page: headings with their first words and what these show,
    questions; no solution.
    """
    shown = (section for section in _sections(page) if section.heading not in LEFT_OUT)
    parts = [part for section in shown for part in _split(section)]
    return [
        Slide(part.heading, "".join(block.html for block in part.blocks)) for part in _joined(parts)
    ]


def _sections(page: NotebookNode) -> Iterator[Section]:
    """What is shown under each heading; a question is a section of its own, and the one around it
    goes on after it.
    """
    section, around, asked, opens = Section(""), "", False, False
    for cell in page.cells:
        tags = cell.metadata.get("tags", [])
        if FOLDED in tags:
            continue
        if cell.cell_type == "code":
            section.take(_of_code(cell))
        elif asked:
            yield section
            section = Section(around)
        for title, groups in pieces(cell.source) if cell.cell_type == "markdown" else ():
            if title:
                yield section
                opens, section = not around, Section(title)
                around = around if QUESTION_TAG in tags else title
            whole = QUESTION_TAG in tags or bool(WHOLE.search(section.heading))
            paragraphs = None if whole else PARAGRAPHS + opens if title else 1
            section.take(
                _of_text(groups, "question" if QUESTION_TAG in tags else "text", paragraphs)
            )
        if asked and cell.cell_type == "code":
            yield section
            section = Section(around)
        asked = QUESTION_TAG in tags
    yield section


def pieces(text: str) -> Iterator[tuple[str, list[list[Token]]]]:
    """The headings of a text, each with its paragraphs, lists and so on; what stands before the
    first one has none.
    """
    title, groups, depth = "", [], 0
    for token in _reader().parse(text):
        if not depth:
            groups.append([])
        groups[-1].append(token)
        depth += token.nesting
        if token.type == "heading_close":
            yield title, groups[:-1]
            title, groups = groups[-1][1].content, []
    yield title, groups


def _of_text(groups: list[list[Token]], words: str, paragraphs: int | None) -> Iterator[Block]:
    """What of a text is shown: all, or what stands before a paragraph more than so many. `words` is
    their kind.
    """
    for group in groups:
        kind = _KINDS.get(group[0].type, words)
        if kind == words and paragraphs is not None:
            if not paragraphs:
                return
            paragraphs -= 1
        if kind == "code" and group[0].content.count("\n") > ROWS:
            continue  # what leads on to it goes with the next text
        shown = _rendered(group)
        yield Block(kind, shortened(shown) if kind == "table" else shown)


_KINDS = {
    "table_open": "table",
    "fence": "code",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
}


def _of_code(cell: NotebookNode) -> Iterator[Block]:
    """What a cell of code gives to slides: what it lets people predict, or short code, and its
    outputs.
    """
    if asked := _predictions(cell.source):
        yield Block(
            "question",
            f"<ul>{''.join(f'<li>Predict: {inline_html(what)}?</li>' for what in asked)}</ul>",
        )
        return
    outputs = [_html(output) for output in cell.outputs]
    if RECALL in cell.source:
        for text in outputs:
            yield from (Block("question", _unanswered(*found)) for found in _RECALLED.findall(text))
        return
    if _SET_UP in cell.source or any(CASE_SHEET in text for text in outputs):
        return
    blocks = [_of_output(text) for text in outputs if text.strip()]
    source = re.sub(r"\n{3,}", "\n\n", cell.source)
    if (
        len(source.splitlines()) <= ROWS
        and _SAY not in source
        and not any(block.large for block in blocks)
    ):
        yield Block("code", f"<pre><code>{html_text(source)}</code></pre>")
    yield from blocks


def _unanswered(question: str, answers: str) -> str:
    """A question about an earlier lesson with its answers, none of them marked and without their
    replies.
    """
    items = "\n".join(f"<li>{text}</li>" for text in _ANSWER.findall(answers))
    return f"{question}\n<ul>{items}</ul>"


def _html(output: NotebookNode) -> str:
    """What a cell shows or prints; remarks on the error stream are for who runs it."""
    if output.output_type == "stream":
        return output.text if output.name == "stdout" else ""
    return VIEWER.sub("", output.get("data", {}).get("text/html", ""))


def _of_output(text: str) -> Block:
    if PICTURE in text:
        return Block("figure", f"<figure>{text}</figure>")
    if "<table" in text:
        return Block("table", shortened(text))
    if text.lstrip().startswith("<"):
        return Block("text", text)
    kept, more = _columns(text.strip("\n").splitlines())
    more = [f"{len(kept) - ROWS} more lines"] * (len(kept) > ROWS) + more
    last = [f"... and {' and '.join(more)} in the lesson"] if more else []
    return Block("code", f"<pre><code>{html_text(chr(10).join(kept[:ROWS] + last))}</code></pre>")


def _columns(lines: list[str]) -> tuple[list[str], list[str]]:
    """Printed lines that a slide has room for, and what they lack: a table ruled with dashes loses
    whole columns.
    """
    rule = next((line for line in lines if _RULE.fullmatch(line)), "")
    ends = [found.end() for found in re.finditer("-+", rule)]
    fitting = [end for end in ends if end <= CODE_CHARACTERS]
    if not fitting or fitting == ends:
        return [line[:CODE_CHARACTERS] + "…" * (len(line) > CODE_CHARACTERS) for line in lines], []
    return [line[: fitting[-1]] for line in lines], [f"{len(ends) - len(fitting)} more columns"]


def shortened(table: str) -> str:
    """A table of HTML with its first rows, and how many more there are."""
    rows = [row for row in _ROW.finditer(table) if "<td" in row[0]]
    if len(rows) <= ROWS:
        return table
    kept = table[: rows[ROWS].start()] + table[rows[-1].end() :]
    return f"{kept}<p class=more>... and {len(rows) - ROWS} more rows in the lesson</p>"


def _predictions(source: str) -> list[str]:
    """What the calls of `proflab.predict` in a cell ask for."""
    if _PREDICTED not in source:
        return []
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    named = [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == _PREDICTED
    ]
    return [word.value.value for call in named for word in call.keywords if word.arg == "what"]


def _split(section: Section) -> Iterator[Section]:
    """The slides of a section; words that lead on to something stand on its slide."""
    section.close()
    if not any(block.large for block in section.blocks):
        section.blocks = [
            replace(block, html=_POINTS.sub(_pointless, block.html)) for block in section.blocks
        ]
    part = Section(section.heading)
    for block in section.blocks:
        if part.blocks and not part.fits([block]):
            leading = [part.blocks.pop()] if part.blocks[-1].leads_on else []
            if part.blocks:
                yield part
            part = Section(section.heading, leading)
        part.blocks.append(block)
    if part.blocks:
        yield part


def _joined(parts: Iterable[Section]) -> Iterator[Section]:
    """The parts, each that is thin on the slide before it, where that says the same heading, or
    else on the next.
    """
    done: list[Section] = []
    waiting: Section | None = None
    for part in parts:
        if waiting:
            between = [Block("text", f"<h3>{inline_html(part.heading)}</h3>")] * (
                part.heading != waiting.heading
            )
            part = Section(waiting.heading, [*waiting.blocks, *between, *part.blocks])
            waiting = None
        if not part.thin:
            done.append(part)
        elif done and done[-1].heading == part.heading and done[-1].fits(part.blocks):
            done[-1].blocks += part.blocks
        else:
            waiting = part
    if waiting and done:
        done[-1].blocks += waiting.blocks
    return iter(done)


def _pointless(found: re.Match[str]) -> str:
    return (found[1] or "").upper() + (found[2] or "")


def _lines(text: str, characters: int) -> int:
    return max(1, -(-len(text) // characters))


def _reader() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table")


def markdown(text: str) -> str:
    """HTML of a text; links to other files of the course, which are not beside the page, become
    plain text.

    A sentence that is nothing but such a link goes.
    """
    return _rendered(_reader().parse(text))


def _rendered(tokens: list[Token]) -> str:
    reader = _reader()
    shown = reader.renderer.render(tokens, reader.options, {})
    return _LINK_WITHIN.sub(r"\1", _LINK_ALONE.sub("", shown))
