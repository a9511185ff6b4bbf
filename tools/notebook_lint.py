"""Rules for lessons and notebooks. Each rule receives a notebook and yields its problems."""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tools.course_commands import problems_in_cell
from tools.notebooks import QUESTION_TAG, Folders, solved_notebooks
from tools.notebooks.minutes import lines_of

if TYPE_CHECKING:
    from nbformat import NotebookNode

LONGEST_CELL = 25
LONGEST_FUNCTION = 12

GIVEN_TAG = "given"
"""Tag of a Markdown cell that may contain numbers with units.

These facts can't be computed from the lesson's data.
"""

_UNITS = r"ns|us|µs|μs|ms|%|percent|[kMGT]i?B(?:/s)?|[GTP]FLOPS?(?:/s)?|images/s"
_NUMBER_WITH_UNIT = re.compile(rf"(?<![\w.])\d[\d.,]*(?: ?(?:{_UNITS})(?!\w)|[x×](?!\w))")
_ABSOLUTE_PATH = re.compile(
    r"""(?:(?<=[\s"'=(:,>])|^)(?:/(?!dev/|proc/|sys/)\w[\w.-]*|~\w*/|[A-Za-z]:\\)""", re.MULTILINE
)
_TYPED_FOLDER = re.compile(r"\bruns/\d\d\b")
_INSTALL = re.compile(
    r"^\s*[!%]\s*(?:pip|conda|mamba|uv)\b|\b(?:pip3?|conda|mamba) install\b", re.MULTILINE
)
_PROSE = ("text", "code_inline", "softbreak")
_SKIPPING = re.compile(r"skip|raise|allow.?error", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """One broken rule. `cell` counts from 1, and 0 is the whole notebook."""

    path: Path
    cell: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}, cell {self.cell}: {self.rule}: {self.text}"


@dataclass(frozen=True)
class Page:
    """A notebook to check, and the base folder of its relative links."""

    path: Path
    notebook: NotebookNode
    folder: Path

    def cells(self, kind: str) -> Iterator[tuple[int, NotebookNode]]:
        """Yield the cells of one kind with their numbers."""
        for place, cell in enumerate(self.notebook.cells, start=1):
            if cell.cell_type == kind:
                yield place, cell


Rule = Callable[[Page], Iterator[tuple[int, str]]]
"""A rule yields the cell's number and what is wrong with the cell."""


def lint(page: Page) -> list[Finding]:
    """Return all problems of one notebook."""
    return [
        Finding(page.path, cell, name, text)
        for name, rule in RULES.items()
        for cell, text in rule(page)
    ]


def lint_all(folders: Folders, columns: int | None = None) -> list[Finding]:
    """Return all problems of the lessons (in their solved form) and of the learners' notebooks.

    columns -- maximum length of a line of code, or None for any length.
    """
    import nbformat

    pages = [
        Page(path, notebook, folders.notebooks)
        for path, notebook in solved_notebooks(folders).items()
    ]
    for path in sorted(folders.notebooks.glob("*.ipynb")):
        pages.append(Page(path, nbformat.read(path, as_version=4), path.parent))
    wide = [
        Finding(page.path, cell, "narrow-code", text)
        for page in pages
        for cell, text in too_wide(page, columns)
    ]
    return [finding for page in pages for finding in lint(page)] + wide


def too_wide(page: Page, columns: int | None) -> Iterator[tuple[int, str]]:
    """Find lines of code with more than `columns` characters, also in code blocks of Markdown."""
    for place, cell in enumerate(page.notebook.cells, start=1):
        source = cell.source
        if cell.cell_type == "markdown":
            blocks = (each.content for each in markdown_tokens(source) if each.type == "fence")
            source = "".join(blocks)
        for line in source.splitlines():
            if columns and len(line) > columns:
                yield (
                    place,
                    f"has a line of {len(line)} columns, more than {columns}: {line.strip()[:40]}",
                )


def no_outputs(page: Page) -> Iterator[tuple[int, str]]:
    """Outputs come from running the notebook and aren't stored in the repository."""
    for place, cell in page.cells("code"):
        if cell.get("outputs") or cell.get("execution_count") is not None:
            yield place, "has an output or an execution count"


