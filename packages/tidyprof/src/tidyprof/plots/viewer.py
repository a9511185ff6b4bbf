"""The viewer that replaces a figure in a browser until the user closes it. It supports zooming and
panning, shows the names and the nesting of events, leads from kernels to launches, and sums ranges.

The viewer is a single script (viewer.js) without libraries. The script reads the JSON data next to
it. In this data, each string occurs only once. If the script doesn't
run, as on paper, only the figure is shown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.escaping import printable
from tidyprof.package_data import text_of
from tidyprof.tables.codes import ABSENT

MAX_EVENTS = 12_000
"""Maximum number of events in a figure's data, which are about 400 KB. If there are more, only the
longest events are kept, and the viewer shows how many events were left out.
"""

LONGEST_NAME = 400
"""Maximum number of characters in a name. If a name exceeds this length, its middle is left out."""


def boxes(
    table: pd.DataFrame,
    span: int,
    lanes: Sequence[str],
    looks: Mapping[str, tuple[str, str]],
    *,
    origin: str,
    title: str | None,
    totals: Sequence[int] | None = None,
    **words: Any,
) -> str:
    """Return the viewer's data for events, functions or blocks. The result is JSON that is safe in
    HTML.

    - table: a table with one row per item. `row` is the zero-based index of the item's lane.
      `start` and `length` are integers relative to the start of the figure. `look` is the index in
      `looks`. The other required columns are `name` and `whole_name`. `operator` is an
      optional string. `launched` is optional and contains the time from launch to start, or
      `ABSENT` if no launch is known. `own` is optional and contains the part of the length that no
      inner box covers.
    - span: the length of the whole figure.
    - lanes: the names of the lanes. An empty string means that a lane has no name.
    - totals: the number of events in each lane, if the table contains only the longest events.
    - words: additional members of the JSON, which are `things`, `axis`, `unit` and `share`.
    """
    row, start = table["row"].to_numpy(), table["start"].to_numpy()
    counts = np.bincount(row, minlength=len(lanes)).tolist() if totals is None else totals
    chosen = longest_of_each(table["length"].to_numpy(), row)
    shown = np.bincount(row[chosen], minlength=len(lanes))
    data = {
        "span": int(span),
        "origin": _text(origin),
        "title": _text(title or ""),
        "looks": [(name, *look) for name, look in looks.items()],
        "lanes": [_lane(*lane) for lane in zip(lanes, shown, counts, strict=True)],
        "left": sum(counts) - len(chosen),
        **_columns(table.iloc[chosen[np.lexsort((start[chosen], row[chosen]))]]),
        **words,
    }
    # ASCII without characters that could start or end an HTML element
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def longest_of_each(lengths: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Return the positions of the events to keep, which are at most `MAX_EVENTS` events.

    The longest events of each row are kept. Each row keeps the same number of events. A row with
    fewer events keeps all of them.
    """
    # Sorting by the rank within the row takes the longest event of every row, then the second
    # longest of every row, and so on.
    order = np.lexsort((-lengths, row))
    first = np.flatnonzero(np.diff(row[order], prepend=-1))
    within = np.arange(len(row)) - np.repeat(first, np.diff(first, append=len(row)))
    return order[np.lexsort((-lengths[order], within))][:MAX_EVENTS]


def _lane(label: str, shown: int, total: int) -> str:
    if shown == total or not label:
        return _text(label)
    return f"{_text(label)}: the longest {shown:,} of {total:,}"


def panel(data: str) -> str:
    """Return an HTML element that contains a figure's data. The script builds the viewer inside
    this element.
    """
    return (
        f'<div class="tidy-viewer"><script type="application/json">{data}</script></div>'
        if data
        else ""
    )


@cache
def script() -> str:
    """Return the HTML element with the script. The element must come after the panels."""
    return f"<script>{text_of('plots/viewer.js')}</script>"


def _columns(kept: pd.DataFrame) -> dict[str, object]:
    # Give each pair of short and whole name one number, so that each pair is written once.
    names, pairs = pd.MultiIndex.from_frame(kept[["name", "whole_name"]]).factorize()
    columns: dict[str, object] = {
        **{column: kept[column].tolist() for column in ("start", "length", "row", "look")},
        "name": names.tolist(),
        # If both names are the same, the whole name is an empty string.
        "names": [(_text(short), "" if long == short else _text(long)) for short, long in pairs],
    }
    if "operator" in kept:
        codes, texts = pd.factorize(kept["operator"].astype(object).fillna(""))
        columns |= {"operator": codes.tolist(), "operators": [_text(text) for text in texts]}
    if "launched" in kept:
        columns["launched"] = [None if one == ABSENT else one for one in kept["launched"].tolist()]
    if "own" in kept:
        columns["own"] = kept["own"].tolist()
    return columns


def _text(text: object) -> str:
    return printable(str(text), LONGEST_NAME)
