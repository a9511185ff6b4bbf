"""Reader for the files of rocmProfileData (`.rpd`)."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.readers.databases import database_files
from tidyprof.readers.rpd.file import read_file
from tidyprof.readers.rpd.recognition import PATTERNS, is_rpd
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.ignored import FOREIGN
from tidyprof.tables.profiles import profile_of, selected_rank
from tidyprof.tables.ranks import rank_in_name, refuse_mixed_ranks


@guarded
def read_rpd(
    path: str | PathLike[str],
    *,
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read a file of rocmProfileData, schema version 2 or 3.

    path -- a .rpd file, or a folder with one file per rank, with `rank0`, `rank1`, ... in its name or its folder's.
    rank, origin, maximum_bytes -- as of `tidyprof.read`.

    `events` (times in ns of the node's monotonic clock) has the columns of `tables.contract`. Here
      source_category  operation type (`KernelExecution`, `CopyHostToDevice`, ...); of host calls the domain,
                       which schema 2 does not have
      operator         known if the program ran in torch.autograd.profiler.emit_nvtx()
      bytes            <NA> above 2 GiB, where the file leaves it blank, and modulo 2**32 above 4 GiB
      grid             what the launching call got: workgroups for hipLaunchKernel, work-items for
                       hipExtModuleLaunchKernel and with rocprofiler-sdk
      correlation_id   identifier of the call, also for what it launched; several operations of one call
                       (hipGraphLaunch) share it, and have no grid, block or bytes
      stream           HIP's pointer to the stream, 0 for the default one
    Kernels in a HIP graph have the type `Task`. Ranges that the program marked are annotations, named by their text.
    Events on a device have no thread; their process is that of the call.

    `counters` has the monitors (`sclk`, the GPU's clock in MHz; `device` as rocm-smi counts) and in schema 3 hardware
    counters.

    `meta` has, besides the common entries and where stated: `schema_version`, `sessions`, `clock`, `device_numbering`
    (`index`; files of before June 2024 number ROCm's agents, and say so nowhere), `node_stride` (in schema 3 the
    device is node * node_stride + GPU), `calls_with_several_operations`.

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    files, ignored = database_files(path, is_rpd, PATTERNS, "rpd files")
    texts = Codes()
    read, shared = zip(*(read_file(file, texts, maximum_bytes) for file in files), strict=True)
    for part in read:
        part.rank = rank_in_name(part.path, path)
    if path.is_dir():
        refuse_mixed_ranks(path, [(part.path.name, part.rank) for part in read])
    read[0].ignored = dict.fromkeys(ignored, FOREIGN)
    meta = {"calls_with_several_operations": sum(shared)}
    return profile_of(selected_rank(path, read, rank), texts, meta, origin)
