"""Sentences, tables and figures of a lesson: rounded, in units that people read, with their
origin.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proflab.display import SUMMARY, Table, near, show
from tidyprof.harmless import html_text, printable, printable_lines

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.plots import TidyFigure
    from tidyprof.tables.contract import Origin

TIME_UNITS = {"us": ("µs", 1e3), "ms": ("ms", 1e6), "s": ("s", 1e9)}
"""Ending of a column's name in `show_table` -> the unit in its heading, and its length in ns."""


OTHER_UNITS = {"percent": "%", "ns": "ns", "us": "µs", "ms": "ms", "watt": "W"}
"""Ending of a column's name that is shown as it is -> the unit in its heading."""


_FENCED = re.compile(r"^```\w*\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
_MARKED = re.compile(
    r"""`([^`\n]+)`
    | \*\*([^*\n]+)\*\*
    | (?<![\w*./-]) \* (?=[^\W_]) ((?:[^*`\n] | `[^`\n]+`)*? [\w`?!]) \* (?![\w*/.-]\w | [\w*/])""",
    re.VERBOSE,
)
"""Code, strong, and emphasis, which `2 * 3 * 4`, `*.csv, trace_*.json` and the pointers of a
kernel's name are not.
"""


@dataclass(frozen=True)
class Prose:
    """Text whose `code`, *emphasis*, **strong** words and blocks of code in fences a notebook sets
    as such, no more.

    Markdown would set links, pictures and HTML, too, which a name in a file may hold.
    """

    text: str

    def __str__(self) -> str:
        return printable_lines(self.text)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = _FENCED.split(html_text(self.text))
        shown = []
        for place, part in enumerate(parts):
            if place % 2:
                shown.append(f"<pre>{part}</pre>")
            elif text := part.strip():
                shown.append(f"<p>{_MARKED.sub(_marked, text)}</p>".replace("\n", "<br>"))
        return "".join(shown)


def _marked(match: re.Match[str]) -> str:
    code, strong, emphasis = match.groups()
    if code:
        return f"<code>{code}</code>"
    tag = "strong" if strong else "em"
    return f"<{tag}>{_MARKED.sub(_marked, strong or emphasis)}</{tag}>"


@dataclass(frozen=True, repr=False)
class Picture:
    """A figure with its text alternative below it, folded away until it is asked for."""

    figure: TidyFigure

    def __str__(self) -> str:
        return f"[figure] {printable(self.figure.alternative_text)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        words = html_text(self.figure.alternative_text)
        head = f"{SUMMARY}This figure in words</summary>"
        return f"{self.figure._repr_html_()}<details>{head}<p>{words}</p></details>"


def say(text: str) -> None:
    """Show a sentence. In a lesson its numbers are computed: `say(f"The GPU is busy for {share:.0f}
    %.")`.
    """
    show(Prose(text))


def show_figure(figure: TidyFigure) -> None:
    """Show a figure of `tidyprof.plots` with its text alternative."""
    show(Picture(figure))


def show_table(
    frame: pd.DataFrame,
    columns: str,
    caption: str,
    rows: int | None = None,
    origin: Origin | str | None = None,
) -> None:
    """Show some columns of a table, its first `rows` rows, and where the numbers come from.

    columns -- names separated by spaces. A column of nanoseconds, such as `total_ns`, is shown in
    another unit if it is asked for as `total_us`, `total_ms` or `total_s`.
    origin  -- for a table of your own; what an analysis returned knows its origin.

    Raises ValueError for an unknown column, and for a table that does not say where it comes from.
    """
    origin = str(origin or frame.attrs.get("origin", ""))
    if not origin:
        raise ValueError("the table does not say where its numbers come from; give `origin`")
    shown = frame if rows is None else frame.head(rows)
    found = [_column(shown, name) for name in columns.split()]
    headings = [heading for heading, _, _ in found]
    flush_right = [heading for heading, _, is_number in found if is_number]
    note = origin if len(shown) == len(frame) else f"{len(shown)} of {len(frame)} rows; {origin}"
    show(
        Table(
            caption,
            headings,
            list(zip(*(texts for _, texts, _ in found), strict=True)),
            note,
            flush_right,
        )
    )


def _column(frame: pd.DataFrame, name: str) -> tuple[str, list[str], bool]:
    """Heading and texts of one column, and whether they are numbers."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    values, unit = _values(frame, name)
    heading = _heading(name, unit)
    if not is_numeric_dtype(values) or is_bool_dtype(values):
        return heading, _texts(values, str), False
    if unit == "%":
        return heading, _texts(values, lambda value: _rounded(value, 1)), True
    return heading, _texts(values, _number_text(values)), True


def _values(frame: pd.DataFrame, name: str) -> tuple[pd.Series, str]:
    """The values to show, and their unit."""
    if name in frame.columns:
        return frame[name], OTHER_UNITS.get(name.rpartition("_")[2], "")
    stem, _, ending = name.rpartition("_")
    if ending in TIME_UNITS and f"{stem}_ns" in frame.columns:
        unit, nanoseconds = TIME_UNITS[ending]
        return frame[f"{stem}_ns"] / nanoseconds, unit
    raise ValueError(
        f"there is no column {name!r} in the table: {near(name, map(str, frame.columns))}"
    )


def _heading(name: str, unit: str) -> str:
    if name == "percent":
        return "share, %"
    if name.isupper():
        return name  # a counter, which is called so
    words = (
        re.sub(r"_(percent|watt|ns|us|ms|s)$", "", name).replace("_", " ")
        if unit
        else name.replace("_", " ")
    )
    return f"{words}, {unit}" if unit else words


def _texts(values: pd.Series, text: Callable[[Any], str]) -> list[str]:
    """One text per value, empty where the value is missing."""
    return [
        "" if missing else text(value) for value, missing in zip(values, values.isna(), strict=True)
    ]


def _number_text(values: pd.Series) -> Callable[[Any], str]:
    """How to write a column's numbers: all with the decimals that give its largest three digits."""
    from pandas.api.types import is_integer_dtype

    if is_integer_dtype(values):
        return lambda value: f"{value:,d}"
    largest = float(values.abs().max())
    # Of very small numbers six decimals are shown, of none at all (nan, 0) two.
    decimals = min(6, max(0, 2 - math.floor(math.log10(largest)))) if largest > 0 else 2
    if (values.sub(1).abs().between(0, 0.1, inclusive="right")).any():
        decimals = max(2, decimals)  # a ratio near 1 is not 1.0
    return lambda value: _rounded(value, decimals)


def _rounded(value: float, decimals: int) -> str:
    """A number with so many decimals; what would round to nothing but is something becomes `<0.1`
    or the like.
    """
    text = f"{value:,.{decimals}f}"
    return (
        f"<{10.0**-decimals:.{decimals}f}"
        if value > 0 and not float(text.replace(",", ""))
        else text
    )
