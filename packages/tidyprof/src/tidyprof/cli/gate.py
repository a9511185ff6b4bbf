"""The command `gate`, which compares two versions and exits with 1 if the new version is slower."""

from __future__ import annotations

import textwrap
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tidyprof.cli.output import (
    MUTED_STYLE,
    check_targets,
    origin_of,
    say,
    show,
    showing,
    write_report,
)
from tidyprof.errors import UserError, one_line
from tidyprof.gate.reports import (
    as_json,
    details,
    footnote,
    headline,
    kernel_table,
    part_tables,
    sources,
)
from tidyprof.gate.runs import RunTimes, copies_among, repeats_in, run_times
from tidyprof.gate.verdict import INCONCLUSIVE, Verdict, judge
from tidyprof.running.report import read_run
from tidyprof.tables.contract import NOT_STATED

WIDTH = 80
"""The width of the report in columns. Only lines that contain names from files can be wider."""


def gate(options: Namespace) -> int:
    """Show the verdict, and write the reports. Return 1 if the gate fails, otherwise 0."""
    check_targets(options)
    sides = [repeats_in(path) for path in options.files]
    if set(sides[0]) & set(sides[1]):
        found = "BASE and NEW are the same run"
        raise UserError(
            one_line(options.files[0], found, "the same path was passed twice", "pass two versions")
        )
    base, new = (
        [_with_machine(run_times(path, options.step_marker, options.metric)) for path in side]
        for side in sides
    )
    try:
        verdict = judge(base, new, options.fail_above / 100, options.paired)
    except ValueError as error:
        cause = "a run failed, was renamed, or was recorded in another way"
        next_step = "record all runs the same way, and omit --paired if the runs aren't pairs"
        raise UserError(one_line(", ".join(options.files), str(error), cause, next_step)) from None
    _refuse_copies([*base, *new])
    if options.fail_on_inconclusive and verdict.word == INCONCLUSIVE:
        verdict = replace(verdict, fails=True)
    with showing(options):
        _show(verdict)
    if options.json is not None:
        write_report("--json", options.json, as_json(verdict))
    return int(verdict.fails)


def _with_machine(run: RunTimes) -> RunTimes:
    """Return the run with a known origin if possible.

    If the run doesn't contain an origin, use the machine that `tidyprof run` recorded.
    """
    watched = read_run(Path(run.path))
    if run.origin != NOT_STATED or not watched.ranks:
        return run
    return replace(run, origin=origin_of(watched))


def _refuse_copies(runs: Sequence[RunTimes]) -> None:
    for one, other in copies_among(runs):
        found, cause = "these are the same run", "one run is a copy of the other, or a link to it"
        next_step = "record each repeat separately, or leave out the copy"
        raise UserError(one_line(f"{other.path} and {one.path}", found, cause, next_step))


def _show(verdict: Verdict) -> None:
    _say(headline(verdict), "bold")
    for line in details(verdict):
        _say(line)
    kernels, rest = kernel_table(verdict)
    for table in filter(None, (*part_tables(verdict), kernels)):
        say("")
        show(table)
    if rest:
        _say(rest)
    say("")
    for line in footnote(verdict):
        _say(line, MUTED_STYLE)
    for line in sources(verdict):
        say(line, MUTED_STYLE)


def _say(text: str, style: str = "") -> None:
    for line in textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False):
        say(line, style)
