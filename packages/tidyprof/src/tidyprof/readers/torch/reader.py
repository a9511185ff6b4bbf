"""Reader for Chrome traces from torch.profiler.

`events` has these columns after the columns of every Profile. Times are in nanoseconds since 1970,
and `device` is the number in the file.
  - source_category: category in the file (`kernel`, `gpu_memcpy`, `cuda_runtime`, `cpu_op`, ...)
  - external_id: Int64, `External id`: the operator that requested the event
  - operator: name of that operator for device and runtime events. It must enclose the launch.
  - collective: name of the collective operation, if the file contains it
  - group_size: Int32, number of ranks in that operation, if the file contains it
  - bytes: Int64, for copies and fills, from the launch if the copy has none. For collectives with
    element counts and types in the file, the larger size: the whole buffer of an all-reduce, the
    gathered side of an all-gather, or the scattered side of a reduce-scatter
  - grid, block: for kernels, as a string from the file or the launch. `grid` counts workgroups or
    work-items. In rocprofiler-sdk traces from 2025, grid and block are swapped.
  - input_shapes, input_types: for operators, recorded with `record_shapes=True`: `[[64, 3], []]`
    and `["float", "Scalar"]` as strings from the file. A value that isn't a tensor has an empty
    shape.
  - launch_ns: Int64, start of the call with the same correlation id, or <NA>
  - launch_thread: Int64, thread of that call

Correlation ids are unique only within a rank. Device events have no thread, and their process comes
from the call. Annotations with a device (`gpu_user_annotation`) are host ranges that the profiler
projects onto kernels.

`counters` has the allocator's memory if it was recorded with `profile_memory=True`.

`meta` has the common entries and these, if known:
  - backend: rocm-roctracer, rocm-sdk, rocm, cuda, xpu or cpu
  - device_numbering: `agent` (ROCm agents, not HIP devices) or `index`
  - untraced: rank, or None -> times before the trace, see `meta.untraced`
  - shared_launch_records: number of calls that share a correlation id with an enclosing call, which
    counts as the launch
  - device_properties, distributed, world_size, rank or ranks, hip_runtime_version, options,
    base_time_ns, record_window_ns, events_total, events_by_category, not_kept,
    device_events_without_launch, warnings
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
    """Facts of one trace for comparison with the other traces in its folder.

    warnings -- warnings about the file itself.
    """

    path: Path
    extent: Extent
    world_size: int | None = None
    warnings: tuple[str, ...] = ()


def member_of(profile: Profile) -> Member:
    """Return the facts of a profile from one file of a folder."""
    extent, size = extent_of_profile(profile), profile.meta.get("world_size")
    of_all = [*suspicions([extent]), *missing_ranks(extent.ranks, size)]
    own = tuple(warning for warning in profile.meta.get("warnings", ()) if warning not in of_all)
    return Member(Path(profile.meta["files"][0]), extent, size, own)


def warnings_of(members: Sequence[Member]) -> list[str]:
    """Return the warnings about a folder."""
    own = [warning for member in members for warning in member.warnings]
    ranks = {rank for member in members for rank in member.extent.ranks}
    sizes = {member.world_size for member in members}
    size = sizes.pop() if len(sizes) == 1 else None
    return [*own, *suspicions(member.extent for member in members), *missing_ranks(ranks, size)]


def missing_ranks(ranks: Collection[int | None], world_size: int | None) -> list[str]:
    """Return a warning if some ranks are missing. A single rank isn't suspicious."""
    here = len(set(ranks) - {None})
    return (
        [f"only {here} of {world_size} ranks are in this profile."]
        if world_size and 1 < here < world_size
        else []
    )


def files_of_folder(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the traces in a folder, and its other JSON files. Raises ProfileReadError if there is
    no trace, or if a file is empty, because it may be a rank's trace.
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
            f"none of the {len(named)} JSON files in the folder is a torch.profiler trace",
            "this is the wrong folder, or the profiler's schedule never reached a recording step",
            "pass the folder that export_chrome_trace or tensorboard_trace_handler wrote to",
        )
    return traces, _others(named, traces)


def _others(named: Sequence[Path], traces: Collection[Path]) -> list[Path]:
    known = set(traces)
    return [file for file in named if file not in known]


def traces_of_ranks(folder: Path) -> list[Path]:
    """Return the traces of a folder with several. If a file's name contains a rank but the file
    doesn't start like JSON, for example because it contains zeros, include it.
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
    """Return the unread files of a folder with these traces -> reason."""
    return dict.fromkeys(_others(candidates(folder), traces), FOREIGN) | no_files([folder])


def refuse_mixed_ranks(folder: Path, members: Sequence[Member]) -> None:
    """Raise ProfileReadError if a file in the folder has no rank, or if two files cover the same
    time of a rank.
    """
    if len(members) == 1:
        return
    unknown = [within(folder, member.path) for member in members if None in member.extent.ranks]
    if unknown:
        raise ProfileReadError(
            folder,
            f"the folder has {len(members)} traces, including {len(unknown)} without a rank"
            f" (such as {unknown[0]!r})",
            "they are separate runs, or the job had no process group when it was recorded",
            "read them one by one, or add rank0, rank1, ... to their names",
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
    """Read a torch.profiler trace from ROCm, CUDA, XPU or a CPU.

    path             -- a .json file, which may be compressed with gzip or zstd, a folder with one
                        file or folder per rank, or a file of several ranks that TraceLens's
                        TraceFuse merged.
    rank             -- read only this rank. If the file has no rank, assign this one.
    origin           -- where the profile comes from; unknown if None.
    progress         -- show a progress bar on stderr. The default shows it on a terminal if reading
                        takes more than two seconds.
    python_functions -- also keep the Python call stack (`with_stack=True`) as annotations. By
                        default it is only counted, because it is most of such a file.
    root             -- folder that a file belongs to. The names of folders in between can also
                        contain the rank.
    maximum_bytes    -- limit for the size of an unpacked file.

    The module docstring describes the tables and `meta`.

    Raises ProfileReadError if a file can't be read.
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
