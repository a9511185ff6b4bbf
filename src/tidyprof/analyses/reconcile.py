"""One run as several tools saw it: where they agree, and why they differ where they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidyprof.analyses.common import of_kind
from tidyprof.names.short_names import category, plain_name, short_name
from tidyprof.tables.contract import DEVICE_KINDS, Profile
from tidyprof.tables.launches import launching_calls

AGREEMENT = 0.01
"""Totals, numbers of calls and their ratios that differ by no more than this share count as
equal.
"""

LIKELY_SAME = 0.2
"""Kernels of different names with equal calls and totals this close are offered as perhaps the
same.
"""

RECONCILIATION_COLUMNS = {
    "short_name": "string",
    "category": "string",
    "calls_difference": "int64",
    "difference_ns": "int64",
    "reason": "string",
}
"""Columns of `reconcile`, with calls_<tool> and total_ns_<tool> for each tool after the second of
them.
"""

AGREE = "agree"
"""The reason in rows without a difference."""

_COPIES = ("copy", "fill")
_OVERHEAD = (
    "same calls, other durations: two separate runs, different clocks, or a tool that slows the"
    " device down"
)


@dataclass(frozen=True)
class _Tool:
    """What one tool recorded.

    totals -- index short name; calls, total_ns, kind, launch_ns (time of the calls that launched
              it; NA if unknown).
    """

    label: str
    totals: pd.DataFrame

    def names_of(self, kind: str) -> str:
        """The names of this kind with their calls, in words; empty if there are none."""
        own = self.totals[self.totals["kind"] == kind]
        return ", ".join(f"{name!r} ({calls} calls)" for name, calls in own["calls"].items())


def reconcile(profiles: Mapping[str, Profile] | Sequence[Profile]) -> pd.DataFrame:
    """One row per short name of a kernel, collective, copy or fill that any tool saw; largest total
    time first.

    profiles are recordings of one run, or of equal runs, by different tools: a mapping from a label
    to each, or a sequence, labelled by `meta["tool"]`. calls_<label> and total_ns_<label> are that
    tool's, <NA> if it has no such name. calls_difference and difference_ns are the largest minus
    the smallest of them, 0 standing for <NA>.

    reason is `agree` (all within AGREEMENT) or what likely explains the difference from the first
    tool that has the name. It is found by rules, in this order:
      same calls           same time, but a kernel for one tool and a copy for the other; or one
                           tool's time equals that of the launch calls on the host: it added up
                           those; else two separate runs, different clocks, or the overhead of a
                           tool
      more or fewer calls  the ratio is that of most other kernels: another window of the run, or
                           number of ranks; else lost events, or a filter
      missing name         the tool lists copies or fills under other names, as kernels or not at
                           all; or has a kernel with as many calls and similar time under another
                           name; or does not have it
    A reason is a lead to follow and no proof. Raises ValueError for fewer than two profiles.
    """
    tools = [_Tool(label, _totals(profile)) for label, profile in _labelled(profiles)]
    table = pd.DataFrame(
        index=pd.Index(sorted({name for tool in tools for name in tool.totals.index}), dtype="str")
    )
    for tool in tools:
        table[f"calls_{tool.label}"] = tool.totals["calls"].reindex(table.index).astype("Int64")
        table[f"total_ns_{tool.label}"] = (
            tool.totals["total_ns"].reindex(table.index).astype("Int64")
        )
    for column, prefix in (("calls_difference", "calls_"), ("difference_ns", "total_ns_")):
        values = table[[f"{prefix}{tool.label}" for tool in tools]].fillna(0)
        table[column] = values.max(axis=1) - values.min(axis=1)
    table["category"] = [_category(name, tools) for name in table.index]
    table["reason"] = _reasons(table.index, tools)
    largest = table[[f"total_ns_{tool.label}" for tool in tools]].max(axis=1)
    table = table.loc[largest.sort_values(ascending=False, kind="stable").index]
    return _finished(table.rename_axis("short_name").reset_index(), tools, profiles)


def _finished(
    table: pd.DataFrame, tools: list[_Tool], profiles: Mapping[str, Profile] | Sequence[Profile]
) -> pd.DataFrame:
    first, last = list(RECONCILIATION_COLUMNS)[:2], list(RECONCILIATION_COLUMNS)[2:]
    measured = [f"{value}_{tool.label}" for value in ("calls", "total_ns") for tool in tools]
    table = table[[*first, *measured, *last]].astype(RECONCILIATION_COLUMNS)
    origins = {label: str(profile.origin) for label, profile in _labelled(profiles)}
    distinct = list(dict.fromkeys(origins.values()))
    text = (
        distinct[0]
        if len(distinct) == 1
        else "; ".join(f"{label} {origin}" for label, origin in origins.items())
    )
    table.attrs = {"origin": text, "tools": [tool.label for tool in tools]}
    return table


def _labelled(profiles: Mapping[str, Profile] | Sequence[Profile]) -> list[tuple[str, Profile]]:
    if isinstance(profiles, Profile) or len(profiles) < 2:
        raise ValueError("reconcile compares tools: pass at least two profiles of the same run")
    if isinstance(profiles, Mapping):
        return list(profiles.items())
    labels: list[str] = []
    for profile in profiles:
        label = str(profile.meta.get("tool", "unnamed tool"))
        repeated = sum(known == label or known.startswith(f"{label} (") for known in labels)
        labels.append(f"{label} ({repeated + 1})" if repeated else label)
    return list(zip(labels, profiles, strict=True))


def _totals(profile: Profile) -> pd.DataFrame:
    events = of_kind(profile, DEVICE_KINDS)
    names = events["name"].astype("category").cat
    short = np.array([short_name(plain_name(str(name))) for name in names.categories], dtype=object)
    table = pd.DataFrame(
        {
            "name": short[names.codes] if len(short) else np.array([], dtype=object),
            "kind": events["kind"].astype(str).to_numpy(),
            "duration": events["duration_ns"].to_numpy(),
            "launch": _launch_durations(profile),
        }
    )
    grouped = table.groupby("name", sort=True)
    totals = grouped.agg(
        calls=("duration", "size"), total_ns=("duration", "sum"), kind=("kind", "first")
    )
    return totals.assign(
        launch_ns=grouped["launch"].agg(lambda values: values.sum(min_count=len(values)))
    )


def _launch_durations(profile: Profile) -> np.ndarray:
    """How long the call took on the host that launched each device event: float ns, NaN without a
    record.
    """
    launched, call = launching_calls(profile.events)
    durations = np.full(len(profile.events), np.nan)
    durations[launched] = profile.events["duration_ns"].to_numpy(np.int64)[call]
    return durations[profile.events["kind"].isin(DEVICE_KINDS).to_numpy()]


def _category(name: str, tools: list[_Tool]) -> str:
    kind = next(tool.totals.loc[name, "kind"] for tool in tools if name in tool.totals.index)
    return category(name, kind)


def _reasons(names: pd.Index, tools: list[_Tool]) -> list[str]:
    ratios = {(a.label, b.label): _usual_ratio(a, b) for a in tools for b in tools}
    found = []
    for name in names:
        reference = next(tool for tool in tools if name in tool.totals.index)
        reasons = [
            _reason(name, reference, other, ratios[reference.label, other.label])
            for other in tools
            if other is not reference
        ]
        differing = list(dict.fromkeys(reason for reason in reasons if reason != AGREE))
        found.append("; ".join(differing) or AGREE)
    return found


def _usual_ratio(reference: _Tool, other: _Tool) -> float:
    """Calls of `other` over those of `reference` for the median kernel that both have; NaN if there
    is none.
    """
    ratios = (other.totals["calls"] / reference.totals["calls"]).dropna()
    return float(ratios.median()) if len(ratios) else np.nan


def _reason(name: str, reference: _Tool, other: _Tool, usual_ratio: float) -> str:
    if name not in other.totals.index:
        return _missing(name, reference, other)
    ours, theirs = reference.totals.loc[name], other.totals.loc[name]
    if ours["calls"] == theirs["calls"]:
        if _close(ours["total_ns"], theirs["total_ns"], AGREEMENT):
            if ours["kind"] == theirs["kind"]:
                return AGREE
            return (
                f"{reference.label} counts it as {ours['kind']}, {other.label} as {theirs['kind']}"
            )
        return _summed_launches(reference.label, other.label, ours, theirs) or _OVERHEAD
    ratio = theirs["calls"] / ours["calls"]
    if not _close(usual_ratio, 1, AGREEMENT) and _close(ratio, usual_ratio, AGREEMENT):
        return (
            f"{other.label} has {_times(usual_ratio)} as many calls of most kernels as"
            f" {reference.label}: another window of the run, or another number of ranks"
        )
    more, fewer = (other, reference) if ratio > 1 else (reference, other)
    difference = abs(theirs["calls"] - ours["calls"])
    return (
        f"{fewer.label} has {difference} calls fewer than {more.label}: events lost or filtered"
        " out, or a cut window"
    )


def _summed_launches(reference: str, other: str, ours: pd.Series, theirs: pd.Series) -> str | None:
    """Whether one tool's time is the time of the calls that launched the kernels."""
    launch = ours["launch_ns"] if not pd.isna(ours["launch_ns"]) else theirs["launch_ns"]
    for label, own in ((reference, ours), (other, theirs)):
        if not pd.isna(launch) and _close(own["total_ns"], launch, AGREEMENT):
            return f"{label} adds up the launch calls on the host, not the time on the GPU"
    return None


