"""Cases of written files in a data file: what to write, and what a reader has to make of it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof import Profile


def cases(name: str) -> dict[str, dict[str, Any]]:
    """The cases in `samples/NAME_cases.toml`, by their names."""
    path = Path(__file__).parent / "samples" / f"{name}_cases.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def made(functions: dict[str, Callable[..., Any]], function: str, *arguments: Any) -> Any:
    """A part of a file: the result of the function. A table at the end has the named arguments."""
    given = list(arguments)
    options = given.pop() if given and isinstance(given[-1], dict) else {}
    return functions[function](*given, **options)


def check(profile: Profile, case: dict[str, Any], base_ns: int) -> None:
    """Compare a profile with a case. A case states columns of `events` and `counters`, or the
    `first` or `last` event, entries of `meta`, and a word of a `warning`. Missing values are empty.
    """
    events = profile.events
    tables = {"events": events, "counters": profile.counters}
    tables |= {"first": events.head(1), "last": events.tail(1)}
    for key, table in tables.items():
        for column, expected in case.get(key, {}).items():
            values = expected if isinstance(expected, list) else [expected]
            assert shown(table, column, base_ns) == [*map(str, values)], column
    for key, expected in case.get("meta", {}).items():
        assert profile.meta[key] == expected or str(profile.meta[key]) == expected
    assert case.get("warning", "") in " ".join(profile.meta["warnings"])


def shown(table: pd.DataFrame, column: str, base_ns: int) -> list[str]:
    """A column as a case states it. `start`, `end` and `launch` count from `base_ns`."""
    values = table["start_ns"] if column in ("start", "end") else table.get(column)
    if column == "end":
        values = values + table["duration_ns"]
    if column == "launch":
        values = table["launch_ns"]
    if values is None:
        return [""] * len(table)
    shift = base_ns if column in ("start", "end", "launch") else 0
    return ["" if pd.isna(one) else str(one - shift if shift else one) for one in values]
