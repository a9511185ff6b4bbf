"""Short messages and tables, shown as HTML in a notebook or as plain text in a terminal."""

from __future__ import annotations

import math
import numbers
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources

from tidyprof.escaping import html_text, printable_lines, typeset
from tidyprof.standard_streams import joined, parted

ACCENTS = {"passed": "#009e73", "wrong": "#d55e00", "open": "#0072b2", "info": "#6b6b6b"}
"""Border color for each tone, from Okabe and Ito's palette (https://jfly.uni-koeln.de/color/).

The heading also states the tone in words, so readers don't depend on colors.
"""

# Text and background use the colors of the light or dark theme.
_BOX = "padding:0.5em 0.9em;margin:0.3em 0;max-width:60em"
_CELL = "text-align:left;vertical-align:top;padding:0.15em 0.8em"
_CELL_RIGHT = _CELL.replace("left", "right")

SUMMARY = '<summary style="display:list-item">'
"""Heading of a folded section. This style keeps the triangle visible in the classic notebook."""

_NO_PROSE = re.compile(r"(<(?:code|pre)\b.*?</(?:code|pre)>|<[^>]*>)", re.DOTALL)
"""Code and HTML tags."""

_READABLE = 100
"""Maximum line width for sentences in a terminal, in columns."""


@dataclass(frozen=True, repr=False)
class Notice:
    """Notice with a heading, a message and optional code. Words in backticks are formatted as code.

    `tone` is a key of ACCENTS. All text is escaped, so strings from files are safe.
    """

    heading: str
    text: str = ""
    tone: str = "info"
    code: str = ""

    def __str__(self) -> str:
        body = f"{self.heading}: {self.text}" if self.text else self.heading
        return printable_lines(f"{body}\n{_indent(self.code)}" if self.code else body)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [f"<strong>{html_text(self.heading)}</strong>"]
        if self.text:
            parts.append(f" &ndash; {inline_html(self.text)}")
        if self.code:
            parts.append(f'<pre style="{_CELL}">{html_text(self.code)}</pre>')
        return (
            f'<div style="{_BOX};border-left:0.4em solid'
            f' {ACCENTS[self.tone]}">{"".join(parts)}</div>'
        )


