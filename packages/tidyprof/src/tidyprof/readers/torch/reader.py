"""Reader for the Chrome traces that torch.profiler writes.

`events` has, after the columns of every Profile (times in ns since 1970, `device` as the file
numbers it):
  source_category  category in the file (`kernel`, `gpu_memcpy`, `cuda_runtime`, `cpu_op`, ...)
  external_id      Int64, `External id`: the operator that asked for the event
  operator         name of that operator, for device and runtime events; it must enclose the launch
  collective       name of the collective operation, where the file attached one
  group_size       Int32, ranks that take part in that operation, likewise
  bytes            Int64, of copies and fills; taken from the launch if the copy has none. Of
                   collectives, where the file attached counts of elements and their type: the
                   larger count (all of the buffer of an all-reduce, the gathered side of an
                   all-gather, the scattered one of a reduce-scatter)
  grid, block      of kernels, as text as in the file (or in the launch). Their meaning varies:
                   `grid` counts workgroups or work-items, and rocprofiler-sdk traces of 2025 have
                   the two exchanged
  input_shapes, input_types  of operators, with `record_shapes=True`: `[[64, 3], []]` (empty for
                   what is no tensor) and `["float", "Scalar"]`, as text as in the file
  launch_ns        Int64, start of the call with the same correlation id, <NA> if the file has none
  launch_thread    Int64, thread of that call
Correlation ids are unique within a rank only. Events on a device have no thread; their process is
that of the call. Annotations with a device (`gpu_user_annotation`) are the profiler's projection of
host ranges on kernels.

`counters` has the allocator's memory, if `profile_memory=True` was recorded.

`meta` has, besides the common entries and where stated: `backend` (rocm-roctracer, rocm-sdk, rocm,
cuda, xpu, cpu), `device_numbering` (`agent`: ROCm's agents, not HIP's devices; or `index`),
`device_properties`, `distributed`, `world_size`, `rank` or `ranks`, `hip_runtime_version`,
`options`, `base_time_ns`, `record_window_ns`, `untraced` (rank, or None -> what the script timed
before it recorded, see `meta.untraced`), `events_total`, `events_by_category`, `not_kept`,
`device_events_without_launch`, `shared_launch_records` (calls with the correlation id of an
enclosing one, which counts as the launch), `warnings` (a list of sentences).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tidyprof.errors import EMPTY, FOREIGN, ProfileReadError
from tidyprof.io.byte_stream import HEAD_BYTES, MAXIMUM_BYTES, ByteStream, head_or_nothing
from tidyprof.io.guard import guarded, no_files, progress_bar
from tidyprof.readers.torch.events import no_texts, readable
from tidyprof.readers.torch.file import TraceFile, read_file
from tidyprof.readers.torch.recognition import candidates, is_json, is_trace
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import (
    Extent,
    extent_of_profile,
    profile_of,
    rank_in_name,
    refuse_overlap,
    selected_rank,
    suspicions,
    within,
)


@dataclass(frozen=True)
class Member:
    """The facts of one trace that are compared with those of the others in its folder. warnings --
    those about the file itself.
    """

    path: Path
    extent: Extent
    world_size: int | None = None
    warnings: tuple[str, ...] = ()


def member_of(profile: Profile) -> Member:
    """The facts of a profile that was read from one file of a folder."""
    extent, size = extent_of_profile(profile), profile.meta.get("world_size")
    of_all = [*suspicions([extent]), *missing_ranks(extent.ranks, size)]
    own = tuple(warning for warning in profile.meta.get("warnings", ()) if warning not in of_all)
    return Member(Path(profile.meta["files"][0]), extent, size, own)


def warnings_of(members: Sequence[Member]) -> list[str]:
    """The warnings of a folder."""
    own = [warning for member in members for warning in member.warnings]
    ranks = {rank for member in members for rank in member.extent.ranks}
    sizes = {member.world_size for member in members}
    size = sizes.pop() if len(sizes) == 1 else None
    return [*own, *suspicions(member.extent for member in members), *missing_ranks(ranks, size)]


def missing_ranks(ranks: Collection[int | None], world_size: int | None) -> list[str]:
    """A warning where several ranks are there, but not all."""
    here = len(set(ranks) - {None})
    return (
        [f"only {here} of {world_size} ranks are here."]
        if world_size and 1 < here < world_size
        else []
    )


def files_of_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Traces in a folder, and its other JSON files. Raises ProfileReadError for an empty file,
    which may be the trace of a rank, and where there is no trace.
    """
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
    return traces, _others(named, traces)


