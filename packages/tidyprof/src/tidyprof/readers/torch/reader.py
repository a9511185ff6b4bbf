"""Reader for Chrome traces from torch.profiler.

`events` has the columns of every Profile, followed by the columns below. Times are in nanoseconds
since 1970, and `device` is the device number in the file.

- source_category: category in the file, such as `kernel`, `gpu_memcpy`, `cuda_runtime` or `cpu_op`
- external_id: `External id` of the operator that requested the event (Int64)
- operator: name of the operator that requested a device or runtime event. The operator must enclose
  the launch.
- collective: name of the collective operation, if the file contains it
- group_size: number of ranks in the collective operation, if the file contains it (Int32)
- bytes: size of a copy, fill or collective (Int64)
- grid: number of workgroups or work-items of a kernel, as a string from the file or the launch
- block: size of a kernel's workgroups, as a string from the file or the launch
- input_shapes: shapes of an operator's inputs, as a string from the file, such as `[[64, 3], []]`.
  An input that isn't a tensor has an empty shape.
- input_types: types of an operator's inputs, as a string from the file, such as
  `["float", "Scalar"]`
- launch_ns: start of the call with the same correlation ID (Int64), or `<NA>`
- launch_thread: thread of the call with the same correlation ID (Int64)

If a copy has no `bytes`, the value comes from its launch. Collectives have `bytes` if the file
contains element counts and types. In that case, it is the larger size: the whole buffer of an
all-reduce, the gathered side of an all-gather, or the scattered side of a reduce-scatter.

In rocprofiler-sdk traces from 2025, `grid` and `block` are swapped. Shapes and types are recorded
only with `record_shapes=True`.

Correlation IDs are unique only within a rank. Device events have no thread, and their process comes
from the call. Annotations with a device (`gpu_user_annotation`) are host ranges that the profiler
projects onto kernels.

`counters` contains the allocator's memory if it was recorded with `profile_memory=True`.

`meta` contains the common entries and these, if known:

- backend: profiling library, which is rocm-roctracer, rocm-sdk, rocm, cuda, xpu or cpu
- device_numbering: `agent` if the device numbers are the numbers of ROCm agents instead of HIP
  devices. The other value is `index`.
- untraced: each rank's times before the trace, which `meta.untraced` describes. The key is None if
  the rank is unknown.

`meta` can also contain `device_properties`, `distributed`, `world_size`, `rank`, `ranks`,
`hip_runtime_version`, `base_time_ns`, `events_total`,
`events_by_category`, `not_kept` and `warnings`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from tidyprof.errors import FOREIGN, ProfileReadError
from tidyprof.io.byte_stream import HEAD_BYTES, MAXIMUM_BYTES, head_or_nothing
from tidyprof.io.guard import guarded
from tidyprof.readers.torch.events import no_texts, readable
from tidyprof.readers.torch.file import TracePart, read_file
from tidyprof.readers.torch.recognition import candidates, is_trace
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import (
    Extent,
    profile_of,
    rank_in_name,
    refuse_mixed_ranks,
    selected_rank,
    suspicions,
)


def warnings_of(extents: Sequence[Extent]) -> list[str]:
    """Return the warnings about a folder of traces."""
    own = [warning for extent in extents for warning in extent.warnings]
    ranks = {rank for extent in extents for rank in extent.ranks}
    sizes = {extent.world_size for extent in extents}
    size = sizes.pop() if len(sizes) == 1 else None
    return [*own, *suspicions(extents), *missing_ranks(ranks, size)]


def missing_ranks(ranks: Collection[int | None], world_size: int | None) -> list[str]:
    """Return a warning if some ranks are missing. A single rank doesn't cause a warning."""
    here = len(set(ranks) - {None})
    return (
        [f"only {here} of {world_size} ranks are in this profile."]
        if world_size and 1 < here < world_size
        else []
    )


def traces_in(folder: Path) -> list[Path]:
    """Return the traces in a folder."""
    return [file for file in candidates(folder) if is_trace(head_or_nothing(file, HEAD_BYTES))]


def traces_of_ranks(folder: Path) -> list[Path]:
    """Return the traces in a folder, or an empty list if there are fewer than two files.

    If a file name contains a rank and differs from a trace's name only in numbers, the file is
    included even if it isn't a trace, for example because it contains only zeros.
    """
    traces = traces_in(folder) if folder.is_dir() else []
    names = {_without_numbers(file) for file in traces}
    chosen = [
        file
        for file in (candidates(folder) if traces else ())
        if file in traces
        or (_without_numbers(file) in names and rank_in_name(file, folder) is not None)
    ]
    return chosen if len(chosen) > 1 else []


def _without_numbers(file: Path) -> str:
    return re.sub(r"\d+", "#", file.name)


def left_out(folder: Path, traces: Collection[Path]) -> dict[Path, str]:
    """Return the unread files in a folder with these traces, and the reasons."""
    return dict.fromkeys((file for file in candidates(folder) if file not in traces), FOREIGN)


@guarded
def read_torch_trace(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    python_functions: bool = False,
    root: str | PathLike[str] | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read a torch.profiler trace from ROCm, CUDA, XPU or a CPU.

    - path: path to a .json file, which can be compressed with gzip or zstd. The path can also be a
      folder with one file or subfolder per rank, or a file with several ranks that TraceLens's
      TraceFuse merged.
    - rank: the only rank to read. If the file contains no rank, this rank is assigned.
    - origin: origin of the profile, or None if it is unknown.
    - python_functions: True to keep the Python call stack (`with_stack=True`) as annotations. By
      default, these events are only counted, because most events in such a file belong to the call
      stack.
    - root: folder that contains the file at any level. The names of the folders in between can also
      contain the rank.
    - maximum_bytes: maximum size of an uncompressed file.

    The module docstring describes the tables and `meta`.

    Raises ProfileReadError if a file can't be read.
    """
    path = Path(path)
    files = traces_in(path) if path.is_dir() else [path]
    if not files:
        raise ProfileReadError(
            path,
            "none of the JSON files in the folder is a torch.profiler trace",
            "this is the wrong folder, or the profiler's schedule never reached a recording step",
            "pass the folder with the files from export_chrome_trace or tensorboard_trace_handler",
        )
    texts = no_texts()
    parts = [read_file(file, texts, python_functions, maximum_bytes) for file in files]
    for part in parts:
        if part.ranks() == {None}:
            part.records.columns.pop("rank", None)
            part.rank = rank_in_name(part.path, path if root is None else Path(root))
    if path.is_dir():
        refuse_mixed_ranks(path, [part.extent() for part in parts])
    parts = selected_rank(path, parts, rank)
    parts[0].ignored = left_out(path, files)
    profile = profile_of(parts, readable(texts), _meta(parts), origin)
    profile.meta["warnings"] += missing_ranks(
        profile.meta.get("ranks", ()), profile.meta.get("world_size")
    )
    return profile


def _meta(parts: Sequence[TracePart]) -> dict[str, Any]:
    meta: dict[str, Any] = {}
    if len({part.base_ns for part in parts}) == 1 and parts[0].base_ns:
        meta["base_time_ns"] = parts[0].base_ns
    if stated := {rank: part.untraced for part in parts if part.untraced for rank in part.ranks()}:
        meta["untraced"] = stated
    return meta
