"""The viewer that opens from a figure in a browser: zoom, pan, and event names.

It is one script (viewer.js) without libraries. It reads the JSON data next to it, which contains
columns of integers and each text only once. Without the script, the figure is shown alone, as on
paper.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.escaping import printable
from tidyprof.tables.codes import ABSENT

LIMIT_BYTES = 400_000
"""Size limit of a figure's data. Above it, only the longest events are kept, and the viewer shows
how many were left out.
"""

MAX_EVENTS = 24_000
"""Number of events that fit into `LIMIT_BYTES`, at about 15 bytes each."""

LONGEST_NAME = 400
"""Maximum number of characters in a name. The middle of a longer name is left out."""

MAX_BANDS = 2_000
"""Maximum number of phases that are shaded behind a curve."""

_TEXTS = ("operator", "part")
"""Columns whose texts are shared by many events and may be empty."""


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
    """Return the viewer's data for events, functions or blocks, as JSON that is safe in HTML.

    table  -- one row per item: row (index of its lane), start and length (integers, relative to the
              start of the figure), name, `whole_name`, look (index in `looks`). Optional columns:
              operator and part (texts), launched (time from launch to start, `ABSENT` if no launch
              is known), and own (the part of its length that no inner box covers).
    span   -- length of the whole.
    lanes  -- lane names, "" for no name.
    totals -- number of events per lane, if the table contains only the longest events.
    words  -- additional members of the JSON: things, axis, unit, deep, share.
    """
    row, start = table["row"].to_numpy(), table["start"].to_numpy()
    order = longest_of_each(table["length"].to_numpy(), row, len(table))
    totals = np.bincount(row, minlength=len(lanes)).tolist() if totals is None else totals

    def encoded(kept: int) -> dict[str, Any]:
        chosen = order[:kept]
        return {
            **_columns(table.iloc[chosen[np.lexsort((start[chosen], row[chosen]))]]),
            "lanes": [
                _lane(lane, *counts)
                for lane, *counts in zip(
                    lanes, np.bincount(row[chosen], minlength=len(lanes)), totals, strict=True
                )
            ],
        }

    fixed = {
        "kind": "boxes",
        "span": int(span),
        **_facts(origin, title, [(name, *look) for name, look in looks.items()]),
        **words,
    }
    return _bounded(fixed, encoded, len(table), sum(totals))


def longest_of_each(lengths: np.ndarray, row: np.ndarray, most: int = MAX_EVENTS) -> np.ndarray:
    """Return the positions of the `most` events to keep.

    They are the longest events of each row: an equal number per row, or all events of a row that
    has fewer.
    """
    # Sorting by the rank within the row takes the longest event of every row, then the second
    # longest of every row, and so on.
    order = np.lexsort((-lengths, row))
    first = np.flatnonzero(np.diff(row[order], prepend=-1))
    within = np.arange(len(row)) - np.repeat(first, np.diff(first, append=len(row)))
    return order[np.lexsort((-lengths[order], within))][:most]


def _lane(label: str, shown: int, total: int) -> str:
    if shown == total or not label:
        return _text(label)
    return f"{_text(label)}: the longest {shown:,} of {total:,}"


def curve(
    table: pd.DataFrame,
    bands: Sequence[tuple[str, int, int, str]],
    looks: Sequence[tuple[str, str, str]],
    *,
    origin: str,
    title: str | None,
    axis: str,
) -> str:
    """Return the viewer's data for a stepped memory curve.

    table -- the changes in order, with look, value (bytes) and `time_ns`.
    bands -- name, number of the first change, number after the last change, and color.

    If there are too many changes, the largest are kept. If there are too many bands, the longest
    are kept.
    """
    value = table["value"].to_numpy(np.int64)
    look = table["look"].to_numpy()
    jump = np.abs(_differences(value, look))
    order = np.argsort(-jump, kind="stable")

    def encoded(kept: int) -> dict[str, Any]:
        chosen = np.sort(order[:kept])
        return {
            "start": _deltas(chosen),
            "look": look[chosen].tolist(),
            "value": _differences(value[chosen], look[chosen]).tolist(),
            "time": _deltas(table["time_ns"].to_numpy()[chosen] - table["time_ns"].iloc[0]),
        }

    if len(bands) > MAX_BANDS:
        axis += f"; only the longest {MAX_BANDS:,} of {len(bands):,} phases are shaded"
        bands = sorted(bands, key=lambda band: band[1] - band[2])[:MAX_BANDS]
    fixed = {
        "kind": "curve",
        "unit": "bytes",
        "span": len(table),
        "bands": [(_text(name), *rest) for name, *rest in bands],
        "axis": axis,
        "things": "changes",
        **_facts(origin, title, looks),
    }
    return _bounded(fixed, encoded, len(table), len(table))


def panel(data: str) -> str:
    """Return an HTML element with a figure's data. The script builds the viewer in it."""
    return (
        f'<div class="tidy-viewer"><script type="application/json">{data}</script></div>'
        if data
        else ""
    )


