"""The files of one process that rocprofv3 recorded, as `ProcessRecords`."""

from __future__ import annotations

from pathlib import Path

from tidyprof.readers.rocprofv3.agents import read_agents
from tidyprof.readers.rocprofv3.csv_rows import RowFrame, counters_long, read_rows
from tidyprof.readers.rocprofv3.files import OutputFile, ProcessFiles
from tidyprof.readers.rocprofv3.headers import counter_columns, kind_of_domain
from tidyprof.readers.rocprofv3.json_results import JsonResults, read_results
from tidyprof.tables.contract import DEVICE_KINDS
from tidyprof.tables.runs import ProcessRecords
from tidyprof.tables.statistics import read_statistics

_NO_KERNELS = (
    "no kernel in it. Likely cause: recorded without --kernel-trace, which rocprofv3's --hip-trace, --hsa-trace, "
    "--rccl-trace and --marker-trace do not include."
)
_ONLY_STATISTICS = (
    "only statistics, no trace: totals are in meta['stats'], single events are not known. "
    "Likely cause: the *_trace.csv files were left behind or removed."
)


def read_process(process: ProcessFiles, rank: int | None, maximum_bytes: int) -> list[ProcessRecords]:
    """The process of these files; results in JSON can hold several.

    rank -- the rank where their names state none. Raises ProfileReadError if a file is damaged.
    """
    traces, counters = process.of_role("trace", "samples"), process.of_role("counters", "wide counters")
    rows = traces + counters
    results = process.of_role("json")
    own = ProcessRecords(process.prefix, rank=process.rank if process.rank is not None else rank)
    own.process = process.process
    own.files = [file.path for file in process.files if not (results and file in rows)]
    own.ignored = [file.path for file in rows] if results else []
    for file in process.of_role("agents"):
        own.agents += read_agents(file.path, maximum_bytes)
    for file in process.of_role("statistics"):
        table, warnings = read_statistics(file.path, file.header, maximum_bytes, own.rank, own.process)
        own.warnings += warnings
        own.stats.setdefault(file.subject, []).append(table)
    found = [own]
    if results:
        found += [
            _of_results(file.path, result, own) for file in results for result in read_results(file.path, maximum_bytes)
        ]
    else:
        for file in traces:
            _add_trace(own, file, read_rows(file, maximum_bytes))
        for file in counters:
            _add_counters(own, file, read_rows(file, maximum_bytes))
    own.warnings += _suspicions(process, found)
    return found


def _add_trace(own: ProcessRecords, file: OutputFile, rows: RowFrame) -> None:
    import polars as pl

    records = rows.rows
    if file.role == "samples":
        method = "STOCHASTIC" if "stall_reason" in records.columns else "HOST_TRAP"
        category = pl.lit(f"PC_SAMPLING_{method}").cast(pl.Categorical)
        records = records.with_columns(category.alias("category"), pl.col("start").alias("end"))
    elif "name" not in records.columns:
        records = records.with_columns(pl.col("category").alias("name"))
    own.warnings += rows.warnings
    if "agent" in records.columns or "source_agent" in records.columns:
        own.numbering = "index" if rows.indexed else "agent"
    own.add_events(file.path, records, kind_of_domain, rows.cut)


def _add_counters(own: ProcessRecords, file: OutputFile, rows: RowFrame) -> None:
    records = rows.rows
    if file.role == "wide counters":
        records = counters_long(records, counter_columns(file.header))
    own.warnings += rows.warnings
    own.add_counters(file.path, records, rows.cut)


def _of_results(path: Path, result: JsonResults, files: ProcessRecords) -> ProcessRecords:
    """A process of a JSON file; what its name says holds where the content is silent."""
    own = ProcessRecords(
        files.name, rank=files.rank, process=files.process if result.process is None else result.process
    )
    own.agents, own.facts, own.numbering = result.agents, result.facts, "agent"
    for records in result.records:
        own.add_events(path, records, kind_of_domain)
    if result.counters is not None:
        own.add_counters(path, result.counters)
    return own


def _suspicions(process: ProcessFiles, found: list[ProcessRecords]) -> list[str]:
    """Likely reasons why kernels are missing."""
    import polars as pl

    events = [frame for records in found for frame in records.events if len(frame)]
    name = (process.files[0].path if len(process.files) == 1 else process.prefix).name
    if not events:
        has_only_stats = bool(found[0].stats) and not any(records.counters for records in found)
        return [f"{name}: {_ONLY_STATISTICS}"] if has_only_stats else []
    has_device_work = any(
        frame.select(pl.col("kind").is_in([*DEVICE_KINDS, "sample"]).any()).item() for frame in events
    )
    return [] if has_device_work else [f"{name}: {_NO_KERNELS}"]
