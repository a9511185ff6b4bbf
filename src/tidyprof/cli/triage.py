"""The command `triage`: the files of one run in, a diagnosis out."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module

import pandas as pd

from tidyprof.cli.main import UsageError
from tidyprof.cli.output import (
    check_targets,
    read_to_write,
    refuse_targets,
    say,
    show_facts,
    showing,
    warn,
    write_report,
)
from tidyprof.cli.run_files import recordings_of
from tidyprof.diagnosis.verdict import Diagnosis, as_json, facts, headline, judged_ones
from tidyprof.diagnosis.verdict import triage as diagnose
from tidyprof.errors import one_line
from tidyprof.readers.registry import together
from tidyprof.tables.contract import Profile


def triage(options: Namespace) -> None:
    """Show the diagnosis and write what was asked for."""
    check_targets(options)
    page = None if options.html is None else _page()
    # A page draws events, so that it takes whole profiles.
    profiles = [] if page is None else _whole(options)
    try:
        diagnosis = _of_profiles(profiles, options) if profiles else _of_files(options)
    except ValueError as error:
        cause, cure = "files of several runs, or another script", "give the files of one run, or another --mark"
        raise UsageError(one_line(", ".join(options.files), str(error), cause, cure)) from None
    with showing(options):
        say(headline(diagnosis), "bold")
        say("")
        show_facts(facts(diagnosis))
    if options.json is not None:
        write_report("--json", options.json, as_json(diagnosis))
    if page is not None:
        write_report("--html", options.html, page(diagnosis, profiles, options.mark))


def _whole(options: Namespace) -> list[Profile]:
    return [read_to_write(path, options, python_functions=True, **chosen) for path, chosen in together(options.files)]


def _of_profiles(profiles: Sequence[Profile], options: Namespace) -> Diagnosis:
    for profile in profiles:
        for warning in profile.meta.get("warnings", []):
            warn(warning)
    return diagnose(profiles, options.mark)


def _of_files(options: Namespace) -> Diagnosis:
    """The same of files that are read one by one."""
    found = recordings_of(options.files, options.mark, options.jobs)
    refuse_targets(options, [file for one in found for file in one.files])
    for one in found:
        for warning in one.warnings:
            warn(warning)
    for place in sorted(judged_ones([one.signs.kind for one in found])):
        if found[place].error:
            raise ValueError(found[place].error)
    return diagnose(pd.DataFrame({"signs": [one.signs for one in found]}))


def _page() -> Callable[..., str]:
    """What makes the page; asked for before anything is read."""
    try:
        return import_module("tidyprof.diagnosis.page").page
    except ModuleNotFoundError as error:
        raise UsageError(f"--html needs {error.name}, which is not installed: pip install matplotlib") from None