@dataclass(frozen=True, repr=False)
class Table:
    """Table of strings with a caption.

    - flush_right: columns that contain numbers
    - widths: width of each column in percent. Only tables of sentences have widths. In a
      terminal, each row of these tables becomes a paragraph.
    - earlier: number of rows at the start that a notebook folds and a terminal omits
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    flush_right: Sequence[str] = ()
    widths: Sequence[int] = ()
    earlier: int = 0

    def __str__(self) -> str:
        width = terminal_width()
        rows = [[printable_lines(str(value)) for value in row] for row in self.rows[self.earlier :]]
        cells = [list(self.columns), *rows]
        wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
        has_lines = any("\n" in text for row in rows for text in row)
        if self.widths or has_lines or sum(wide) + 2 * len(wide) > width:
            # Print each cell on a separate line if the row is long or contains sentences.
            width = min(width, _READABLE)
            lines = [line for row in rows for line in self._below_each_other(row, width)]
        else:
            right = [name in self.flush_right for name in self.columns]
            lines = [
                "  ".join(
                    text.rjust(size) if side else text.ljust(size)
                    for text, size, side in zip(row, wide, right, strict=True)
                ).rstrip()
                for row in cells
            ]
        notes = [parted(textwrap.fill(joined(line), width)) for line in self.note.splitlines()]
        return printable_lines("\n".join([self.caption, *lines, *notes]))

    __repr__ = __str__

    def _below_each_other(self, row: Sequence[str], width: int) -> Iterator[str]:
        wrap = textwrap.TextWrapper(
            width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False
        )
        yield row[0]
        for name, text in zip(self.columns[1:], row[1:], strict=True):
            if text:
                for line in joined(f"{name}: {text}").splitlines():
                    yield parted(wrap.fill(line))

    def _repr_html_(self) -> str:
        looks = [_CELL_RIGHT if name in self.flush_right else _CELL for name in self.columns]
        table = "<table>"
        if self.widths:
            looks = [
                f"{look};width:{share}%" for look, share in zip(looks, self.widths, strict=True)
            ]
            table = '<table style="width:100%;table-layout:fixed">'
        named = zip(self.columns, looks, strict=True)
        head = "".join(
            f'<th scope="col" style="{look}">{html_text(name)}</th>' for name, look in named
        )
        rows = [f"<tr>{''.join(map(_cell, row, looks))}</tr>" for row in self.rows]
        if self.earlier:
            # HTML can't fold single table rows, so the folded rows are in a nested table.
            inner = (
                f"{SUMMARY}earlier"
                f" {html_text(self.columns[0])}s</summary>{table}{''.join(rows[: self.earlier])}"
            )
            folded = (
                f'<td colspan="{len(looks)}"'
                f' style="{_CELL};padding:0"><details>{inner}</table></details></td>'
            )
            rows[: self.earlier] = [f"<tr>{folded}</tr>"]
        note = f'<div style="font-size:smaller">{inline_html(self.note)}</div>' if self.note else ""
        return (
            f'<div style="{_BOX}">{table}<caption'
            ' style="text-align:left;color:inherit;font-weight:bold">'
            f"{inline_html(self.caption)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>"
            f"{note}</div>"
        )


def page(table: Table) -> str:
    """Return a table as a self-contained HTML page that follows the system's light or dark theme.

    All rows are visible because someone may print the page.
    """
    title = f"<title>{html_text(table.caption.replace('`', ''))}</title>"
    width = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    css = resources.files("proflab").joinpath("assets/page.css").read_text(encoding="utf-8")
    head = f'<head><meta charset="utf-8">{width}{title}<style>\n{css}</style></head>'
    shown = f"<h1>{inline_html(table.caption)}</h1>"
    shown += replace(table, earlier=0, caption="")._repr_html_()
    return f'<!doctype html>\n<html lang="en">{head}<body><main>{shown}</main></body></html>\n'


def show(item: Notice | Table) -> None:
    """Display `item` in a notebook, or print it elsewhere."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        print(item)
        return
    from IPython.display import display

    display(item)


def terminal_width() -> int:
    """Return the width of the terminal in columns, or 160 for a file or pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 160


def inline_html(text: str) -> str:
    """Escape `text` for HTML and format words in backticks as code."""
    return typeset_html(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", html_text(text))).replace(
        "\n", "<br>"
    )


def typeset_html(html: str) -> str:
    """Apply `typeset` to HTML without changing code or tags."""
    parts = _NO_PROSE.split(html)
    parts[::2] = map(typeset, parts[::2])
    return "".join(parts)


def number(value: object) -> str:
    """Return a value as a string.

    Whole numbers are written in full (524,288). Other numbers have four digits, or more digits
    if four would look like a whole number (1.0004).
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        return str(value)
    if abs(value) >= 1e12:
        return f"{float(value):.4g}"
    if value == int(value) or abs(value) >= 1e3:
        return f"{value:,.0f}"
    texts = (f"{value:.{digits}g}" for digits in (4, 6, 8))
    return next((text for text in texts if float(text) != round(value)), str(value))


def quoted(text: str, longest: int = 80) -> str:
    """Return a learner's string formatted as code. Backticks become apostrophes."""
    line = " ".join(text.replace("`", "'").split()) or "an empty string"
    return f"`{line if len(line) <= longest else line[: longest - 4] + ' ...'}`"


def size(count: int) -> str:
    """Return a number of bytes in decimal units, such as 1.2 MB for 1162277."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def near(word: str, known: Iterable[str]) -> str:
    """Return a phrase that suggests names from `known` similar to `word`. If no name is similar,
    list all names.
    """
    import difflib

    known = sorted(set(known))
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"the known names are {', '.join(known)}" if known else "no names are known"


def _cell(value: str, look: str) -> str:
    return f'<td style="{look}">{inline_html(value)}</td>'


def _indent(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.splitlines())