def _missing(name: str, reference: _Tool, other: _Tool) -> str:
    kind = reference.totals.loc[name, "kind"]
    what = _transfer(name, kind)
    if what:
        elsewhere = other.names_of(what)
        if elsewhere:
            return (
                f"{reference.label} lists this {what} as {kind}, {other.label} has {_plural(what)}"
                f" as {elsewhere}"
            )
        return f"{other.label} does not list {_plural(what)}; {reference.label} has them as {kind}"
    if not (other.totals["kind"] == kind).any():
        return f"{other.label} recorded no {kind} at all"
    candidate = _candidate(name, reference, other)
    if candidate:
        return f"{other.label} perhaps calls it {candidate!r}, with as many calls and similar time"
    return f"not in {other.label}: another name there, filtered out, or outside its window"


def _transfer(name: str, kind: str) -> str | None:
    """`copy` or `fill`, also for the kernels with which the ROCm runtime does these; None for
    anything else.
    """
    if kind in _COPIES:
        return kind
    for what in _COPIES:
        if name.startswith(f"__amd_rocclr_{what}"):
            return what
    return None


def _candidate(name: str, reference: _Tool, other: _Tool) -> str | None:
    """The name under which the other tool may have this kernel: equal calls, similar time, unknown
    to us.
    """
    ours = reference.totals.loc[name]
    unmatched = other.totals[~other.totals.index.isin(reference.totals.index)]
    alike = unmatched[(unmatched["calls"] == ours["calls"]) & (unmatched["kind"] == ours["kind"])]
    distance = (alike["total_ns"] - ours["total_ns"]).abs()
    near = distance[distance <= LIKELY_SAME * ours["total_ns"]]
    return str(near.idxmin()) if len(near) else None


def _close(a: float, b: float, share: float) -> bool:
    return abs(a - b) <= share * max(abs(a), abs(b))


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times"


def _plural(what: str) -> str:
    return {"copy": "copies", "fill": "fills"}[what]