@cache
def script() -> str:
    """Return the element with the script, which must come after the panels."""
    source = resources.files("tidyprof").joinpath("plots/viewer.js").read_text(encoding="utf-8")
    return f"<script>{source}</script>"


def _facts(
    origin: str, title: str | None, looks: Sequence[tuple[str, str, str]]
) -> dict[str, object]:
    return {"origin": _text(origin), "title": _text(title or ""), "looks": looks}


def _columns(kept: pd.DataFrame) -> dict[str, object]:
    # Give each pair of short and whole name one number, so that each pair is written once.
    short, shorts = pd.factorize(kept["name"])
    long, longs = pd.factorize(kept["whole_name"])
    names, pairs = pd.factorize(short * len(longs) + long)
    columns: dict[str, object] = {
        "start": _deltas(kept["start"].to_numpy()),
        "length": kept["length"].tolist(),
        "row": _runs(kept["row"].to_numpy()),
        "look": _runs(kept["look"].to_numpy()),
        "name": _runs(names),
        "names": [_names(shorts[pair // len(longs)], longs[pair % len(longs)]) for pair in pairs],
    }
    for column in _TEXTS:
        if column not in kept:
            continue
        codes, texts = pd.factorize(kept[column].fillna(""))
        if any(texts):
            columns |= {column: _runs(codes), f"{column}s": [_text(text) for text in texts]}
    if "launched" in kept:
        known = (kept["launched"] != ABSENT).to_numpy()
        columns |= {"known": _runs(known * 1), "launched": kept["launched"][known].tolist()}
    if "own" in kept:
        columns["own"] = kept["own"].tolist()
    return columns


def _names(short: str, long: str) -> tuple[str, str]:
    """Return a name as it is drawn, and the whole name, or "" if both are the same."""
    return _text(short), "" if long == short else _text(long)


def _bounded(
    fixed: Mapping[str, object],
    encoded: Callable[[int], dict[str, Any]],
    count: int,
    total: int,
) -> str:
    """Return JSON with as many of `count` rows as fit into `LIMIT_BYTES`.

    `encoded(n)` returns the columns of the n most important rows.
    """
    kept = min(count, MAX_EVENTS)
    while True:
        text = _in_html({**fixed, "left": total - kept, **encoded(kept)})
        if len(text) <= LIMIT_BYTES or not kept:
            return text
        # The rows differ in size, so 5% fewer rows save additional attempts.
        kept = int(0.95 * kept * LIMIT_BYTES / len(text))


def _in_html(data: object) -> str:
    """Return JSON in ASCII without characters that would start or end an HTML element."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(text: object) -> str:
    return printable(str(text), LONGEST_NAME)


def _runs(values: np.ndarray) -> list[int] | dict[str, list[int]]:
    """Return a column unchanged, or as runs (value, count, value, ...) if that is shorter."""
    first = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    if 2 * len(first) > len(values):
        return values.tolist()
    counts = np.diff(first, append=len(values))
    return {"runs": np.column_stack((values[first], counts)).ravel().tolist()}


def _deltas(values: np.ndarray) -> list[int]:
    return np.diff(values, prepend=0).tolist()


def _differences(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return each value minus the previous value of its group. The first value of a group is
    unchanged.
    """
    return values - pd.Series(values).groupby(group).shift(fill_value=0).to_numpy()
