"""The command `triage`, which reads the files of one run and shows a diagnosis."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.analyses.common import result
from tidyprof.cli.output import (
    check_targets,
    origin_of,
    read_to_write,
    refuse_targets,
    say,
    showing,
    warn,
    write_report,
)
from tidyprof.errors import ProfileReadError, UserError, one_line
from tidyprof.parallel import ENDED, map_profiles, processors
from tidyprof.readers.registry import ReadOptions, read, together
from tidyprof.readers.torch.reader import (
    left_out,
    traces_of_ranks,
    warnings_of,
)
from tidyprof.running.report import Run, details_of, notes_of, read_run
from tidyprof.tables.contract import Profile
from tidyprof.tables.profiles import (
    Extent,
    extent_of_profile,
    ignored_lines,
    rank_in_name,
    refuse_mixed_ranks,
)
from tidyprof.triage.printers import as_json, report
from tidyprof.triage.recording import Recording, judged_ones, kind_of, recording_of
from tidyprof.triage.verdict import (
    Diagnosis,
    WrongStepError,
    diagnose,
    diagnosis_of,
    without_ranks,
)

MIN_BYTES_FOR_PROCESSES = 8 * 2**20
"""The minimum number of bytes to read per additional process. Starting a process takes about as
long as reading ten files of 170 kB each.
"""


@dataclass(frozen=True)
class ReadFile:
    """The data that triage keeps from a file or folder.

    - recording: the facts that the file contributes to the run.
    - error: the reason why the file can't be judged, or an empty string.
    - member: the facts that the file contributes to its folder, or None if the format has no
      separate ranks.
    - files, warnings: the entries with the same names in `Profile.meta`.
    """

    recording: Recording
    error: str
    member: Extent | None
    files: tuple[str, ...]
    warnings: tuple[str, ...]


Broken = dict[str, str]
"""A mapping from the name of each unreadable rank to the reason."""


def recordings_of(
    paths: Sequence[str],
    mark: str | None,
    jobs: int | None,
    broken: Broken | None = None,
) -> list[ReadFile]:
    """Return the data of all files in the order of `paths`. Files in a folder are in rank order.

    - jobs: the number of processes. If the number is None, it depends on the file sizes.
    - broken: a dictionary to which the function adds unreadable ranks, if at least one other rank
      is readable.

    Raises ProfileReadError as `read` does.
    """
    broken = {} if broken is None else broken
    places = _places(paths, broken)
    folders = {path: traces_of_ranks(path) for path, chosen in places if not chosen}
    alone = [path for path, ranks in folders.items() if not ranks]
    found = {path: [one] for path, one in _read(alone, mark, jobs, broken=broken).items()}
    for path, chosen in places:
        if chosen:
            found[path] = reduced(read(path, **chosen), mark)["recording"].tolist()
        elif folders[path]:
            found[path] = _of_folder(path, folders[path], mark, jobs, broken)
    return [one for path, _ in places for one in found.get(path, ())]


def _places(paths: Sequence[str], broken: Broken) -> list[tuple[Path, ReadOptions]]:
    """Return the result of `together` without ranks whose files are damaged at the start."""
    try:
        return together(paths)
    except ProfileReadError as error:
        others = [path for path in paths if str(Path(path)) != error.path]
        rank = (
            rank_in_name(Path(error.path))
            if len(others) < len(paths) and os.path.isfile(error.path)
            else None
        )
        if rank is None or not others:
            raise
        broken[f"rank {rank}"] = str(error)
        return _places(others, broken)


def _of_folder(
    folder: Path,
    files: Sequence[Path],
    mark: str | None,
    jobs: int | None,
    broken: Broken,
) -> list[ReadFile]:
    found = [*_read(files, mark, jobs, broken, root=folder).values()]
    members = [one.member for one in found]
    refuse_mixed_ranks(folder, members)
    ranks = [rank for member in members for rank in member.ranks]
    # Several files of one rank form a single timeline, so read the folder as a whole.
    if len(set(ranks)) < len(ranks):
        return [*_read([folder], mark, 1, {}).values()]
    host_events = sum(one.recording.kind.host_events for one in found)
    warnings = tuple(warnings_of(members))
    ignored = tuple(ignored_lines({"ignored_files": left_out(folder, files)}))
    files_read: list[ReadFile] = []
    for one in sorted(found, key=lambda one: min(one.member.ranks)):
        kind = one.recording.kind._replace(host_events=host_events)
        recording = replace(one.recording, kind=kind, ignored=ignored)
        # The warnings apply to the folder, so attach them only to its first file.
        files_read.append(
            replace(one, recording=recording, warnings=() if files_read else warnings)
        )
    return files_read


def _read(
    paths: Sequence[str | Path],
    mark: str | None,
    jobs: int | None,
    broken: Broken,
    **options: Any,
) -> dict[Path, ReadFile]:
    """Return the ReadFile object for each path.

    If only some ranks are readable, exclude the unreadable ranks and add them to `broken`.
    """
    if not paths:
        return {}
    size = sum(os.path.getsize(path) for path in paths if os.path.isfile(path))
    worthwhile = max(1, min(processors(), size // MIN_BYTES_FOR_PROCESSES))
    known = {
        str(path): rank_in_name(Path(path), options.get("root"))
        for path in paths
        if os.path.isfile(path)
    }
    ranks = {file: f"rank {rank}" for file, rank in known.items() if rank is not None}
    if "root" in options:
        ranks = {file: ranks.get(file, f"the rank of {Path(file).name}") for file in known}
    several = len(set(ranks.values())) > 1
    options |= {
        "jobs": jobs or worthwhile,
        "python_functions": True,
        "on_error": "continue" if several else "stop",
    }
    table = map_profiles(paths, partial(reduced, mark=mark), **options)
    for file, error in table.attrs["errors"]:
        if file not in ranks or ENDED in error:
            raise UserError(error)
        broken[ranks[file]] = error
    return {Path(file): one for file, one in zip(table["file"], table["recording"], strict=True)}


def reduced(profile: Profile, mark: str | None) -> pd.DataFrame:
    """Return one row with the ReadFile object for a profile. The process that reads the profile
    should call this function.
    """
    kind, error = kind_of(profile), ""
    try:
        recording = recording_of(profile, kind, kind.has_timeline or kind.on_host, mark)
    except ValueError as refused:
        recording, error = recording_of(profile, kind, False, mark), str(refused)
    member = extent_of_profile(profile) if len(profile.meta.get("files", ())) == 1 else None
    files, warnings = (tuple(profile.meta.get(key, ())) for key in ("files", "warnings"))
    return result(
        [{"recording": ReadFile(recording, error, member, files, warnings)}],
        {"recording": "object"},
        profile,
    )


def triage(options: Namespace) -> None:
    """Show the diagnosis, and write the requested files."""
    check_targets(options)
    diagnosis = diagnosed(options)
    run = _run_beside(options.files)
    with showing(options):
        show_report(diagnosis, run, options.why)
    if options.json is not None:
        write_report("--json", options.json, as_json(diagnosis))


def show_report(diagnosis: Diagnosis, run: Run | None, why: bool) -> None:
    """Print the report of a diagnosis, with any results of `tidyprof run`."""
    notes, details = (notes_of(run), details_of(run)) if run else ((), ())
    for line, style in report(diagnosis, why, notes, details):
        say(line, style)


def _run_beside(files: Sequence[str]) -> Run | None:
    """Return the results of `tidyprof run` next to the trace, or None if there are none."""
    folders = [Path(file) for file in files if any(Path(file).glob("run_rank*.json"))]
    run = read_run(folders[0]) if len(folders) == 1 else None
    return run if run and run.ranks else None


def diagnosed(options: Namespace) -> Diagnosis:
    """Return the diagnosis of the files, write the --html page, and print warnings.

    Raises UserError or ProfileReadError if the files can't be diagnosed.
    """
    refuse_times(options.files)
    page = None if options.html is None else import_module("tidyprof.triage.page").page
    broken: Broken = {}
    try:
        # A page draws events, so it needs whole profiles.
        profiles = [] if page is None else _whole(options, broken)
        diagnosis = _of_profiles(profiles, options) if profiles else _of_files(options, broken)
    except ProfileReadError as error:
        if Path(error.path).is_dir() and any(Path(error.path).rglob(TIMES)):
            raise _of_times(error.path) from None
        raise
    except WrongStepError as error:
        cause, next_step = (
            "the value is in seconds, or it comes from another run",
            "pass the mean step time in milliseconds",
        )
        raise UserError(
            one_line(f"--step-time-ms {options.step_time_ms:g}", str(error), cause, next_step)
        ) from None
    except ValueError as error:
        cause, next_step = (
            "the files are from several runs, or from another script",
            "pass the files of one run, or another --step-marker",
        )
        raise UserError(one_line(", ".join(options.files), str(error), cause, next_step)) from None
    for name, error in broken.items():
        warn(f"{name} is left out: {error}")
    diagnosis = without_ranks(diagnosis, list(broken))
    if run := _run_beside(options.files):
        # The hooks record the machine, while a trace contains at most the name of the GPU.
        origins = [
            str(origin_of(run)) if one.startswith("recorded") else one for one in diagnosis.origins
        ]
        diagnosis = replace(diagnosis, origins=tuple(dict.fromkeys(origins)))
    if page is not None:
        write_report("--html", options.html, page(diagnosis, profiles, options.step_marker))
    return diagnosis


TIMES = "times_rank*.jsonl"
"""The name pattern of the files that STEP_TIMER=times writes."""


def refuse_times(files: Sequence[str]) -> None:
    """Raise UserError for a times file, which isn't a profile but only supplements a trace."""
    for file in files:
        if Path(file).match(TIMES) and not Path(file).is_dir():
            raise _of_times(file)


