"""The command `triage`, which reads the files of one run and shows a diagnosis."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path

import pandas as pd

from tidyprof.analyses.common import result
from tidyprof.cli.output import (
    check_targets,
    origin_of,
    say,
    showing,
    warn,
    write_report,
)
from tidyprof.errors import UserError, one_line
from tidyprof.parallel import map_profiles
from tidyprof.readers.registry import ReadOptions, read, together
from tidyprof.readers.torch.reader import left_out, traces_of_ranks, warnings_of
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
from tidyprof.triage.verdict import Diagnosis, WrongStepError, diagnosis_of, without_ranks


@dataclass(frozen=True)
class ReadFile:
    """The data that triage keeps from a file or folder.

    - recording: the facts that the file contributes to the run.
    - error: the reason why the file can't be judged, or an empty string.
    - extent: the facts that the file contributes to its folder, or None if the profile consists of
      several files.
    - warnings: the entry with the same name in `Profile.meta`.
    - source: the path and the options to read the profile again.
    """

    recording: Recording
    error: str
    extent: Extent | None
    warnings: tuple[str, ...]
    source: tuple[Path, ReadOptions]


Broken = dict[str, str]
"""A mapping from the name of each unreadable rank or file to the reason."""


def read_files(paths: Sequence[str], mark: str | None, broken: Broken) -> list[ReadFile]:
    """Return the data of all files in the order of `paths`. Files in a folder are in rank order.

    - broken: a dictionary to which the function adds unreadable files, if at least one other file
      is readable.

    Raises ProfileReadError as `read` does.
    """
    places = together(paths)
    folders = {path: traces_of_ranks(path) for path, chosen in places if not chosen}
    alone = [path for path, traces in folders.items() if not traces]
    found = {one.source[0]: [one] for one in _read(alone, {}, mark, broken)}
    for path, chosen in places:
        if chosen:
            found[path] = _read([path], chosen, mark, broken)
        elif folders[path]:
            found[path] = _of_folder(path, folders[path], mark, broken)
    return [one for path, _ in places for one in found.get(path, ())]


def _of_folder(
    folder: Path, files: Sequence[Path], mark: str | None, broken: Broken
) -> list[ReadFile]:
    found = _read(files, {"root": folder}, mark, broken)
    extents = [one.extent for one in found if one.extent]
    refuse_mixed_ranks(folder, extents)
    ranks = [rank for extent in extents for rank in extent.ranks]
    # Several files of one rank form a single timeline, so read the folder as a whole.
    if len(set(ranks)) < len(ranks):
        return _read([folder], {}, mark, {})
    host_events = sum(one.recording.kind.host_events for one in found)
    warnings = tuple(warnings_of(extents))
    ignored = tuple(ignored_lines({"ignored_files": left_out(folder, files)}))
    files_read: list[ReadFile] = []
    for one in sorted(found, key=lambda one: min(one.extent.ranks)):
        kind = one.recording.kind._replace(host_events=host_events)
        recording = replace(one.recording, kind=kind, ignored=ignored)
        # The warnings apply to the folder, so attach them only to its first file.
        files_read.append(
            replace(one, recording=recording, warnings=() if files_read else warnings)
        )
    return files_read


def _read(
    paths: Sequence[Path], options: ReadOptions, mark: str | None, broken: Broken
) -> list[ReadFile]:
    """Return the data of each path. If only some files are readable, add the others to `broken`."""
    if not paths:
        return []
    files = [path for path in paths if path.is_file()]
    table = map_profiles(
        paths,
        partial(reduced, mark=mark),
        on_error="continue" if len(files) > 1 else "stop",
        python_functions=True,
        **options,
    )
    for name, error in table.attrs["errors"]:
        if Path(name) not in files:
            raise UserError(error)
        rank = rank_in_name(Path(name), options.get("root"))
        broken[Path(name).name if rank is None else f"rank {rank}"] = error
    return [
        replace(one, source=(Path(name), options))
        for name, one in zip(table["file"], table["recording"], strict=True)
    ]


def reduced(profile: Profile, mark: str | None) -> pd.DataFrame:
    """Return one row with the ReadFile object for a profile."""
    kind, error = kind_of(profile), ""
    try:
        recording = recording_of(profile, kind, kind.has_timeline or kind.on_host, mark)
    except ValueError as refused:
        recording, error = recording_of(profile, kind, False, mark), str(refused)
    extent = extent_of_profile(profile) if len(profile.meta.get("files", ())) == 1 else None
    warnings = tuple(profile.meta.get("warnings", ()))
    return result(
        [{"recording": ReadFile(recording, error, extent, warnings, (Path(), {}))}],
        {"recording": "object"},
        profile,
    )


def triage(options: Namespace) -> None:
    """Show the diagnosis, and write the requested files."""
    check_targets(options)
    run = _run_beside(options.files)
    diagnosis = diagnosed(options, run)
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


def diagnosed(options: Namespace, run: Run | None) -> Diagnosis:
    """Return the diagnosis of the files, write the --html page, and print warnings.

    - run: the results of `tidyprof run` for these files, if any.

    Raises UserError or ProfileReadError if the files can't be diagnosed.
    """
    broken: Broken = {}
    try:
        # Read one file at a time, without keeping whole profiles in memory.
        found = read_files(options.files, options.step_marker, broken)
        for warning in (warning for one in found for warning in one.warnings):
            warn(warning)
        for index in sorted(judged_ones([one.recording.kind for one in found])):
            if found[index].error:
                raise ValueError(found[index].error)
        diagnosis = diagnosis_of([one.recording for one in found], options.step_time_ms)
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
    for name, reason in broken.items():
        warn(f"{name} is left out: {reason}")
    diagnosis = without_ranks(diagnosis, list(broken))
    if run:
        # The hooks record the machine, while a trace contains at most the name of the GPU.
        origins = [
            str(origin_of(run)) if one.startswith("recorded") else one for one in diagnosis.origins
        ]
        diagnosis = replace(diagnosis, origins=tuple(dict.fromkeys(origins)))
    if options.html is not None:
        page = import_module("tidyprof.triage.page").page
        sources = [one.source for one in found]
        # A page draws events, so it needs whole profiles.
        whole = [read(path, python_functions=True, **chosen) for path, chosen in sources]
        write_report("--html", options.html, page(diagnosis, whole, options.step_marker))
    return diagnosis
