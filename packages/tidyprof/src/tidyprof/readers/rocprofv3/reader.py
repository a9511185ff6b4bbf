"""Reader for CSV and JSON files from rocprofv3."""

from __future__ import annotations

from collections.abc import Collection
from os import PathLike
from pathlib import Path

import numpy as np

from tidyprof.errors import SAME, NothingRecordedError, ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.readers.columns import column_table
from tidyprof.readers.csv_rows import Rows, read_rows
from tidyprof.readers.rocprofv3.collected import Collected, combined
from tidyprof.readers.rocprofv3.json_results import add_results
from tidyprof.readers.rocprofv3.recognition import OutputFile, find_processes, stated_process
from tidyprof.readers.rocprofv3.statistics import read_agents
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import rank_in_name, read_recorded, selected_rank

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

    - path: path to a file, or to a folder (`--output-directory`) with subfolders. If a process has
      JSON results, its CSV traces are ignored because they contain the same events. Counters and
      samples are read only from CSV files.
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
    root = path if path.is_dir() else path.parent
    texts = Codes()

    def read(prefix: Path) -> Collected:
        own = Collected(prefix, rank=rank_in_name(prefix, root), process=stated_process(prefix))
        _read_process(own, processes[prefix], texts, maximum_bytes)
        return own

    found, nothing = read_recorded(processes, read)
    if not any(own.has_records for own in found):
        raise NothingRecordedError(path, *_NOTHING)
    found = selected_rank(path, found, rank)
    found[0].ignored |= others | nothing
    return combined(path, found, texts, "rocprofv3", origin)


def _read_process(
    own: Collected, files: list[OutputFile], texts: Codes, maximum_bytes: int
) -> None:
    """Add the contents of the files of a process."""
    if any(file.contents == "json" for file in files):
        # JSON results contain all events in the CSV files, which would count twice.
        own.ignored = {file.path: SAME for file in files if file.contents == "trace"}

    def add(file: OutputFile) -> None:
        if file.contents == "json":
            add_results(file.path, own, texts, maximum_bytes)
            if not own.has_records:
                raise NothingRecordedError(file.path, *_NOTHING)
        elif file.contents == "statistics":
            own.add_statistics(file, _TABLE, maximum_bytes)
        elif file.contents == "agents":
            own.agents += read_agents(file.path, maximum_bytes)
        else:
            rows = read_rows(file.path, file.header, _TABLE, texts, maximum_bytes)
            _refuse_several_databases(file.path, rows)
            if file.contents == "counters":
                own.add_counters(rows, file.path, texts)
                return
            if file.contents == "samples":
                start = rows.columns["start"]
                method = "STOCHASTIC" if "stall_reason" in rows.columns else "HOST_TRAP"
                rows.columns["category"] = texts.of([f"PC_SAMPLING_{method}"] * len(start))
                rows.columns["end"] = start.copy()
            own.add_events(rows, file.path, _TABLE, texts)

    wanted = [file for file in files if file.path not in own.ignored]
    own.ignored |= read_recorded(wanted, add)[1]
    own.files = [file.path for file in files if file.path not in own.ignored]
    name = (files[0].path if len(files) == 1 else own.path).name
    own.warn_without_kernels(name, _NO_KERNELS)
    own.settle_process()


def _refuse_several_databases(path: Path, rows: Rows) -> None:
    databases = len(np.unique(rows.columns.pop("guid", np.zeros(1))))
    if databases > 1:
        # Correlation IDs are unique only within a database.
        raise ProfileReadError(
            path,
            f"the rows are from {databases} databases (column Guid)",
            "rocpd converted the databases of several processes together",
            "read the databases themselves, or convert each database separately",
        )


_TABLE = column_table("rocprofv3")
