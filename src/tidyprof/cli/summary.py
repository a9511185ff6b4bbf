"""The command `summary`: everything to know about a recording before looking closer."""

from __future__ import annotations

import pandas as pd

from tidyprof.analyses.common import result, start_and_end
from tidyprof.analyses.kernels import kernels
from tidyprof.analyses.operators import operators
from tidyprof.analyses.ranks import ranks
from tidyprof.cli.tables import (
    Column,
    counts,
    microseconds,
    milliseconds,
    numbers,
    percentages,
    say,
    show,
    show_facts,
)
from tidyprof.tables.contract import Profile

TOP = 5
"""Kernels or operators in a summary."""

SUMMARY_COLUMNS = {
    "tool": "string",
    "tool_version": "string",
    "gpu": "string",
    "rocm": "string",
    "torch": "string",
    "rank": "Int32",
    "device": "Int32",
    "span_ns": "Int64",
    "union_ns": "Int64",
    "sum_ns": "Int64",
    "union_percent": "Float64",
    "sum_percent": "Float64",
    "streams": "Int64",
    "events": "Int64",
    "steps": "int64",
    "median_step_ns": "Float64",
}
"""Columns of the exported summary: one row per device, or one per recording without any."""

_STATED = ("tool", "tool_version", "gpu", "rocm", "torch")
_MOST_DEVICES = 8
_EXTREMES = ("lowest", "mean", "highest")

Facts = list[tuple[str, str]]


def show_summary(path: str, profile: Profile, occupancy: pd.DataFrame, marked: pd.DataFrame) -> None:
    """Print the summary of a recording. occupancy, marked -- its tables of `busy` and `steps`."""
    facts = [*_source(profile), *_events(profile), *_busy(occupancy), ("steps", _steps(marked))]
    if profile.events["rank"].nunique() > 1:
        facts.append(("waiting", ranks(profile).attrs["evidence"]))
    facts.append(("origin", str(profile.origin)))
    facts += [("repaired", f"{repair}: {count:,}") for repair, count in profile.meta.get("repairs", {}).items()]
    facts += [("warning", warning) for warning in profile.meta.get("warnings", [])]
    say(path, "bold")
    show_facts(facts)
    _show_top(profile)


def _source(profile: Profile) -> Facts:
    meta = profile.meta
    versions = {"ROCm": meta.get("rocm"), "HIP": meta.get("hip_runtime_version"), "torch": meta.get("torch")}
    facts = [
        ("tool", " ".join(str(meta[key]) for key in ("tool", "tool_version") if key in meta)),
        ("GPU", str(meta.get("gpu", ""))),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items() if version)),
    ]
    facts = [(label, text or "not stated") for label, text in facts]
    own = meta.get("ranks", [meta["rank"]] if "rank" in meta else [])
    if own:
        of = f" of {meta['world_size']}" if "world_size" in meta else ""
        facts.append(("rank" if len(own) == 1 else "ranks", f"{', '.join(map(str, own))}{of}"))
    return facts


def _events(profile: Profile) -> Facts:
    if not len(profile.events):
        return [("events", "none")]
    kinds = profile.events["kind"].astype(str).value_counts()
    listed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    start, end = start_and_end(profile.events)
    return [
        ("events", f"{len(profile.events):,}: {listed}"),
        ("span", f"{_duration(end.max() - start.min())} from the first to the last event"),
    ]


def _busy(occupancy: pd.DataFrame) -> Facts:
    if not len(occupancy):
        return [("busy", "there is no event on a device")]
    if len(occupancy) > _MOST_DEVICES:
        share = occupancy["union_percent"]
        return [("busy", f"{len(occupancy)} devices, between {share.min():.1f} and {share.max():.1f} % of the time")]
    facts = []
    for row in occupancy.itertuples():
        places = (("rank", row.rank), ("device", row.device))
        place = ", ".join(f"{word} {value}" for word, value in places if not pd.isna(value))
        text = (
            f"{row.union_percent:.1f} %, {_duration(row.union_ns)} of {_duration(row.span_ns)} "
            f"(durations add up to {_duration(row.sum_ns)})"
        )
        facts.append(("busy", f"{place}: {text}" if place else text))
    return facts


def _steps(marked: pd.DataFrame) -> str:
    if not len(marked):
        return "none marked"
    first, last = marked["step"].min(), marked["step"].max()
    numbers = f"step {first}" if first == last else f"steps {first} to {last}"
    return f"{numbers}, {_duration(marked['duration_ns'].median())} each (median, on the host)"


def _show_top(profile: Profile) -> None:
    found, column, what = kernels(profile), "total_ns", "kernel"
    if not len(found):
        found, column, what = operators(profile), "self_ns", "operator"
    if not len(found):
        _show_counters(profile.counters)
        return
    shown = found.head(TOP)
    say("")
    show(
        [
            Column(what, shown["short_name" if what == "kernel" else "name"].tolist(), is_text=True),
            Column("calls", counts(shown["calls"])),
            Column("total ms" if what == "kernel" else "self ms", milliseconds(shown[column])),
            Column("%", percentages(shown["percent"])),
        ]
    )


def _show_counters(counters: pd.DataFrame) -> None:
    """What a monitor sampled, over all devices."""
    if not len(counters):
        return
    grouped = counters.groupby(["name", "unit"], observed=True, dropna=False)["value"]
    found = grouped.agg(samples="size", lowest="min", mean="mean", highest="max").reset_index()
    unit = Column("unit", numbers(found["unit"], str), is_text=True)
    say("")
    show(
        [
            Column("sampled", found["name"].astype(str).tolist(), is_text=True),
            *([unit] if any(unit.values) else []),
            Column("samples", counts(found["samples"])),
            *(Column(name, numbers(found[name], lambda value: f"{value:,.4g}")) for name in _EXTREMES),
        ]
    )


def _duration(nanoseconds: float) -> str:
    """A duration in milliseconds, a short one in microseconds."""
    if abs(nanoseconds) < 1e6:
        return f"{microseconds([nanoseconds])[0]} µs"
    return f"{milliseconds([nanoseconds])[0]} ms"


def summary_table(profile: Profile, occupancy: pd.DataFrame, marked: pd.DataFrame) -> pd.DataFrame:
    """The summary of a recording as a table with SUMMARY_COLUMNS. occupancy, marked -- as for `show_summary`."""
    rows = occupancy if len(occupancy) else pd.DataFrame([{}])
    stated = {key: str(profile.meta[key]) if key in profile.meta else pd.NA for key in _STATED}
    table = rows.assign(
        **stated,
        steps=marked["step"].nunique(),
        median_step_ns=marked["duration_ns"].median() if len(marked) else pd.NA,
    )
    return result(table.reindex(columns=list(SUMMARY_COLUMNS)), SUMMARY_COLUMNS, profile)
