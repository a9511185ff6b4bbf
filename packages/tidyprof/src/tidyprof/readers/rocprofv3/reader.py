"""Reader for CSV and JSON files from rocprofv3."""

from __future__ import annotations

from collections.abc import Collection
from os import PathLike
from pathlib import Path

import pyarrow as pa

from tidyprof.errors import SAME, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.csv_files import same_text
from tidyprof.io.guard import guarded
from tidyprof.readers.rocprofv3.collected import Collected, common_meta, refuse_copies
from tidyprof.readers.rocprofv3.columns import (
    counter_columns,
    kind_of_domain,
    without_a_counters_name,
)
from tidyprof.readers.rocprofv3.frames import (
    RowFrame,
    counters_long,
    counters_of,
    read_rows,
    records_of,
)
from tidyprof.readers.rocprofv3.json_results import JsonResults, read_results
from tidyprof.readers.rocprofv3.recognition import (
    OutputFile,
    ProcessFiles,
    find_processes,
    may_hold_kernels,
)
from tidyprof.readers.rocprofv3.statistics import read_agents, read_statistics
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import profile_of, read_recorded

_NO_KERNELS = (
    "the files have no kernels. Likely cause: the program was recorded without --kernel-trace."
    " The options --hip-trace, --hsa-trace, --rccl-trace and --marker-trace don't include"
    " --kernel-trace."
)
_NOTHING = (
    "there are no records",
    "only the list of agents was written, because the program didn't use a GPU or no kind of"
    " record was selected",
    "record with --kernel-trace, and check that the program runs on a GPU",
)
_ONLY_STATISTICS = (
    "the files contain only statistics. Totals are in meta['stats'], but single events are unknown."
    " Likely cause: the *_trace.csv files weren't copied or were removed."
)


def read_process(
    process: ProcessFiles,
    rank: int | None,
    texts: Codes,
    maximum_bytes: int,
    others: Collection[Path] = (),
) -> list[Collected]:
    """Read the data of the process with these files. JSON results can contain several processes.

    - rank: rank that is used if the file names contain no rank
    - others: unsupported files in the same folder
    """
    traces = process.of_role("trace", "samples")
    counters = process.of_role("counters", "wide counters")
    # JSON results contain everything in the CSV traces and counters, which would count twice.
    rows = traces + counters
    results = process.of_role("json")
    own = Collected(
        process.prefix,
        rank=process.rank if process.rank is not None else rank,
        process=process.process,
    )
    own.files = [file.path for file in process.files if not (results and file in rows)]
    own.ignored = {file.path: SAME for file in rows} if results else {}
    for file in process.of_role("agents"):
        own.agents += read_agents(file.path, maximum_bytes)
    collected = [own]

    def add(file: OutputFile) -> None:
        if file.role == "json":
            found = [
                _of_results(file.path, result, own, texts)
                for result in read_results(file.path, maximum_bytes)
            ]
            if not any(one.has_records for one in found):
                raise NothingRecordedError(file.path, *_NOTHING)
            collected.extend(found)
        elif file.role == "statistics":
            _add_statistics(own, file, maximum_bytes)
        elif file in traces:
            _add_trace(own, file, read_rows(file, maximum_bytes), texts)
        else:
            _add_counters(own, file, read_rows(file, maximum_bytes))

    own.ignored |= read_recorded([*process.of_role("statistics"), *(results or rows)], add)[1]
    own.files = [file for file in own.files if file not in own.ignored]
    lost = [file.name for file in others if may_hold_kernels(file)]
    own.warnings += _suspicions(process, collected, lost)
    for one in collected:
        one.settle_process()
    return collected


def _add_statistics(own: Collected, file: OutputFile, maximum_bytes: int) -> None:
    table, warnings = read_statistics(file.path, file.header, maximum_bytes, own.rank, own.process)
    own.warnings += warnings
    own.stats.setdefault(file.subject, []).append(table)


def _add_trace(own: Collected, file: OutputFile, rows: RowFrame, texts: Codes) -> None:
    frame = rows.rows
    if file.role == "samples":
        method = "STOCHASTIC" if "stall_reason" in frame.column_names else "HOST_TRAP"
        frame = frame.append_column("category", same_text(f"PC_SAMPLING_{method}", len(frame)))
        frame = frame.append_column("end", frame["start"])
    elif "name" not in frame.column_names:
        frame = frame.append_column("name", frame["category"])
    own.warnings += rows.warnings
    if "agent" in frame.column_names or "source_agent" in frame.column_names:
        own.numbering = "index" if rows.indexed else "agent"
    own.events.append(records_of(frame, file.path, kind_of_domain, texts, rows.cut))


def _add_counters(own: Collected, file: OutputFile, rows: RowFrame) -> None:
    frame = rows.rows
    if file.role == "wide counters":
        counters = counter_columns(file.header)
        frame = counters_long(frame, counters)
        if doubtful := without_a_counters_name(counters):
            own.warnings.append(
                f"{file.path.name}: unknown columns were read as counters. Their names don't look"
                f" like counter names: {', '.join(doubtful)}."
            )
    _take_counters(own, frame, file.path, rows.cut)
    own.warnings += rows.warnings


def _take_counters(own: Collected, frame: pa.Table, path: Path, cut: int = 0) -> None:
    table, dropped, warnings = counters_of(frame, path, cut)
    own.counters.append(table)
    own.dropped += dropped
    own.warnings += warnings


