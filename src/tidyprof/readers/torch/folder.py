"""A folder of traces as one recording: which files are in it, and what only all of them together tell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tidyprof.errors import EMPTY, ProfileReadError
from tidyprof.io.byte_stream import HEAD_BYTES, ByteStream
from tidyprof.io.folders import no_files
from tidyprof.io.guard import guarded
from tidyprof.readers.torch.recognition import candidates, is_trace, recognises
from tidyprof.tables.contract import Profile
from tidyprof.tables.extents import Extent, extent_of_profile, suspicions
from tidyprof.tables.ignored import FOREIGN
from tidyprof.tables.ranks import refuse_overlap


@dataclass(frozen=True)
class Member:
    """What one trace of a folder adds to what is asked of all. warnings -- those of the file itself."""

    name: str
    extent: Extent
    world_size: int | None = None
    warnings: tuple[str, ...] = ()


def member_of(profile: Profile) -> Member:
    """The part of a folder that a profile is which was read from one file."""
    extent, size = extent_of_profile(profile), profile.meta.get("world_size")
    of_all = [*suspicions([extent]), *missing_ranks(extent.ranks, size)]
    own = tuple(warning for warning in profile.meta.get("warnings", ()) if warning not in of_all)
    return Member(Path(profile.meta["files"][0]).name, extent, size, own)


def warnings_of(members: Sequence[Member]) -> list[str]:
    """The warnings of a folder."""
    own = [warning for member in members for warning in member.warnings]
    ranks = {rank for member in members for rank in member.extent.ranks}
    sizes = {member.world_size for member in members}
    size = sizes.pop() if len(sizes) == 1 else None
    return [*own, *suspicions(member.extent for member in members), *missing_ranks(ranks, size)]


def missing_ranks(ranks: Collection[int | None], world_size: int | None) -> list[str]:
    """A warning where several ranks are here, but not all."""
    here = len(set(ranks) - {None})
    return [f"only {here} of {world_size} ranks are here."] if world_size and 1 < here < world_size else []


@guarded
def ranks_of_folder(path: Path) -> list[Path]:
    """The traces of a folder that has several; nothing for another folder, or a file. Raises as the reader does."""
    traces = files_of_folder(path)[0] if path.is_dir() and recognises(path, b"") else []
    return traces if len(traces) > 1 else []


def files_of_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Traces in a folder, and its other JSON files. An empty or damaged file may be a rank's trace: an error."""
    named = candidates(folder)
    heads = {file: ByteStream(file).head(HEAD_BYTES) for file in named}
    for file, head in heads.items():
        if not head.strip():
            raise ProfileReadError(file, *EMPTY)
    traces = [file for file, head in heads.items() if is_trace(head)]
    if not traces:
        raise ProfileReadError(
            folder,
            f"{len(named)} JSON files in the folder, none of them a trace of torch.profiler",
            "the folder is another one, or the profiler's schedule never reached a recording step",
            "pass the folder that export_chrome_trace or tensorboard_trace_handler wrote to",
        )
    return traces, [file for file in named if file not in traces]


def left_out(folder: Path) -> dict[Path, str]:
    """What of a folder of traces is not read -> why."""
    return dict.fromkeys(files_of_folder(folder)[1], FOREIGN) | no_files([folder])


def refuse_mixed_ranks(folder: Path, members: Sequence[Member]) -> None:
    """In a folder every file must state its rank, and no time of a rank may be there twice."""
    if len(members) == 1:
        return
    unknown = [member.name for member in members if None in member.extent.ranks]
    if unknown:
        raise ProfileReadError(
            folder,
            f"{len(members)} traces, of which {len(unknown)} do not state their rank ({unknown[0]!r} for one)",
            "they are separate runs, or the job had no process group when it was recorded",
            "read them one by one, or put rank0, rank1, ... into their names",
        )
    spans = [(f"rank {rank}", *one.extent.span, one.name) for one in members for rank in one.extent.ranks]
    refuse_overlap(folder, spans)
