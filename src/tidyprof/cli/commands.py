"""The commands: each reads its files, shows a table and writes it if asked to."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

import pandas as pd

from tidyprof.analyses.budget import parts_of, step_budget
from tidyprof.analyses.busy import busy
from tidyprof.analyses.comparison import compare
from tidyprof.analyses.kernels import kernels
from tidyprof.analyses.steps import steps
from tidyprof.cli.export import export, of_file, with_origin
from tidyprof.cli.main import TOP_IN_TERMINAL, UsageError
from tidyprof.cli.output import showing
from tidyprof.cli.summary import show_summary, summary_table
from tidyprof.cli.tables import (
    Column,
    counts,
    microseconds,
    milliseconds,
    numbers,
    on_terminal,
    percentages,
    say,
    show,
    warn,
)
from tidyprof.cli.targets import cannot_write, check_targets, read_to_write
from tidyprof.export.chrome_trace import check_name, write_chrome_trace
from tidyprof.tables.contract import Profile

_PART_HEADINGS = {
    "exposed_communication": "comm. %",
    "exposed_copy": "copy %",
    "launch_bound": "launch %",
    "data_wait": "data %",
}


def _each_file(options: Namespace, analyse: Callable[[Profile], pd.DataFrame], display: Callable) -> None:
    """Show a table per file, and write them as one."""
    check_targets(options)
    tables = []
    for path in options.files:
        profile = read_to_write(path, options)
        try:
            table = analyse(profile)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        with showing(options):
            if len(options.files) > 1:
                say(f"{path}:", "bold")
            for warning in profile.meta.get("warnings", []):
                warn(warning)
            display(table)
            say(f"origin: {profile.origin}", "dim")
        tables.append(of_file(table, path))
    export(tables, options)


def _summary(options: Namespace) -> None:
    check_targets(options)
    tables = []
    for number, path in enumerate(options.files):
        profile = read_to_write(path, options)
        occupancy, marked = busy(profile), steps(profile)
        with showing(options):
            if number:
                say("")
            show_summary(path, profile, occupancy, marked)
        tables.append(of_file(summary_table(profile, occupancy, marked), path))
    export(tables, options)


def _kernels(options: Namespace) -> None:
    _each_file(
        options,
        lambda profile: kernels(profile, per_device=options.per_device),
        lambda table: _show_kernels(table, options.top),
    )


def _show_kernels(table: pd.DataFrame, top: int | None) -> None:
    if not len(table):
        say("There are no kernels in this recording.")
        return
    shown = _top(table, top)
    show(
        [
            *place_columns(shown),
            Column("kernel", shown["short_name"].tolist(), is_text=True),
            Column("calls", counts(shown["calls"])),
            Column("total ms", milliseconds(shown["total_ns"])),
            Column("mean µs", microseconds(shown["mean_ns"])),
            Column("%", percentages(shown["percent"])),
        ]
    )
    rest = table.iloc[len(shown) :]
    if len(rest):
        say(f"and {len(rest)} more with {milliseconds([rest['total_ns'].sum()])[0]} ms; --top 0 shows all")


def _top(table: pd.DataFrame, top: int | None) -> pd.DataFrame:
    wanted = (TOP_IN_TERMINAL if on_terminal() else 0) if top is None else top
    return table.head(wanted) if wanted else table


def place_columns(table: pd.DataFrame) -> list[Column]:
    """Rank, process and device, as far as the table has them and they are known."""
    return [
        Column(name, numbers(table[name], str))
        for name in ("rank", "process", "device")
        if name in table and table[name].notna().any()
    ]


def _busy(options: Namespace) -> None:
    _each_file(options, busy, _show_busy)


def _show_busy(table: pd.DataFrame) -> None:
    if not len(table):
        say("There is no event on a device in this recording.")
        return
    show(
        [
            *place_columns(table),
            Column("span ms", milliseconds(table["span_ns"])),
            Column("busy ms", milliseconds(table["union_ns"])),
            Column("busy %", percentages(table["union_percent"])),
            Column("sum ms", milliseconds(table["sum_ns"])),
            Column("sum %", percentages(table["sum_percent"])),
            Column("events", counts(table["events"])),
        ]
    )


def _steps(options: Namespace) -> None:
    def analyse(profile: Profile) -> pd.DataFrame:
        try:
            return step_budget(profile, options.timeline)
        except ValueError as error:
            cure = "" if options.timeline == "host" else "; use --timeline host"
            raise UsageError(f"{error}{cure}") from None

    _each_file(options, analyse, lambda table: _show_steps(table, options.timeline))


def _show_steps(table: pd.DataFrame, timeline: str) -> None:
    if not len(table):
        if timeline == "host":
            say("There are no events in this recording.")
        else:
            say("No steps are marked in this recording; with --timeline host all of it counts as one.")
        return
    parts = [part for part in parts_of(table) if table[f"{part}_ns"].any()]
    total = table["duration_ns"]
    show(
        [
            *place_columns(table),
            Column("step", ["all" if pd.isna(step) else str(step) for step in table["step"]]),
            Column("time ms", milliseconds(total)),
            *(
                Column(_PART_HEADINGS.get(part, f"{part} %"), percentages(100 * table[f"{part}_ns"] / total))
                for part in parts
            ),
        ]
    )


def _compare(options: Namespace) -> None:
    check_targets(options)
    profiles = [read_to_write(path, options) for path in options.files]
    for profile in profiles:
        for warning in profile.meta.get("warnings", []):
            warn(warning)
    table = compare(*profiles)
    with showing(options):
        _show_comparison(table, options.top)
    export([with_origin(table)], options)


def _show_comparison(table: pd.DataFrame, top: int | None) -> None:
    shown = _top(table, top)
    if len(table):
        show(
            [
                Column("kernel", shown["short_name"].tolist(), is_text=True),
                Column("calls before", counts(shown["calls_before"])),
                Column("calls after", counts(shown["calls_after"])),
                Column("ms before", milliseconds(shown["total_ns_before"])),
                Column("ms after", milliseconds(shown["total_ns_after"])),
                Column("ms change", numbers(shown["difference_ns"], lambda value: f"{value / 1e6:+,.3f}")),
            ]
        )
    totals = [milliseconds([table[f"total_ns_{side}"].sum()])[0] for side in ("before", "after")]
    say(f"{len(table)} kernels, {totals[0]} ms before and {totals[1]} ms after")
    say(f"origin: {table.attrs['origin']}", "dim")


def _convert(options: Namespace) -> None:
    check_targets(options)
    try:
        check_name(options.target)
    except ValueError as error:
        raise UsageError(str(error)) from None
    (source,) = options.files
    profile = read_to_write(source, options)
    try:
        written = write_chrome_trace(profile, options.target)
    except OSError as error:
        raise cannot_write("OUT", options.target, error) from None
    say(
        f"{options.target}: {written.events:,} events, {written.flows:,} arrows from launches to their work, "
        f"{written.samples:,} counter samples. Open it with https://ui.perfetto.dev"
    )


COMMANDS: dict[str, Callable[[Namespace], None]] = {
    "summary": _summary,
    "kernels": _kernels,
    "busy": _busy,
    "steps": _steps,
    "compare": _compare,
    "convert": _convert,
}
"""Command -> what runs it."""
