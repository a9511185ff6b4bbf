"""Display of sentences, tables and figures with rounded numbers, readable units and their
origin.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proflab.display import SUMMARY, Table, near, show, typeset_html
from proflab.sources import brief, errors
from tidyprof.escaping import html_text, printable, printable_lines

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.plots import TidyFigure
    from tidyprof.tables.contract import Origin

SIZES = (
    {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9},
    {"bytes": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30},
)
"""Size of the unit in ns or bytes for each ending of a column name."""

UNITS = {
    "gb_per_s": "GB/s",
    "per_s": "",
    **{"ns": "ns", "us": "µs", "ms": "ms", "s": "s"},
    "percent": "%",
    "watt": "W",
    "mhz": "MHz",
    "bytes": "bytes",
    **{unit.lower(): unit for unit in ("kB", "MB", "GB", "KiB", "MiB", "GiB")},
}
"""Unit in the heading for each ending of a column name."""

_SIZES_OF_BYTES = {UNITS[ending] for ending in SIZES[1]}

SPELLED = {
    **{word.lower(): word for word in ("GPU", "GPUs", "CPU", "LDS", "VGPRs", "SGPRs", "HBM")},
    "pct": "percent",
}
"""Replacements for words of column names in headings."""

COMPARED = 20
"""Limit for columns with the same unit. If the ratio of their largest numbers is below this limit,
the columns have the same number of decimal places.
"""

_SHOWN_IN_FULL: dict[str, str] = {}
"""For each model error, the title of the first table or figure in this notebook that shows the
error.
"""

_FENCED = re.compile(r"^```\w*\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
_MARKED = re.compile(
    r"""`([^`\n]+)`
    | \*\*([^*\n]+)\*\*
    | (?<![\w*./-]) \* (?=[^\W_]) ((?:[^*`\n] | `[^`\n]+`)*? [\w`?!]) \* (?![\w*/.-]\w | [\w*/])""",
    re.VERBOSE,
)
"""Pattern for code, strong text and emphasis. Stars in `2 * 3 * 4`, `*.csv` or pointer types don't
match.
"""


_NUMBER = re.compile(r"[-−<]?\d[\d,]*(\.\d+)?( ?%)?|[-–]?")
"""Pattern for a number in a string, or for the sign that represents a missing number."""


@dataclass(frozen=True)
class Prose:
    """Text with `code`, *emphasis*, **strong** words and fenced code blocks.

    Unlike Markdown, this class ignores links, images and HTML, because names from files may
    contain them.
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
        return typeset_html("".join(shown))


def _marked(match: re.Match[str]) -> str:
    code, strong, emphasis = match.groups()
    if code:
        return f"<code>{code}</code>"
    tag = "strong" if strong else "em"
    return f"<{tag}>{_MARKED.sub(_marked, strong or emphasis)}</{tag}>"


@dataclass(frozen=True, repr=False)
class Picture:
    """Figure with its text alternative, which is folded below the figure."""

    figure: TidyFigure

    def __str__(self) -> str:
        return f"[figure] {printable(self.figure.alternative_text)}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        words = html_text(self.figure.alternative_text)
        head = f"{SUMMARY}This figure in words</summary>"
        return f"{self.figure._repr_html_()}<details>{head}<p>{words}</p></details>"


def show_text(text: str) -> None:
    """Show a sentence with numbers that the lesson computes: `show_text(f"Busy for
    {share:.0f}%.")`.
    """
    show(Prose(text))


Point = tuple[float, float]


def point_at(figure: TidyFigure, text: str, place: Point, beside: Point) -> None:
    """Add a text with an arrow to what matters in the first axes of a figure.

    - place: the place in the data that the arrow points at.
    - beside: the place of the text as shares of the width and height of the axes.
    """
    figure.axes[0].annotate(
        text,
        place,
        beside,
        textcoords="axes fraction",
        fontweight="bold",
        bbox={"facecolor": "white", "edgecolor": "black"},
        arrowprops={"arrowstyle": "->", "linewidth": 1.5},
    )
    figure.alternative_text += f" An arrow points at: {text}."


def show_figure(figure: TidyFigure, arrow: tuple[str, Point, Point] | None = None) -> None:
    """Show a figure from `tidyprof.plots` with its text alternative.

    - arrow: the text, place and beside of `point_at`.
    """
    if arrow:
        point_at(figure, *arrow)
    figure.restate(stated_once(figure.origin, figure.get_suptitle()))
    show(Picture(figure))