def no_skipping(page: Page) -> Iterator[tuple[int, str]]:
    """A cell that is skipped or may raise isn't tested."""
    if page.notebook.metadata.get("execution", {}).get("allow_errors"):
        yield 0, "allows errors for the whole notebook"
    for place, cell in enumerate(page.notebook.cells, start=1):
        for tag in cell.metadata.get("tags", []):
            if _SKIPPING.search(tag):
                yield place, f"is tagged {tag}"


def no_absolute_paths(page: Page) -> Iterator[tuple[int, str]]:
    """An absolute path exists on only one machine, except the kernel's paths (/dev, /proc,
    /sys).
    """
    for place, cell in page.cells("code"):
        for found in _ABSOLUTE_PATH.finditer(_without_comments(cell.source)):
            yield place, f"has the absolute path {found.group()}"


def own_folder(page: Page) -> Iterator[tuple[int, str]]:
    """Results go to the folder that the learner chose.

    It is `$FOLDER` in commands and `lesson.folder` in Python.
    """
    for place, cell in page.cells("code"):
        if found := _TYPED_FOLDER.search(cell.source):
            yield place, f"has {found.group()}, which is a different folder if PROFLAB_RUNS is set"


def no_installing(page: Page) -> Iterator[tuple[int, str]]:
    """The environment is set up once, outside the lessons."""
    for place, cell in page.cells("code"):
        if found := _INSTALL.search(cell.source):
            yield place, f"installs something: {found.group().strip()}"


def short_cells(page: Page) -> Iterator[tuple[int, str]]:
    """A cell fits on a screen."""
    for place, cell in enumerate(page.notebook.cells, start=1):
        lines = len(cell.source.splitlines())
        if lines > LONGEST_CELL:
            yield place, f"has {lines} lines, more than {LONGEST_CELL}"


