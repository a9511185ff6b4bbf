"""The viewer that opens from a figure in a browser: zoom, pan, and the name of each event.

It is one script (viewer.js) without a library, which reads JSON beside it: columns of whole
numbers, and each text once. Without it the picture stands alone, as it does on paper.
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
"""Limit for a figure's data. Beyond it only the longest events are kept, and the viewer states how
many were left out.
"""

MAX_EVENTS = 24_000
"""Events that fit into LIMIT_BYTES, at some 15 bytes each."""

LONGEST_NAME = 400
"""Characters of a name; the middle of a longer name is left out."""

MAX_BANDS = 2_000
"""Phases that are shaded behind a curve."""

_TEXTS = ("operator", "part")
"""Columns that share their texts among many events, and may be empty."""


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
    """The viewer's data for events, functions or blocks, as JSON that can stand in HTML.

    table  -- a row for each of them: row (index of its lane), start and length (whole numbers, from
              the beginning of the figure), name, whole_name, look (index in `looks`); perhaps
              operator and part (texts), launched (time from its launch to its start; ABSENT where
              no launch is known) and own (the part of its length that no box within it covers).
    span   -- length of the whole; lanes -- their names, "" for none.
    totals -- how many events each lane has, if the table holds only the longest of them.
    words  -- further members of the JSON: things, axis, unit, deep, share.
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
    """Positions of the `most` events that are kept: the longest of each row, an equal number of
    each, or all that a row has.
    """
    # Sorted by rank within the row first, the events come in turns: the longest of every row, then
    # the second longest of every row, and so on.
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
    """The viewer's data for a stepped curve of memory.

    table -- the changes in their order, with look, value (bytes) and time_ns.
    bands -- name, number of the first change, number after that of the last, and color.

    Of too many changes the largest are kept, of too many bands the longest.
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
        axis += f"; shaded are the longest {MAX_BANDS:,} of {len(bands):,} phases"
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
    """An HTML element with the data of a figure; the script builds the viewer in it."""
    return (
        f'<div class="tidy-viewer"><script type="application/json">{data}</script></div>'
        if data
        else ""
    )


@cache
def script() -> str:
    """The element with the script, which has to stand behind the panels."""
    source = resources.files("tidyprof").joinpath("plots/viewer.js").read_text(encoding="utf-8")
    return f"<script>{source}</script>"


def _facts(
    origin: str, title: str | None, looks: Sequence[tuple[str, str, str]]
) -> dict[str, object]:
    return {"origin": _text(origin), "title": _text(title or ""), "looks": looks}


def _columns(kept: pd.DataFrame) -> dict[str, object]:
    # One number for each pair of short and whole name, so that each pair is written once.
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
    """A name as it is drawn, and the whole name, or "" if both are the same."""
    return _text(short), "" if long == short else _text(long)


def _bounded(
    fixed: Mapping[str, object],
    encoded: Callable[[int], dict[str, Any]],
    count: int,
    total: int,
) -> str:
    """JSON of as many of `count` rows as fit into LIMIT_BYTES; `encoded(n)` returns the columns of
    the n rows that matter most.
    """
    kept = min(count, MAX_EVENTS)
    while True:
        text = _in_html({**fixed, "left": total - kept, **encoded(kept)})
        if len(text) <= LIMIT_BYTES or not kept:
            return text
        # Bytes are not spread evenly over the rows: 5 % fewer rows save further tries.
        kept = int(0.95 * kept * LIMIT_BYTES / len(text))


def _in_html(data: object) -> str:
    """JSON in ASCII without characters that would end an element or begin one."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(text: object) -> str:
    return printable(str(text), LONGEST_NAME)


def _runs(values: np.ndarray) -> list[int] | dict[str, list[int]]:
    """A column as it is, or as runs (value, how often, value, ...) where these are fewer."""
    first = np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
    if 2 * len(first) > len(values):
        return values.tolist()
    counts = np.diff(first, append=len(values))
    return {"runs": np.column_stack((values[first], counts)).ravel().tolist()}


def _deltas(values: np.ndarray) -> list[int]:
    return np.diff(values, prepend=0).tolist()


def _differences(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Each value less the value before it in its group; the first of a group stays as it is."""
    return values - pd.Series(values).groupby(group).shift(fill_value=0).to_numpy()
