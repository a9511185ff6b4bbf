"""Analyses of small profiles, against the tables in examples.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tidyprof import analyses
from tidyprof.tables.contract import (
    DEVICE_KINDS,
    EVENT_COLUMNS,
    EVENT_DTYPES,
    FURTHER_COLUMNS,
    Profile,
)
from tidyprof_tests.analyses.test_analyses import ORIGIN

EXAMPLES = tomllib.loads((Path(__file__).parent / "examples.toml").read_text("utf-8"))["examples"]
DTYPES = EVENT_COLUMNS | FURTHER_COLUMNS


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def profile_of(example: dict[str, Any]) -> Profile:
    rows = []
    for line in example["events"].splitlines():
        kind, name, start, end, *others = cells(line)
        place = {"device": 0, "stream": 0} if kind in DEVICE_KINDS else {"thread": 1}
        stated = dict(other.split("=", 1) for other in others)
        times = {"start_ns": int(start), "duration_ns": int(end) - int(start)}
        row = {"kind": kind, "name": name, "short_name": name, "rank": 0, "process": 1, **times}
        rows.append(row | place | {key: value or None for key, value in stated.items()})
    columns = dict.fromkeys([*EVENT_DTYPES, "launch_ns", *(key for row in rows for key in row)])
    events = pd.DataFrame(rows, columns=list(columns))
    for column in columns:
        is_number = DTYPES[column] != "category"
        values = pd.to_numeric(events[column]) if is_number else events[column]
        events[column] = values.astype(DTYPES[column])
    return Profile(events, meta={"origin": ORIGIN, **example.get("meta", {})})


def same(value: Any, expected: str) -> bool:
    if pd.isna(value) or not expected:
        return bool(pd.isna(value)) and not expected
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(expected) == pytest.approx(value) if is_number else str(value) == expected


CALLS = [
    pytest.param(example, call, id=f"{example['what']}: {call['analysis']}")
    for example in EXAMPLES
    for call in example["calls"]
]


@pytest.mark.parametrize(("example", "call"), CALLS)
def test_example(example: dict[str, Any], call: dict[str, Any]) -> None:
    analysis, options = getattr(analyses, call["analysis"]), call.get("options", {})
    profile = profile_of(example)
    if "error" in call:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            analysis(profile, **options)
        assert call["error"] in str(caught.value)
        return
    found = analysis(profile, **options)
    table = found.events if isinstance(found, Profile) else found
    for line in call["table"].splitlines():
        column, *expected = cells(line)
        values = table[column].tolist()
        assert len(values) == len(expected), column
        assert all(map(same, values, expected)), (column, values, expected)
    attrs = {name: str(table.attrs.get(name)) for name in call.get("attrs", {})}
    assert attrs == call.get("attrs", {})