def _others(named: Sequence[Path], traces: Collection[Path]) -> list[Path]:
    known = set(traces)
    return [file for file in named if file not in known]


def traces_of_ranks(folder: Path) -> list[Path]:
    """The traces of a folder that has several, including a file that doesn't start as JSON, such as
    one of zeros, if its name has a rank.
    """
    if not folder.is_dir():
        return []
    heads = {file: head_or_nothing(file, HEAD_BYTES) for file in candidates(folder)}
    if not any(is_trace(head) for head in heads.values()):
        return []
    chosen = [
        file
        for file, head in heads.items()
        if is_trace(head) or not (is_json(head) or rank_in_name(file, folder) is None)
    ]
    return chosen if len(chosen) > 1 else []


def left_out(folder: Path, traces: Collection[Path]) -> dict[Path, str]:
    """The files of a folder with these traces that are not read -> why."""
    return dict.fromkeys(_others(candidates(folder), traces), FOREIGN) | no_files([folder])


def refuse_mixed_ranks(folder: Path, members: Sequence[Member]) -> None:
    """Raise ProfileReadError for a folder with a file that does not state its rank, or with a time
    of a rank twice.
    """
    if len(members) == 1:
        return
    unknown = [within(folder, member.path) for member in members if None in member.extent.ranks]
    if unknown:
        raise ProfileReadError(
            folder,
            f"{len(members)} traces, of which {len(unknown)} do not state their rank"
            f" ({unknown[0]!r} for one)",
            "they are separate runs, or the job had no process group when it was recorded",
            "read them one by one, or put rank0, rank1, ... into their names",
        )
    spans = [
        (f"rank {rank}", *one.extent.span, one.path) for one in members for rank in one.extent.ranks
    ]
    refuse_overlap(folder, spans)


@guarded
def read_torch_trace(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    progress: bool | None = None,
    python_functions: bool = False,
    root: str | PathLike[str] | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read a trace of torch.profiler, from ROCm, CUDA, XPU or a CPU.

    path             -- a .json file as it is or compressed with gzip or zstd (found by content), a
                        folder with one file or folder per rank, or a file of several ranks merged
                        by TraceLens's TraceFuse.
    rank             -- read only this rank; for a file that states no rank, the rank that it has.
    origin           -- where the recording comes from; not stated if None.
    progress         -- show a progress bar on stderr; None: on a terminal, for files that take over
                        two seconds.
    python_functions -- keep the Python call stack (`with_stack=True`) as annotations too. It is
                        most of such a file, so by default it is only counted.
    root             -- folder that a file belongs to: the names of folders in between may state its
                        rank, too.
    maximum_bytes    -- refuse files that unpack to more than this.

    The module's text describes the tables and `meta`.
    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    files, ignored = files_of_folder(path) if path.is_dir() else ([path], [])
    texts = no_texts()
    with progress_bar(files, progress) as advance:
        read = [read_file(file, texts, python_functions, maximum_bytes, advance) for file in files]
    parts = [file.part for file in read]
    for part in parts:
        if part.ranks() == {None}:
            part.records.columns.pop("rank", None)
            part.rank = rank_in_name(part.path, path if root is None else Path(root))
    if path.is_dir():
        refuse_mixed_ranks(path, [Member(part.path, part.extent()) for part in parts])
    parts = selected_rank(path, parts, rank)
    parts[0].ignored = dict.fromkeys(ignored, FOREIGN)
    chosen = [file for file in read if file.part in parts]
    profile = profile_of(parts, readable(texts), _meta(chosen), origin)
    profile.meta["warnings"] += missing_ranks(
        profile.meta.get("ranks", ()), profile.meta.get("world_size")
    )
    return profile


def _meta(files: list[TraceFile]) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    if len({file.base_ns for file in files}) == 1 and files[0].base_ns:
        meta["base_time_ns"] = files[0].base_ns
    windows = [file.window for file in files if file.window]
    if windows:
        meta["record_window_ns"] = (
            min(start for start, _ in windows),
            max(end for _, end in windows),
        )
    untraced = {
        rank: file.untraced for file in files if file.untraced for rank in file.part.ranks()
    }
    if untraced:
        meta["untraced"] = untraced
    return meta
