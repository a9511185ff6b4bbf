"""Reader for tables from rocprof 1 and rocprofv2 (until ROCm 7): kernels, counters and statistics.

The columns are defined in bin/tblextr.py and plugin/file in https://github.com/ROCm/rocprofiler.
"""

from __future__ import annotations

from functools import partial
from os import PathLike
from pathlib import Path

import pyarrow as pa

from tidyprof.errors import DAMAGED, SAME, ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.csv_files import TEXT, CsvFile, mapped
from tidyprof.io.guard import guarded
from tidyprof.readers.rocprof_v1.recognition import V1File, find_runs
from tidyprof.readers.rocprofv3.collected import BARRIER, Collected, common_meta, refuse_copies
from tidyprof.readers.rocprofv3.frames import counters_long, counters_of, records_of
from tidyprof.readers.rocprofv3.statistics import read_statistics
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import profile_of

_NO_KERNELS = (
    "the file has no kernels. Likely cause: only host calls were recorded, or the program ended"
    " before its kernels ran."
)
_ONLY_STATISTICS = (
    "the file contains only statistics. Totals are in meta['stats'], but single events are unknown."
)

_NAMES = {
    "BeginNs": "start",
    "EndNs": "end",
    "pid": "process",
    "tid": "thread",
    "KernelName": "name",
    "Index": "dispatch_id",
    "gpu-id": "agent",
    "queue-id": "queue",
    "DispatchNs": "launch",
    "grd": "grid_x",
    "wgr": "block_x",
    "lds": "lds_bytes",
    "scr": "scratch_bytes",
    "vgpr": "vgprs",
    "arch_vgpr": "vgprs",
    "accum_vgpr": "accum_vgprs",
    "sgpr": "sgprs",
} | {
    "Start_Timestamp": "start",
    "End_Timestamp": "end",
    "PID": "process",
    "TID": "thread",
    "Kernel_Name": "name",
    "Dispatch_ID": "dispatch_id",
    "GPU_ID": "agent",
    "Queue_ID": "queue",
    "Correlation_ID": "correlation_id",
    "Grid_Size": "grid_x",
    "Workgroup_Size": "block_x",
    "LDS_Per_Workgroup": "lds_bytes",
    "Scratch_Per_Workitem": "scratch_bytes",
    "Arch_VGPR": "vgprs",
    "Accum_VGPR": "accum_vgprs",
    "SGPR": "sgprs",
}
"""Columns of rocprof 1 and rocprofv2, and their names in `records_of`."""

_NOT_COUNTERS = frozenset(
    {"queue-index", "wave_size", "Wave_Size", "sig", "obj", "CompleteNs", "DurationNs"}
)
_BARRIER = "<barrier packet>"
"""Name of barrier packets in the list of kernels. Barrier packets preserve order but do no work."""


@guarded
def read_rocprof_v1(
    path: str | PathLike[str], *, origin: Origin | None = None, maximum_bytes: int = MAXIMUM_BYTES
) -> Profile:
    """Read tables from rocprof 1 (`results.csv`, `results.*stats.csv`) and rocprofv2
    (`results_*.csv`). The database and the JSON file from rocprof 1 aren't supported.

    - path: path to a file, to the tool's output folder, or to a folder plus the common prefix of
      the file names.
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
    refuse_copies(path, found)
    is_v2 = any("Dispatch_ID" in file.header for files in runs for file in files)
    meta = common_meta(found) | {"tool": "rocprofv2" if is_v2 else "rocprof"}
    return profile_of([own.part(texts) for own in found], texts, meta, origin)


def _read_run(files: list[V1File], texts: Codes, maximum_bytes: int) -> Collected:
    own = Collected(files[0].prefix, numbering="agent")
    kernels = [file for file in files if file.role == "kernels"]
    own.ignored = dict.fromkeys((file.path for file in kernels[1:]), SAME)
    own.files = [file.path for file in files if file.path not in own.ignored]
    for file in (file for file in files if file.role == "statistics"):
        table, warnings = read_statistics(file.path, list(file.header), maximum_bytes)
        own.warnings += warnings
        own.stats.setdefault(file.subject, []).append(table)
    if kernels:
        _read_kernels(own, kernels[0], texts, maximum_bytes)
    else:
        own.warnings.append(f"{files[0].path.name}: {_ONLY_STATISTICS}")
    return own


def _read_kernels(own: Collected, file: V1File, texts: Codes, maximum_bytes: int) -> None:
    """Add the kernels and counters from a table."""
    kernels, samples, cut, warnings = _kernel_records(file, maximum_bytes)
    own.warnings += warnings
    if {"start", "end"} <= set(kernels.column_names):
        own.events.append(records_of(kernels, file.path, {"OPS": "kernel"}.get, texts, cut))
    if samples is not None:
        table, dropped, warnings = counters_of(samples, file.path)
        own.counters.append(table)
        own.dropped += dropped
        own.warnings += warnings
    _refuse_nothing(file, own)
    if not own.has_device_work and not own.counters:
        own.warnings.append(f"{file.path.name}: {_NO_KERNELS}")


def _counters_of_header(file: V1File) -> list[str]:
    return [
        column
        for column in file.header
        if column and column not in _NAMES and column not in _NOT_COUNTERS
    ]


def _kernel_records(
    file: V1File, maximum_bytes: int
) -> tuple[pa.Table, pa.Table | None, int, list[str]]:
    """Return the dispatches from a results.csv file and their counters, with one row per dispatch
    and counter. Also return the number of incomplete rows, and warnings.
    """
    counters, named = _counters_of_header(file), [column for column in file.header if column]
    types: dict[str, pa.DataType] = {}
    for column in file.header:
        if column in counters:
            # `None` means that there is no value.
            types[column] = TEXT
        elif column in _NAMES:
            types[column] = TEXT if _NAMES[column] == "name" else pa.int64()
    # The last cell shows whether a row is complete.
    types.setdefault(named[-1], TEXT)
    csv_file = CsvFile(file.path, list(file.header), maximum_bytes)
    rows, cut = csv_file.complete_rows(csv_file.frame(types), named[-1])
    columns = {_NAMES[column]: rows[column] for column in types if column in _NAMES}
    columns["category"] = mapped(
        columns["name"], lambda name: BARRIER if name == _BARRIER else "OPS", TEXT
    )
    kernels = pa.table(columns)
    values = {
        column: mapped(rows[column], partial(_value, file.path, column), pa.float64())
        for column in counters
    }
    samples = _samples(kernels, values) if counters else None
    return kernels, samples, cut, csv_file.warnings + csv_file.open_end()


def _value(path: Path, counter: str, text: str) -> float | None:
    try:
        return None if text == "None" else float(text)
    except ValueError:
        found = f"{text[:40]!r} in the column {counter!r} isn't a number"
        raise ProfileReadError(path, found, *DAMAGED) from None


def _samples(kernels: pa.Table, values: dict[str, pa.Array]) -> pa.Table:
    sizes = {"grid_x": "work_items", "block_x": "workgroup_size"}
    named = {
        sizes.get(name, name): kernels[name] for name in kernels.column_names if name != "launch"
    }
    return counters_long(pa.table(named | values), values)


def _refuse_nothing(source: V1File, own: Collected) -> None:
    if not any(records.total for records in own.events) and not own.counters:
        raise ProfileReadError(
            source.path,
            "the file contains no records",
            "the program didn't use a GPU, or it ended before rocprof wrote its results",
            "record with --hip-trace, and check that the program runs on a GPU",
        )
