"""Reader for tables from rocprof 1 and rocprofv2 (until ROCm 7): kernels, counters and
statistics.
"""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from pathlib import Path

import numpy as np

from tidyprof.errors import SAME, ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.readers.columns import column_table
from tidyprof.readers.csv_rows import read_rows
from tidyprof.readers.rocprof_v1.recognition import OF_ROCPROFV2, find_runs
from tidyprof.readers.rocprofv3.collected import BARRIER, Collected, combined
from tidyprof.readers.rocprofv3.recognition import OutputFile
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile

_NO_KERNELS = (
    "the file has no kernels. Likely cause: only host calls were recorded, or the program ended"
    " before its kernels ran."
)
_BARRIER = "<barrier packet>"
"""Name of barrier packets in the list of kernels. Barrier packets preserve order but do no work."""

_TABLE = column_table("rocprof_v1")


@guarded
def read_rocprof_v1(
    path: str | PathLike[str], *, origin: Origin | None = None, maximum_bytes: int = MAXIMUM_BYTES
) -> Profile:
    """Read tables from rocprof 1 (`results.csv`, `results.*stats.csv`) and rocprofv2
    (`results_*.csv`). The database and the JSON file from rocprof 1 aren't supported.

    - path: path to a file or to the tool's output folder.
    - origin: see `tidyprof.read`.
    - maximum_bytes: see `tidyprof.read`.

    `events`, `counters` and `meta` are the same as in `read_rocprofv3`. The counters come from the
    `pmc:` lines of an input file. These entries have a special meaning:

    - source_category: OPS for kernels
    - device: agent number, which also counts CPUs. As a result, `GPU2` in rocprof isn't device 2 in
      HIP.
    - grid: product of the three grid sizes in work-items, such as `[1024]`
    - block: product of the three workgroup sizes in work-items
    - launch_ns: time of the dispatch in nanoseconds
    - stats: statistics without the columns `min_ns`, `max_ns` and `std_ns`. The values in `mean_ns`
      are truncated to integers.

    Raises ProfileReadError if a file can't be read.
    """
    path = Path(path)
    runs, others = find_runs(path)
    texts = Codes()
    found = [_read_run(files, texts, maximum_bytes) for files in runs]
    found[0].ignored |= others
    is_v2 = any({*file.header} >= OF_ROCPROFV2 for files in runs for file in files)
    return combined(path, found, texts, "rocprofv2" if is_v2 else "rocprof", origin)


def _read_run(files: list[OutputFile], texts: Codes, maximum_bytes: int) -> Collected:
    own = Collected(files[0].prefix, facts={"device_numbering": "agent"})
    kernels = [file for file in files if file.contents == "kernels"]
    own.ignored = dict.fromkeys((file.path for file in kernels[1:]), SAME)
    own.files = [file.path for file in files if file.path not in own.ignored]
    for file in (file for file in files if file.contents == "statistics"):
        own.add_statistics(file, _TABLE, maximum_bytes)
    for file in kernels[:1]:
        _read_kernels(own, file, texts, maximum_bytes)
    own.warn_without_kernels(files[0].path.name, _NO_KERNELS)
    return own


def _read_kernels(own: Collected, file: OutputFile, texts: Codes, maximum_bytes: int) -> None:
    """Add the kernels and counters from a table."""
    rows = read_rows(file.path, file.header, _TABLE, texts, maximum_bytes)
    has_times = {"start", "end"} <= rows.columns.keys()
    if not has_times and not rows.counters:
        raise ProfileReadError(
            file.path,
            "the file contains no records",
            "the program didn't use a GPU, or it ended before rocprof wrote its results",
            "record with --hip-trace, and check that the program runs on a GPU",
        )
    if rows.counters:
        # Counters use up the columns, which events need as well.
        own.add_counters(replace(rows, columns=dict(rows.columns)), file.path, texts)
    if has_times:
        is_barrier = rows.columns["name"] == texts[_BARRIER]
        rows.columns["category"] = np.where(is_barrier, texts[BARRIER], texts["OPS"])
        own.add_events(rows, file.path, _TABLE, texts)
