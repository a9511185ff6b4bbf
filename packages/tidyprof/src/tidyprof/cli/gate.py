"""The command `gate`: takes two sides, shows and writes a verdict, and exits with 1 if the gate
closes.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import starmap
from pathlib import Path

import pandas as pd

from tidyprof.cli.output import (
    FORMATS,
    MUTED_STYLE,
    Column,
    check_targets,
    columns_of,
    origin_of,
    say,
    show,
    showing,
    texts,
    write_report,
)
from tidyprof.errors import UserError, one_line
from tidyprof.gate.reports import (
    as_json,
    footnote,
    headline,
    junit,
    markdown,
    moved_kernels,
    moved_parts,
)
from tidyprof.gate.runs import RunTimes, copies_among, repeats_in, run_times
from tidyprof.gate.verdict import Verdict, judge
from tidyprof.running.report import read_run
from tidyprof.tables.contract import NOT_STATED

REPORTS = {"json": as_json, "junit": junit, "markdown": markdown}
"""Option that takes a file -> the function that makes its text."""

NAMED = 3
"""Number of pairs of copies that an error names."""


def gate(options: Namespace) -> int:
    """Show the verdict and write the reports. Returns 1 if the gate closes, else 0."""
    check_targets(options)
    sides = [repeats_in(path) for path in options.files]
    if set(sides[0]) & set(sides[1]):
        found = "both sides name the same recording"
        raise UserError(
            one_line(options.files[0], found, "one name was given twice", "give BASE and NEW")
        )
    base, new = (
        [_with_machine(run_times(path, options.mark, options.measure)) for path in side]
        for side in sides
    )
    try:
        verdict = judge(base, new, options.fail_above, options.in_turns)
    except ValueError as error:
        cause = "a run failed, has another name, or was made in another way"
        cure = "make all runs alike, and without turns leave --in-turns out"
        raise UserError(one_line(", ".join(options.files), str(error), cause, cure)) from None
    _refuse_copies([*base, *new])
    if options.fail_on_cant_tell and verdict.word == "can't tell":
        verdict = replace(verdict, fails=True)
    with showing(options):
        _show(verdict)
    for option, report in REPORTS.items():
        target = getattr(options, option)
        if target is not None:
            write_report(f"--{option}", target, report(verdict))
    return int(verdict.fails)


def _with_machine(run: RunTimes) -> RunTimes:
    """The run, with the machine that `tidyprof run` recorded beside its times as its origin, if it
    states none itself.
    """
    watched = read_run(Path(run.path))
    if run.origin != NOT_STATED or not watched.ranks:
        return run
    return replace(run, origin=origin_of(watched))


def _refuse_copies(runs: Sequence[RunTimes]) -> None:
    if copies := copies_among(runs):
        pairs = [f"{other.path} and {one.path}" for one, other in copies]
        rest = f"; and {len(pairs) - NAMED} pairs more" if len(pairs) > NAMED else ""
        cause, cure = "a copy or a link", "record each repeat by itself, or leave the copy out"
        raise UserError(
            one_line("; ".join(pairs[:NAMED]) + rest, "one and the same run", cause, cure)
        )


def _show(verdict: Verdict) -> None:
    say(headline(verdict), "bold")
    parts, rest = moved_parts(verdict)
    _show_rows(parts, rest, _of_parts)
    kernels, rest = moved_kernels(verdict)
    _show_rows(kernels, rest, _of_kernels)
    say("")
    say(footnote(verdict), MUTED_STYLE)


def _show_rows(
    rows: pd.DataFrame, rest: str, columns: Callable[[pd.DataFrame], list[Column]]
) -> None:
    """Rows, and a line on what is not among them; nothing of what is empty."""
    if len(rows) or rest:
        say("")
    if len(rows):
        show(columns(rows))
    if rest:
        say(rest)


def _of_parts(shown: pd.DataFrame) -> list[Column]:
    sides = {f"{side} ms": texts(shown[f"{side}_ns"], FORMATS["ms"]) for side in ("base", "new")}
    sides["change ms"] = texts(shown["difference_ns"], _signed)
    return [
        Column("part of a step", shown["part"].tolist(), is_text=True),
        *starmap(Column, sides.items()),
        Column("sure", shown["sure"].tolist(), is_text=True),
    ]


def _of_kernels(shown: pd.DataFrame) -> list[Column]:
    calls = {
        f"calls {side}": texts(shown[f"{side}_calls"], "{:,.1f}".format) for side in ("base", "new")
    }
    return [
        *columns_of(shown, {"kernel": "kernel"}),
        *starmap(Column, calls.items()),
        Column("change ms", texts(shown["difference_ns"], _signed)),
        Column("why", list(shown["blame"]), is_text=True),
    ]


def _signed(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e6:+,.3f}"