def short_functions(page: Page) -> Iterator[tuple[int, str]]:
    """Code that needs a longer function belongs in a package with tests, even if it is wrapped."""
    for place, cell in page.cells("code"):
        for node in ast.walk(_parse(cell.source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = lines_of(
                    textwrap.dedent(ast.get_source_segment(cell.source, node, padded=True))
                )
                if lines > LONGEST_FUNCTION:
                    yield (
                        place,
                        f"function {node.name} has {lines} lines, more than {LONGEST_FUNCTION}",
                    )


def valid_python(page: Page) -> Iterator[tuple[int, str]]:
    """Every Python cell parses."""
    for place, cell in page.cells("code"):
        try:
            ast.parse(python_of(cell.source))
        except SyntaxError as error:
            yield place, f"isn't valid Python: {error.msg}"


def ordered_headings(page: Page) -> Iterator[tuple[int, str]]:
    """The only H1 comes first, and no level is skipped, because screen readers navigate by
    headings.
    """
    level, titles = 0, 0
    for place, here, text in _headings(page):
        titles += here == 1
        if not text:
            yield place, f"has an empty H{here}"
        if here > level + 1:
            yield (
                place,
                f"jumps from H{level} to H{here}" if level else f"starts with H{here}, not H1",
            )
        level = here
    if titles != 1:
        yield 0, f"has {titles} H1 headings, not one"


def images_have_text(page: Page) -> Iterator[tuple[int, str]]:
    """Every image has a text that describes it."""
    for place, cell in page.cells("markdown"):
        for source, text in _images(cell.source):
            if not text.strip():
                yield place, f"the image {source} has no alternative text"


def links_resolve(page: Page) -> Iterator[tuple[int, str]]:
    """Every relative link leads to a file, and every link within the page leads to a heading."""
    anchors = {re.sub(r"\s+", "-", text).casefold() for _, _, text in _headings(page)}
    for place, cell in page.cells("markdown"):
        for target in _targets(cell.source):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            if not parts.path:
                if unquote(parts.fragment).casefold() not in anchors:
                    yield place, f"the link {target} doesn't lead to a heading"
            elif parts.path.startswith("/") or not (page.folder / unquote(parts.path)).exists():
                yield place, f"the link {target} doesn't lead to a file"


def no_typed_numbers(page: Page) -> Iterator[tuple[int, str]]:
    """Numbers with units are computed from the data, so that they can't become outdated.

    Facts go into a cell tagged `given`.
    """
    for place, cell in page.cells("markdown"):
        if {GIVEN_TAG, QUESTION_TAG} & set(cell.metadata.get("tags", [])):
            continue
        for found in _NUMBER_WITH_UNIT.finditer(_prose(cell.source)):
            yield (
                place,
                f"the number {found.group()!r} is typed. Compute it, or tag the cell `{GIVEN_TAG}`",
            )


def known_commands(page: Page) -> Iterator[tuple[int, str]]:
    """Every command is valid according to its tool's own options."""
    for place, cell in enumerate(page.notebook.cells, start=1):
        yield from ((place, problem) for problem in problems_in_cell(cell))


RULES: dict[str, Rule] = {
    "no-outputs": no_outputs,
    "no-skipping": no_skipping,
    "no-absolute-paths": no_absolute_paths,
    "own-folder": own_folder,
    "no-installing": no_installing,
    "short-cells": short_cells,
    "short-functions": short_functions,
    "valid-python": valid_python,
    "ordered-headings": ordered_headings,
    "images-have-text": images_have_text,
    "links-resolve": links_resolve,
    "no-typed-numbers": no_typed_numbers,
    "known-commands": known_commands,
}
"""All rules by name."""


def python_of(source: str) -> str:
    """Return the cell without magics.

    A cell magic becomes "", and a line magic or shell line becomes `pass`.
    """
    if source.lstrip().startswith("%%"):
        return ""
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE)


def _parse(source: str) -> ast.Module:
    try:
        return ast.parse(python_of(source))
    except SyntaxError:  # valid_python reports it
        return ast.Module(body=[], type_ignores=[])


def _without_comments(source: str) -> str:
    return re.sub(r"^\s*#.*$", "", source, flags=re.MULTILINE)


def markdown_tokens(source: str) -> list:
    """Return the tokens that markdown-it creates from the text, including tables."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable("table").parse(source)


def _inline(source: str) -> Iterator:
    for token in markdown_tokens(source):
        yield from token.children or ()


def _headings(page: Page) -> Iterator[tuple[int, int, str]]:
    """Yield the cell number, level and text of every heading."""
    for place, cell in page.cells("markdown"):
        tokens = markdown_tokens(cell.source)
        for token, content in itertools.pairwise(tokens):
            if token.type == "heading_open":
                yield place, int(token.tag[1:]), content.content.strip()


def _images(source: str) -> Iterator[tuple[str, str]]:
    """Yield the source and the alternative text of Markdown and HTML images."""
    for token in _inline(source):
        if token.type == "image":
            yield token.attrs["src"], token.content
    for attributes in _html(source, "img"):
        yield attributes.get("src", ""), attributes.get("alt", "")


def _targets(source: str) -> Iterator[str]:
    """Yield the targets of links and images."""
    for token in _inline(source):
        if token.type in ("link_open", "image"):
            yield str(token.attrs.get("href", token.attrs.get("src")))
    for tag, attribute in (("img", "src"), ("a", "href")):
        yield from (found[attribute] for found in _html(source, tag) if attribute in found)


def _prose(source: str) -> str:
    """Return the text of a Markdown cell without code blocks and link targets."""
    blocks = (token.children for token in markdown_tokens(source) if token.type == "inline")
    return "\n".join(
        "".join(
            " " if part.type == "softbreak" else part.content
            for part in block
            if part.type in _PROSE
        )
        for block in blocks
    )


def _html(source: str, tag: str) -> Iterator[dict[str, str]]:
    """Yield the attributes of every HTML element `tag` in the Markdown's HTML parts."""
    for token in [*markdown_tokens(source), *_inline(source)]:
        if token.type in ("html_block", "html_inline"):
            for element in re.findall(rf"<{tag}\b([^>]*)>", token.content):
                yield dict(re.findall(r"""([\w-]+)=["']([^"']*)["']""", element))
