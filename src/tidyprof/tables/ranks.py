"""Which rank of a job a file is of: what its name says, and which files belong to one run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from tidyprof.errors import ProfileReadError

_NUMBER = r"[-_.]?(\d{1,9})(?!\d)"
_RANK = re.compile(rf"(?:^|[^a-z])rank{_NUMBER}", re.IGNORECASE)
_EXAMPLE_TRACE = re.compile(r"^trace_\d+_\d+_(\d{1,9})\.")
"""`trace_{epoch}_{step}_{rank}.json`, as AMD's example trainer names its traces."""


def rank_in_name(path: Path, root: Path | None = None) -> int | None:
    """The rank in a file's name (`rank2`, `rank_2`, `rank-2`, `rank.2`), or else in the nearest folder's up to `root`.

    Letters before the word make it another one: `frank2` is no rank.
    """
    found = _EXAMPLE_TRACE.match(path.name)
    if found:
        return int(found[1])
    folders = [folder for folder in path.parents if root is not None and folder.is_relative_to(root)]
    for name in (path.name, *(folder.name for folder in folders)):
        found = _RANK.search(name)
        if found:
            return int(found[1])
    return None


def refuse_unknown_rank(path: Path, known: Iterable[int], rank: int) -> None:
    """Raise ProfileReadError if the rank that was asked for is none of those that the files state."""
    known = sorted(known)
    if rank not in known:
        raise ProfileReadError(
            path,
            f"no rank {rank}, only {', '.join(map(str, known))}",
            "a wrong rank was asked for, or that rank was not recorded",
            "leave rank out to read them all",
        )


def refuse_mixed_ranks(folder: Path, files: Sequence[tuple[str, int | None]]) -> None:
    """Of several files in a folder, given by name and rank, each must state a rank of its own."""
    if len(files) < 2:
        return
    unknown = [name for name, rank in files if rank is None]
    if unknown:
        raise ProfileReadError(
            folder,
            f"{len(files)} files, of which {len(unknown)} do not state their rank ({unknown[0]!r} for one)",
            "they are separate runs, or were recorded without the rank in their names",
            "read them one by one, or put rank0, rank1, ... into their names",
        )
    for rank, count in Counter(rank for _, rank in files).items():
        if count > 1:
            names = ", ".join(repr(name) for name, own in files if own == rank)
            raise ProfileReadError(
                folder,
                f"{count} files of rank {rank} ({names})",
                "a copy of a file, or files of several runs in one folder",
                "keep one run in a folder, and each of its files once",
            )


def refuse_overlap(folder: Path, spans: Iterable[tuple[str, int, int, str]]) -> None:
    """No two files of a folder may cover the same at the same time.

    spans -- what is covered (`rank 0`), start and end in ns, and the file's name.
    """
    for (what, _, end, name), (next_what, start, _, next_name) in pairwise(sorted(spans)):
        if what == next_what and start < end:
            raise ProfileReadError(
                folder,
                f"{name!r} and {next_name!r} both cover {what} at the same time",
                "a copy of a file, or files of several runs or machines in one folder",
                "keep one run in a folder, each of its files once, and put rank0, rank1, ... into their names",
            )