def _of_results(path: Path, result: JsonResults, files: Collected, texts: Codes) -> Collected:
    """Return a process from a JSON file. Missing metadata comes from the file name."""
    own = Collected(
        files.name,
        rank=files.rank,
        process=files.process if result.process is None else result.process,
    )
    own.agents, own.facts, own.numbering = result.agents, result.facts, "agent"
    own.events = [records_of(frame, path, kind_of_domain, texts) for frame in result.records]
    if result.counters is not None:
        _take_counters(own, result.counters, path)
    return own


def _suspicions(process: ProcessFiles, found: list[Collected], lost: list[str]) -> list[str]:
    """Return likely reasons why kernels are missing.

    - lost: names of unreadable files that should contain kernels
    """
    name = (process.files[0].path if len(process.files) == 1 else process.prefix).name
    no_kernels = (
        f"the files have no kernels. {lost[0]} is damaged or isn't a file, so it wasn't read."
        if lost
        else _NO_KERNELS
    )
    if not any(len(records) for own in found for records in own.events):
        has_only_stats = bool(found[0].stats) and not any(own.counters for own in found)
        return [f"{name}: {_ONLY_STATISTICS}"] if has_only_stats else []
    return [] if any(own.has_device_work for own in found) else [f"{name}: {no_kernels}"]


@guarded
def read_rocprofv3(
    path: str | PathLike[str],
    *,
    only: Collection[Path] = (),
    rank: int | None = None,
    origin: Origin | None = None,
    maximum_bytes: int = MAXIMUM_BYTES,
) -> Profile:
    """Read CSV and JSON output from rocprofv3 (ROCm 6.2 to 7.x). CSV files that rocpd converted
    from a database are also supported.

    - path: path to a file, to a folder (`--output-directory`) with subfolders, or to a folder plus
      the common prefix of one process's file names. For example, the prefix `out/908` matches
      `out/908_kernel_trace.csv`. If a process has JSON results, its CSV traces are ignored because
      they contain the same events.
    - only: files to read from a folder. If empty, all files are read.
    - rank: see `tidyprof.read`.
    - origin: see `tidyprof.read`.
    - maximum_bytes: see `tidyprof.read`.

    The times in `events` are in nanoseconds since the node booted. These columns of
    `tables.contract` have a special meaning:

    - device: agent number, such as 4 in `Agent 4`. Agents include CPUs, so this number isn't HIP's
      device number.
    - source_category: domain in the file, such as KERNEL_DISPATCH, MEMORY_COPY, HIP_RUNTIME_API_EXT
      or MARKER_CORE_API
    - dispatch_id: number of the dispatch, which is also set for samples
    - grid: number of work-items (not workgroups)
    - bytes: size of a memory allocation or of a copy. Only JSON files contain the size of copies.
    - lds_bytes: LDS per workgroup, which CSV files round up to a multiple of 512
    - source_device: agent that a copy reads from
    - destination_device: agent that a copy writes to

    For a copy, `device` is the agent that is a GPU, or the destination if both agents are GPUs.

    Samples of the program counter also have the columns `source_line`, `instruction_type`,
    `stall_reason`, `exec_mask`, `wave_issued` and `wave_count`. Their `name` is the instruction,
    and their duration is 0.

    Correlation IDs are unique within a process. Kernels and copies have a process but no thread.

    `counters` has one row per dispatch and counter. The time of a value is the start of its
    dispatch, which ran alone during the measurement. ROCm 6.2 doesn't write times, so `time_ns` is
    0 and `duration_ns` is `<NA>`. The unit is unknown.

    `meta` contains the common entries and these, if known:

    - stats: tables from `--stats` with STATISTICS_COLUMNS, by subject, such as `kernel`, `hip_api`
      or `domain`
    - agents: list with a dictionary per CPU and GPU
    - device_numbering: `agent`, or `index` if the program was profiled with
      `--agent-index type-relative`
    - command: command line of the program
    - record_window_ns: start and end of the recorded time interval

    Raises ProfileReadError if a file can't be read.
    """
    path = Path(path)
    processes, others = find_processes(path, only)
    texts = Codes()
    of_processes, nothing = read_recorded(
        _of_rank(path, processes, rank),
        lambda process: read_process(process, rank, texts, maximum_bytes, others),
    )
    found = [own for collected in of_processes for own in collected]
    found[0].ignored |= others | nothing
    refuse_copies(path, found)
    if not any(own.has_records for own in found):
        raise NothingRecordedError(path, *_NOTHING)
    return profile_of(
        [own.part(texts) for own in found],
        texts,
        common_meta(found) | {"tool": "rocprofv3"},
        origin,
    )


def _of_rank(path: Path, processes: list[ProcessFiles], rank: int | None) -> list[ProcessFiles]:
    known = sorted({process.rank for process in processes if process.rank is not None})
    if rank is None or (not known and len(processes) == 1):
        return processes
    if rank in known:
        return [process for process in processes if process.rank == rank]
    raise ProfileReadError(
        path,
        (
            f"no rank {rank}, only {', '.join(map(str, known))}"
            if known
            else f"the file names of {len(processes)} processes contain no rank"
        ),
        "the rank is wrong, or the name of the output file didn't contain %rank%",
        "omit rank to read all processes",
    )
