"""What the readers of databases share: folders with a file per rank, and the profile made of several files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tidyprof.io.byte_stream import ByteStream
from tidyprof.io.errors import ProfileReadError
from tidyprof.io.sqlite import SQLITE_MAGIC
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.event_blocks import Block, counter_frame, event_frame


class Part(Protocol):
    """What a reader found in one file, or in one process of it."""

    path: Path
    rank: int | None
    blocks: list[Block]
    counters: list[Any]
    facts: dict[str, Any]
    dropped: Counter[str]
    not_kept: Counter[str]
    warnings: list[str]


_AnyPart = TypeVar("_AnyPart", bound=Part)


def database_files(
    path: Path, is_database: Callable[[Path], bool], patterns: Sequence[str], what: str
) -> tuple[list[Path], list[Path]]:
    """The file, or those of a folder that match a pattern and are databases of the format; and the other databases.

    A file that matches and is no database at all may be a damaged rank: it is kept, so that reading it tells
    what is wrong. Raises ProfileReadError if the folder has none of the format.
    """
    if not path.is_dir():
        return [path], []
    named = sorted({file for pattern in patterns for file in path.glob(pattern) if file.is_file()})
    own = [file for file in named if is_database(file)]
    if not own:
        raise ProfileReadError(
            path,
            f"{len(named)} files in the folder that are named like {what}, none of them one",
            "the folder is another one, or the profiler wrote elsewhere",
            "pass the folder or file that the profiler wrote to",
        )
    others = [file for file in named if file not in own and _is_other_database(file)]
    return [file for file in named if file not in others], others


def _is_other_database(file: Path) -> bool:
    try:
        return ByteStream(file).head(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except ProfileReadError:
        return False


def refuse_mixed_ranks(folder: Path, parts: Sequence[Part]) -> None:
    """In a folder with several files each must state a rank of its own."""
    if len(parts) == 1:
        return
    unknown = [part.path.name for part in parts if part.rank is None]
    if unknown:
        raise ProfileReadError(
            folder,
            f"{len(parts)} files, of which {len(unknown)} do not state their rank ({unknown[0]!r} for one)",
            "they are separate runs, or were recorded without the rank in their names",
            "read them one by one, or put rank0, rank1, ... into their names",
        )
    for rank, count in Counter(part.rank for part in parts).items():
        if count > 1:
            names = ", ".join(repr(part.path.name) for part in parts if part.rank == rank)
            raise ProfileReadError(
                folder,
                f"{count} files of rank {rank} ({names})",
                "a copy of a file, or files of several runs in one folder",
                "keep one run in a folder, and each of its files once",
            )


def selected_rank(path: Path, parts: list[_AnyPart], rank: int | None) -> list[_AnyPart]:
    """Only the parts of `rank`; where no part states a rank, all of them get it."""
    if rank is None:
        return parts
    known = sorted({part.rank for part in parts if part.rank is not None})
    if known and rank not in known:
        raise ProfileReadError(
            path,
            f"no rank {rank}, only {', '.join(map(str, known))}",
            "a wrong rank was asked for, or that rank was not recorded",
            "leave rank out to read them all",
        )
    for part in parts:
        part.rank = part.rank if known else rank
    return [part for part in parts if part.rank == rank]


def profile_of(parts: Sequence[Part], texts: Sequence[str], meta: dict[str, Any], origin: Origin | None) -> Profile:
    """One profile of all parts; `meta` has what the format adds, the common entries are made here."""
    facts = {key: value for key, value in parts[0].facts.items() if all(part.facts.get(key) == value for part in parts)}
    ranks = sorted({part.rank for part in parts if part.rank is not None})
    if ranks:
        facts |= {"ranks": ranks} if len(ranks) > 1 else {"rank": ranks[0]}
    facts["files"] = list(dict.fromkeys(str(part.path) for part in parts))
    dropped = sum((part.dropped for part in parts), Counter())
    facts["not_kept"] = dict(sorted(sum((part.not_kept for part in parts), Counter()).items()))
    facts["repairs"] = {f"dropped events {reason}": count for reason, count in dropped.items()}
    facts["warnings"] = [warning for part in parts for warning in part.warnings]
    if origin is not None:
        facts["origin"] = origin
    for part in parts:
        if part.rank is not None:
            for block in part.blocks:
                block.add_constant("rank", part.rank)
            part.counters = [table.assign(rank=part.rank) for table in part.counters]
    counters = counter_frame([table for part in parts for table in part.counters])
    events = event_frame([block for part in parts for block in part.blocks], texts)
    return Profile(events, counters, facts | meta)
