"""The commands. Each command reads its files, shows a table, and can write the table to a file."""

from __future__ import annotations

import itertools
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from tidyprof.analyses.budget import budget_parts, link_warnings, part_words, step_budget
from tidyprof.analyses.busy import busy
from tidyprof.analyses.common import start_and_end
from tidyprof.analyses.comparison import compare
from tidyprof.analyses.kernels import kernels, stated_kernels
from tidyprof.analyses.operators import operators
from tidyprof.analyses.steps import steps
from tidyprof.cli.gate import gate
from tidyprof.cli.hang import hang
from tidyprof.cli.isa import isa
from tidyprof.cli.output import (
    FORMATS,
    MUTED_STYLE,
    cells_of,
    check_targets,
    export,
    on_terminal,
    say,
    show,
    show_facts,
    showing,
    warn,
)
from tidyprof.cli.triage import triage
from tidyprof.errors import UserError
from tidyprof.package_data import table_of
from tidyprof.readers.registry import read
from tidyprof.tables.contract import ORDER, Profile
from tidyprof.tables.profiles import warning_lines

TOP_IN_TERMINAL = 20
"""The default number of table rows on a terminal. Pipes and files receive all rows."""

TOP_IN_SUMMARY = 5
"""The maximum number of kernels or operators in a summary."""

_UNMARKED = (
    "none are marked. Pass --step-marker NAME to `table steps`, with a range or an operator that"
    " runs once per step"
)
_TABLES = table_of("cli/tables.toml")
_META: dict[str, str] = _TABLES["facts"]
"""The metadata in a summary, and the label of each value."""

Facts = list[tuple[str, str]]


def _table(options: Namespace) -> None:
    """Show a table of one file, or one table of two files, and export it."""
    check_targets(options)
    profiles = [read(path) for path in options.files]
    try:
        table = TABLES[options.table](options, *profiles)
    except ValueError as error:
        raise UserError(f"{', '.join(options.files)}: {error}") from None
    with showing(options):
        lines = [warning_lines(one.meta) + link_warnings(one) for one in profiles]
        for warning in dict.fromkeys(itertools.chain(*lines)):
            warn(warning)
        _show_table(table, options, profiles)
        say(f"origin: {table.attrs['origin']}", MUTED_STYLE)
    export(table, options)


def _show_table(table: pd.DataFrame, options: Namespace, profiles: Sequence[Profile]) -> None:
    """Show the columns in HEADINGS, or a sentence about an empty table."""
    name = options.table
    notes: list[str] = []
    if name == "compare":
        table, notes = _of_a_step(table, profiles, options.files)
    if name == "steps":
        notes = [f"steps: {table.attrs['steps'] if table.attrs['mark'] else _UNMARKED}"]
        notes.append(f"clock: the {options.timeline}")
    if not len(table):
        say(_only_sums(profiles[0]) or f"This profile contains no {name}.")
        table = stated_kernels(profiles[0]) if name == "kernels" else table
    shown = _top(table, vars(options).get("top", 0))
    parts = [part for part in budget_parts(table) if table[f"{part}_ns"].any()]
    headings = HEADINGS[name] | {f"{part_words(part)} ms": f"{part}_ns" for part in parts}
    if len(shown):
        show(cells_of(shown, _known(headings, shown)))
    if len(shown) < len(table):
        say(f"and {len(table) - len(shown)} more. --top 0 shows all.")
    for note in notes:
        say(note, MUTED_STYLE)


def _known(headings: dict[str, str], table: pd.DataFrame) -> dict[str, str]:
    """Return the headings of columns that the table has and that aren't empty."""
    return {
        heading: column
        for heading, column in headings.items()
        if column in table and table[column].notna().any()
    }


HEADINGS: dict[str, dict[str, str]] = _TABLES["headings"]
"""The headings of each table and their columns. The table `steps` also shows the parts of a step.
"""


