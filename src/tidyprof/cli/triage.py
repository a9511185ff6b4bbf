"""The command `triage`: the files of one run in, a diagnosis out."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from importlib import import_module

from tidyprof.cli.main import UsageError
from tidyprof.cli.output import check_targets, read_to_write, say, show_facts, showing, warn, write_report
from tidyprof.diagnosis.reports import as_json, facts, headline
from tidyprof.diagnosis.verdict import triage as diagnose
from tidyprof.errors import one_line
from tidyprof.readers.registry import recordings_of


def triage(options: Namespace) -> None:
    """Show the diagnosis and write what was asked for."""
    check_targets(options)
    page = None if options.html is None else _page()
    profiles = [
        read_to_write(path, options, python_functions=True, **chosen) for path, chosen in recordings_of(options.files)
    ]
    for profile in profiles:
        for warning in profile.meta.get("warnings", []):
            warn(warning)
    try:
        diagnosis = diagnose(profiles, options.mark)
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


def _page() -> Callable[..., str]:
    """What makes the page; asked for before anything is read."""
    try:
        return import_module("tidyprof.diagnosis.page").page
    except ModuleNotFoundError as error:
        raise UsageError(f"--html needs {error.name}, which is not installed: pip install matplotlib") from None
