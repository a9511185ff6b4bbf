"""The files of one run, each read and reduced at once, in several processes where that is worth it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from tidyprof.analyses.common import result
from tidyprof.diagnosis.recordings import RecordingSigns, kind_of, recording_signs
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
    ignored = tuple(ignored_lines({"ignored_files": left_out(folder)}))
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