def _of_a_step(
    table: pd.DataFrame, profiles: Sequence[Profile], paths: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Return a comparison per step, and notes on the totals. If a profile has no marked steps, the
    values remain totals of the whole profiles.
    """
    steps = [len(_marked(path, one)) for path, one in zip(paths, profiles, strict=True)]
    each = " per step" if all(steps) else ", of whole profiles"
    table = table.copy()
    for side, number in zip(("before", "after"), steps if all(steps) else (1, 1), strict=True):
        columns = [f"calls_{side}", f"total_ns_{side}"]
        table[columns] = table[columns] / number
    table["difference_ns"] = table["total_ns_after"] - table["total_ns_before"]
    table = table.sort_values("difference_ns", key=abs, ascending=False, kind="stable")
    before, after = table[["total_ns_before", "total_ns_after"]].sum()
    percent = f" ({100 * (after / before - 1):+.1f}%)" if before else ""
    sums = f"{FORMATS['ms'](before)} ms before and {FORMATS['ms'](after)} ms after"
    return table, [
        f"sum{each}: {sums}{percent}",
        f"steps: {steps[0]} before, {steps[1]} after",
    ]


def _top(table: pd.DataFrame, top: int | None) -> pd.DataFrame:
    """Return the rows to show."""
    wanted = (TOP_IN_TERMINAL if on_terminal() else 0) if top is None else top
    return table.head(wanted or sys.maxsize)


def _only_sums(profile: Profile) -> str:
    """Return a sentence about a profile that has statistics but no single events, or ""."""
    stats = profile.meta.get("stats", {})
    if not stats or (len(profile.events) and "kernel" not in stats):
        return ""
    return f"The file contains only totals by name of: {', '.join(stats)} (meta['stats'])."


def _summary(options: Namespace) -> None:
    for number, path in enumerate(options.files):
        profile = read(path)
        marked = _marked(path, profile, options.step_marker)
        if number:
            say("")
        say(path, "bold")
        show_facts(_summary_facts(profile, marked))
        for headings, table in _summary_tables(profile):
            say("")
            show(cells_of(table, _known(headings, table)))


def _marked(path: str, profile: Profile, mark: str | None = None) -> pd.DataFrame:
    try:
        return steps(profile, mark=mark)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def _summary_facts(profile: Profile, marked: pd.DataFrame) -> Facts:
    meta = profile.meta
    facts = [(label, str(meta[key])) for key, label in _META.items() if key in meta]
    if meta.get("backend") == "cpu":
        facts.append(("GPU", "none found"))
    facts += [*_events(profile), ("steps", _steps_fact(marked)), ("origin", str(profile.origin))]
    for repair, count in meta.get("repairs", {}).items():
        facts.append(("repaired", f"{repair}: {count:,}"))
    return facts + [("warning", warning) for warning in warning_lines(meta)]


def _events(profile: Profile) -> Facts:
    if not len(profile.events):
        return [("events", _only_sums(profile) or "none")]
    kinds = profile.events["kind"].astype(str).value_counts()
    listed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    start, end = start_and_end(profile.events)
    span = f"{FORMATS['ms'](end.max() - start.min())} ms from the first to the last event"
    if profile.meta.get("times") == ORDER:
        span = "unknown, because the events have an order but no times"
    return [("events", f"{len(profile.events):,}: {listed}"), ("span", span)]


def _steps_fact(marked: pd.DataFrame) -> str:
    if not len(marked):
        return _UNMARKED
    median = FORMATS["ms"](marked["duration_ns"].median())
    numbers = f"{marked['step'].min()} to {marked['step'].max()}"
    return f"{numbers}, {median} ms each (median, on the host), {marked.attrs['steps']}"


def _summary_tables(profile: Profile) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """Yield the busy time of each device and the largest kernels. Without kernels, yield the
    largest operators, totals of the tool, or samples of a monitor.
    """
    if len(occupancy := busy(profile)):
        yield HEADINGS["busy"], occupancy
    found = kernels(profile)
    if not len(found):
        found = operators(profile).rename(columns={"name": "operator"})
    if not len(found):
        found = stated_kernels(profile)
    if len(found):
        yield HEADINGS["kernels"], found.head(TOP_IN_SUMMARY)
    elif len(profile.counters):
        keys = ["name", "unit", "device"]
        samples = profile.counters.groupby(keys, observed=True, dropna=False)
        table = samples["value"].agg(["size", "min", "mean", "max"]).reset_index()
        yield HEADINGS["samples"], table


TABLES: dict[str, Callable[..., pd.DataFrame]] = {
    "kernels": lambda _, profile: kernels(profile),
    "busy": lambda _, profile: busy(profile),
    "steps": lambda options, profile: step_budget(profile, options.timeline, options.step_marker),
    "compare": lambda _, before, after: compare(before, after),
}
"""A mapping from the name of a table to the function that returns it."""

COMMANDS: dict[str, Callable[[Namespace], int | None]] = {
    "summary": _summary,
    "table": _table,
    "gate": gate,
    "triage": triage,
    "hang": hang,
    "isa": isa,
}
"""A mapping from each command to its function, which returns an exit code, or None for success."""
