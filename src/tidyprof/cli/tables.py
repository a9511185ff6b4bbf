"""Tables on a terminal (coloured, as wide as it is) or into a pipe (plain, never cut)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tidyprof.cli.output import explained

_UNLIMITED = 100_000
"""Columns of a pipe: more than any table has."""

_LEAST_TEXT = 8
"""Columns that a folded text keeps on a narrow terminal."""

_AROUND = 2
"""Columns that each column of a table on a terminal takes beside its texts."""


@dataclass(frozen=True)
class Column:
    """One column as it is shown: its heading and a text for each row.

    On a terminal texts are folded and numbers never: where these do not fit, lines are longer than it is wide.
    A unit at the end of a heading goes below it there.
    """

    heading: str
    values: Sequence[str]
    is_text: bool = False


def on_terminal() -> bool:
    """Whether a person is looking at the output as it is written."""
    return sys.stdout.isatty()


def say(line: str, style: str = "") -> None:
    """A line of text; only a terminal breaks it."""
    _print(Text(printable(line), style), soft_wrap=not on_terminal())


def show(columns: Iterable[Column]) -> None:
    """A table. Columns that say nothing are left out by the caller."""
    columns = list(columns)
    plain = not on_terminal()
    table = Table(
        box=None if plain else box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 2, 0, 0) if plain else (0, 0, 0, 1),
        header_style="" if plain else "bold",
    )
    least_width = 0
    for column in columns:
        name, _, unit = column.heading.rpartition(" ")
        heading = column.heading if plain else f"{name}\n{unit}"
        kind = {"overflow": "fold"} if column.is_text else {"justify": "right", "no_wrap": True}
        table.add_column(Text(heading), **kind)
        widest = max(map(cell_len, [*heading.split("\n"), *column.values]))
        least_width += _AROUND + (min(widest, _LEAST_TEXT) if column.is_text else widest)
    for row in zip(*(column.values for column in columns), strict=True):
        table.add_row(*(Text(printable(value)) for value in row))
    _print(table, least_width=least_width)


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """Lines of a label and a text; a terminal breaks long texts between words and keeps them to the right."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")
    for label, text in facts:
        table.add_row(Text(label), Text(printable(text)))
    _print(table)


def _print(renderable: RenderableType, soft_wrap: bool = False, least_width: int = 0) -> None:
    """Write it as wide as the output is, and at least `least_width` columns."""
    with explained():
        console = _console()
        console.width = max(console.width, least_width)
        with console.capture() as captured:
            console.print(renderable, soft_wrap=soft_wrap)
        text = "\n".join(line.rstrip() for line in captured.get().splitlines())
        sys.stdout.write(text.strip("\n") + "\n")
        sys.stdout.flush()  # what is held back would fail where nobody expects it


def _console() -> Console:
    sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False) if on_terminal() else Console(highlight=False, width=_UNLIMITED, no_color=True)


def printable(text: str) -> str:
    """The text without control characters, which a name in a damaged or hostile file may hold."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def warn(message: str) -> None:
    """A line on stderr that no pipe of results gets to see."""
    print(f"warning: {printable(message)}", file=sys.stderr)


def milliseconds(nanoseconds: Iterable[Any]) -> list[str]:
    """`1,234.567` for each duration, empty for <NA>."""
    return numbers(nanoseconds, lambda value: f"{value / 1e6:,.3f}")


def microseconds(nanoseconds: Iterable[Any]) -> list[str]:
    """`1,234.5` for each duration, empty for <NA>."""
    return numbers(nanoseconds, lambda value: f"{value / 1e3:,.1f}")


def percentages(values: Iterable[Any]) -> list[str]:
    """`12.3` for each share in percent, empty for <NA>."""
    return numbers(values, lambda value: f"{value:.1f}")


def counts(values: Iterable[Any]) -> list[str]:
    """`1,234` for each whole number, empty for <NA>."""
    return numbers(values, lambda value: f"{value:,d}")


def numbers(values: Iterable[Any], text: Any) -> list[str]:
    """The text of each value, empty for <NA>."""
    return ["" if pd.isna(value) else text(value) for value in values]
