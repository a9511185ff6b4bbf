"""The command `triage`: the files of one run in, a diagnosis out."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.analyses.common import result
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
from tidyprof.cli.usage import UsageError
from tidyprof.diagnosis.recordings import RecordingSigns, kind_of, recording_signs
from tidyprof.diagnosis.verdict import Diagnosis, WrongStepError, as_json, facts, headline, judged_ones
from tidyprof.diagnosis.verdict import triage as diagnose
from tidyprof.errors import one_line
from tidyprof.many import processors, read_many
from tidyprof.readers.registry import read, together
from tidyprof.readers.torch.reader import (
    Member,
    left_out,
    member_of,
    ranks_of_folder,
    refuse_mixed_ranks,
    warnings_of,
)
from tidyprof.tables.contract import Profile
from tidyprof.tables.profiles import ignored_lines

WORTH_BYTES = 8 * 2**20
"""Bytes of files for each process: to start one takes as long as to read some ten ranks, of 170 kB each."""

BRACKETS = (
    "in brackets",
    "the table that says so: tidyprof.step_budget(profile), tidyprof.gaps(profile), profile.events and so on",
)
"""The last line, on the words that stand behind numbers."""


@dataclass(frozen=True)
class Recording:
    """What is kept of a file or folder that was read.

    error  -- why it cannot be judged, "" if it can. member -- what it adds to its folder, None for a format without
    ranks of its own. files, warnings -- entries of `Profile.meta`.
    """

    signs: RecordingSigns
    error: str
    member: Member | None
    files: tuple[str, ...]
    warnings: tuple[str, ...]


def recordings_of(paths: Sequence[str], mark: str | None, jobs: int | None) -> list[Recording]:
    """All recordings in the order of paths, those of a folder in the order of ranks.

    jobs -- processes; None: as many as are worth it. Raises ProfileReadError as `read` does.
    """
    places = together(paths)
    folders = {path: ranks_of_folder(path) for path, chosen in places if not chosen}
    alone = [path for path, ranks in folders.items() if not ranks]
    found = {path: [one] for path, one in zip(alone, _read(alone, mark, jobs), strict=True)}
    for path, chosen in places:
        if chosen:
            found[path] = reduced(read(path, **chosen), mark)["recording"].tolist()
        elif folders[path]:
            found[path] = _of_folder(path, folders[path], mark, jobs)
    return [one for path, _ in places for one in found[path]]


def _of_folder(folder: Path, files: Sequence[Path], mark: str | None, jobs: int | None) -> list[Recording]:
    found = _read(files, mark, jobs, root=folder, progress=False)
    members = [one.member for one in found]
    refuse_mixed_ranks(folder, members)
    ranks = [rank for member in members for rank in member.extent.ranks]
    if len(set(ranks)) < len(ranks):
        return _read([folder], mark, 1)  # files of one rank that follow each other are one timeline
    host_events = sum(one.signs.kind.host_events for one in found)
    warnings = tuple(warnings_of(members))
    ignored = tuple(ignored_lines({"ignored_files": left_out(folder, files)}))
    together = []
    for one in sorted(found, key=lambda one: min(one.member.extent.ranks)):
        signs = replace(one.signs, kind=one.signs.kind._replace(host_events=host_events), ignored=ignored)
        together.append(replace(one, signs=signs, warnings=() if together else warnings))
    return together


def _read(paths: Sequence[str | Path], mark: str | None, jobs: int | None, **options: Any) -> list[Recording]:
    if not paths:
        return []
    size = sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
    jobs = jobs or max(1, min(processors(), size // WORTH_BYTES))
    options |= {"jobs": jobs, "python_functions": True}
    return read_many(paths, partial(reduced, mark=mark), **options)["recording"].tolist()


def reduced(profile: Profile, mark: str | None) -> pd.DataFrame:
    """One row with the Recording of a profile; runs where it is read."""
    kind, error = kind_of(profile), ""
    try:
        signs = recording_signs(profile, kind, kind.has_timeline or kind.on_host, mark)
    except ValueError as refused:
        signs, error = recording_signs(profile, kind, False, mark), str(refused)
    member = member_of(profile) if len(profile.meta.get("files", ())) == 1 else None
    files, warnings = (tuple(profile.meta.get(key, ())) for key in ("files", "warnings"))
    return result([{"recording": Recording(signs, error, member, files, warnings)}], {"recording": "object"}, profile)


def triage(options: Namespace) -> None:
    """Show the diagnosis and write what was asked for."""
    check_targets(options)
    refuse_times(options.files)
    page = None if options.html is None else _page()
    # A page draws events, so that it takes whole profiles.
    profiles = [] if page is None else _whole(options)
    try:
        diagnosis = _of_profiles(profiles, options) if profiles else _of_files(options)
    except WrongStepError as error:
        cause, cure = "seconds in place of milliseconds, or a step of another run", "give the mean of a step in ms"
        raise UsageError(one_line(f"--step-ms {options.step_ms:g}", str(error), cause, cure)) from None
    except ValueError as error:
        cause, cure = "files of several runs, or another script", "give the files of one run, or another --mark"
        raise UsageError(one_line(", ".join(options.files), str(error), cause, cure)) from None
    with showing(options):
        say(headline(diagnosis), "bold")
        say("")
        show_facts([*facts(diagnosis), BRACKETS])
    if options.json is not None:
        write_report("--json", options.json, as_json(diagnosis))
    if page is not None:
        write_report("--html", options.html, page(diagnosis, profiles, options.mark))


def refuse_times(files: Sequence[str]) -> None:
    """Raise UsageError for a file of times: it adds to a trace in its folder, and is no recording."""
    for file in files:
        if re.fullmatch(r"times_rank\d+\.jsonl", Path(file).name):
            cause, cure = "WATCH=times wrote it", "pass the trace beside it; tidyprof gate compares two such files"
            raise UsageError(one_line(file, "times of steps, which say how long and not why", cause, cure))


def _whole(options: Namespace) -> list[Profile]:
    return [read_to_write(path, options, python_functions=True, **chosen) for path, chosen in together(options.files)]


def _of_profiles(profiles: Sequence[Profile], options: Namespace) -> Diagnosis:
    for profile in profiles:
        for warning in profile.meta.get("warnings", []):
            warn(warning)
    return diagnose(profiles, options.mark, options.step_ms)


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
    return diagnose(pd.DataFrame({"signs": [one.signs for one in found]}), step_ms=options.step_ms)


def _page() -> Callable[..., str]:
    """What makes the page; asked for before anything is read."""
    try:
        return import_module("tidyprof.diagnosis.page").page
    except ModuleNotFoundError as error:
        raise UsageError(f"--html needs {error.name}, which is not installed: pip install matplotlib") from None