def _of_times(path: str) -> UserError:
    cause, next_step = (
        "STEP_TIMER=times wrote it",
        "pass a trace that STEP_TIMER=trace wrote, or compare times with tidyprof gate",
    )
    return UserError(
        one_line(
            path,
            "the file contains only step times, which don't explain a bottleneck",
            cause,
            next_step,
        )
    )


def _whole(options: Namespace, broken: Broken) -> list[Profile]:
    """Return the profiles of all files, and add unreadable ranks to `broken`."""
    whole = partial(read_to_write, options=options, python_functions=True)
    try:
        return [whole(path, **chosen) for path, chosen in together(options.files)]
    except ProfileReadError:
        files = [
            one.files
            for one in recordings_of(options.files, options.step_marker, options.jobs, broken)
        ]
        if not broken or any(len(own) > 1 for own in files):
            raise
    folders = [Path(path) for path in options.files if os.path.isdir(path)]
    roots = {
        file: next((one for one in folders if Path(file).is_relative_to(one)), None)
        for (file,) in files
    }
    return [whole(file, **({} if root is None else {"root": root})) for file, root in roots.items()]


def _of_profiles(profiles: Sequence[Profile], options: Namespace) -> Diagnosis:
    for profile in profiles:
        for warning in profile.meta.get("warnings", []):
            warn(warning)
    return diagnose(profiles, options.step_marker, options.step_time_ms)


def _of_files(options: Namespace, broken: Broken) -> Diagnosis:
    """Diagnose the files, reading one at a time, without keeping whole profiles in memory."""
    found = recordings_of(options.files, options.step_marker, options.jobs, broken)
    refuse_targets(options, [file for one in found for file in one.files])
    for one in found:
        for warning in one.warnings:
            warn(warning)
    for index in sorted(judged_ones([one.recording.kind for one in found])):
        if found[index].error:
            raise ValueError(found[index].error)
    return diagnosis_of([one.recording for one in found], options.step_time_ms)