def show_table(
    frame: pd.DataFrame,
    columns: str,
    caption: str,
    rows: int | None = None,
    origin: Origin | str | None = None,
) -> None:
    """Show some columns and the first `rows` rows of a table, and its origin.

    - columns: column names separated by spaces. To convert the unit of the column `total_ns`,
      write `total_us`, `total_ms` or `total_s`. For `total_bytes`, you can write `total_mib`.
    - origin: source of the numbers. Pass it for your own tables, because only tables from
      tidyprof already have an origin.

    Raises ValueError for an unknown column and for a table without an origin.
    """
    origin = str(origin or frame.attrs.get("origin", ""))
    if not origin:
        raise ValueError("the table has no origin. Pass the argument `origin`")
    shown = frame if rows is None else frame.head(rows)
    values = {name: _values(shown, name) for name in columns.split()}
    # Columns with the same unit have the same number of decimal places.
    found = [_column(name, *one, _largest(one, values.values())) for name, one in values.items()]
    headings = [heading for heading, _, _ in found]
    flush_right = [heading for heading, _, is_number in found if is_number]
    units = {unit for _, unit in values.values()}
    # The model error applies to times, so don't show it for a table that contains only bytes.
    sizes_alone = bool(units & _SIZES_OF_BYTES) and units <= {"", "%", *_SIZES_OF_BYTES}
    note = brief(origin) if sizes_alone else stated_once(origin, caption)
    if len(shown) < len(frame):
        note = f"{len(shown):,} of {len(frame):,} rows; {note}"
    show(
        Table(
            caption,
            headings,
            list(zip(*(texts for _, texts, _ in found), strict=True)),
            note,
            flush_right,
        )
    )


def stated_once(origin: str, title: str) -> str:
    """Return an origin without the errors that an earlier table or figure has already shown."""
    firsts = [_SHOWN_IN_FULL.setdefault(error, title) for error in errors(origin)]
    return origin if title in firsts else brief(origin)


def _column(name: str, values: pd.Series, unit: str, largest: float) -> tuple[str, list[str], bool]:
    """Return a column's heading, its values as strings, and True if they are numbers."""
    from tidyprof.tables.contract import is_identifier

    heading = _heading(name, unit)
    if not _are_numbers(values):
        texts = _texts(values, str)
        return heading, texts, any(texts) and all(map(_NUMBER.fullmatch, texts))
    if is_identifier(name) and (values.dropna() % 1 == 0).all():
        return heading, _texts(values, lambda value: str(int(value))), True
    return heading, _texts(values, _number_text(values, unit, largest)), True


def _are_numbers(values: pd.Series) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return is_numeric_dtype(values) and not is_bool_dtype(values)


def _largest(own: tuple[pd.Series, str], columns: Iterable[tuple[pd.Series, str]]) -> float:
    """Return the largest number in this column and in comparable columns with the same unit, or
    0.
    """

    def most(values: pd.Series) -> float:
        return float(values.abs().max()) if _are_numbers(values) and values.notna().any() else 0.0

    values, unit = own
    others = [most(other) for other, its_unit in columns if unit and its_unit == unit]
    return max([most(values), *(one for one in others if one < COMPARED * most(values))])


def _values(frame: pd.DataFrame, name: str) -> tuple[pd.Series, str]:
    """Return the values of a column and their unit."""
    stem, _, ending = name.rpartition("_")
    if name in frame.columns:
        found = (unit for end, unit in UNITS.items() if name.endswith(f"_{end}"))
        return frame[name], next(found, "%" if name == "percent" else "")
    for sizes in SIZES:
        kept = [unit for unit in sizes if f"{stem}_{unit}" in frame.columns]
        if ending in sizes and kept:
            return frame[f"{stem}_{kept[0]}"] * sizes[kept[0]] / sizes[ending], UNITS[ending]
    raise ValueError(
        f"there is no column {name!r} in the table: {near(name, map(str, frame.columns))}"
    )


def _heading(name: str, unit: str) -> str:
    if name == "percent":
        return "share, %"
    if name.isupper():
        return name  # the name of a counter
    endings = (f"_{end}" for end, known in UNITS.items() if unit and known == unit)
    words = name.removesuffix(next(endings, "")).split("_")
    heading = " ".join(SPELLED.get(word, word) for word in words)
    return f"{heading}, {unit}" if unit else heading


def _texts(values: pd.Series, text: Callable[[Any], str]) -> list[str]:
    """Return each value as a string, and each missing value as ""."""
    return [
        "" if missing else text(value) for value, missing in zip(values, values.isna(), strict=True)
    ]


def _number_text(values: pd.Series, unit: str, largest: float) -> Callable[[Any], str]:
    """Return a function that formats a column's numbers.

    All numbers have the same number of decimal places, so that the largest number has three
    digits. Percentages have one decimal place, and whole numbers have none. If a lesson has
    already rounded a number without a unit, the number keeps its remaining decimal places.
    """
    if (values.dropna() % 1 == 0).all():
        return lambda value: _rounded(value, 0)
    if unit == "%":
        return lambda value: _rounded(value, 1)
    # Very small numbers have six decimal places. A column of NaN or 0 has two.
    decimals = min(6, max(0, 2 - math.floor(math.log10(largest)))) if largest > 0 else 2
    if not unit and values.sub(1).abs().between(0, 0.1, inclusive="right").any():
        decimals = max(2, decimals)  # a ratio near 1 must not appear as 1.0
    elif not unit:  # a rounded number keeps its remaining decimal places
        known = values.dropna()
        kept = (places for places in range(decimals) if (known.round(places) == known).all())
        decimals = next(kept, decimals)
    return lambda value: _rounded(value, decimals)


def _rounded(value: float, decimals: int) -> str:
    """Return a number with this many decimal places.

    A positive number that would round to 0 is shown as `<0.1` or similar.
    """
    text = f"{value:,.{decimals}f}"
    return (
        f"<{10.0**-decimals:.{decimals}f}"
        if value > 0 and not float(text.replace(",", ""))
        else text
    )
