"""The files of one process that rocprofv3 recorded, put together."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import polars as pl

from tidyprof.readers.rocprofv3.agents import read_agents
from tidyprof.readers.rocprofv3.collected import Collected
from tidyprof.readers.rocprofv3.csv_rows import RowFrame, counters_long, read_rows
from tidyprof.readers.rocprofv3.files import OutputFile, ProcessFiles, may_hold_kernels
from tidyprof.readers.rocprofv3.frames import counters_of, records_of
from tidyprof.readers.rocprofv3.headers import counter_columns, kind_of_domain
from tidyprof.readers.rocprofv3.json_results import JsonResults, read_results
from tidyprof.readers.rocprofv3.statistics import read_statistics
from tidyprof.tables.codes import Codes
from tidyprof.tables.ignored import SAME

_NO_KERNELS = (
    "no kernel in it. Likely cause: recorded without --kernel-trace, which rocprofv3's --hip-trace, --hsa-trace, "
    "--rccl-trace and --marker-trace do not include."
)
_ONLY_STATISTICS = (
    "only statistics, no trace: totals are in meta['stats'], single events are not known. "
    "Likely cause: the *_trace.csv files were left behind or removed."
)


def read_process(
    process: ProcessFiles, rank: int | None, texts: Codes, maximum_bytes: int, others: Collection[Path] = ()
) -> list[Collected]:
    """The process of these files; results in JSON can hold several.

    rank   -- the rank where their names state none.
    others -- files beside them that are not read.
    Raises ProfileReadError if a file is damaged.
    """
    traces, counters = process.of_role("trace", "samples"), process.of_role("counters", "wide counters")
    rows = traces + counters
    results = process.of_role("json")
    own = Collected(process.prefix, rank=process.rank if process.rank is not None else rank, process=process.process)
    own.files = [file.path for file in process.files if not (results and file in rows)]
    own.ignored = {file.path: SAME for file in rows} if results else {}
    for file in process.of_role("agents"):
        own.agents += read_agents(file.path, maximum_bytes)
    for file in process.of_role("statistics"):
        table, warnings = read_statistics(file.path, file.header, maximum_bytes, own.rank, own.process)
        own.warnings += warnings
        own.stats.setdefault(file.subject, []).append(table)
    found = [own]
    if results:
        for file in results:
            found += [_of_results(file.path, result, own, texts) for result in read_results(file.path, maximum_bytes)]
    else:
        for file in traces:
            _add_trace(own, file, read_rows(file, maximum_bytes), texts)
        for file in counters:
            _add_counters(own, file, read_rows(file, maximum_bytes))
    own.warnings += _suspicions(process, found, [file.name for file in others if may_hold_kernels(file)])
    for one in found:
        one.settle_process()
    return found


def _add_trace(own: Collected, file: OutputFile, rows: RowFrame, texts: Codes) -> None:
    frame = rows.rows
    if file.role == "samples":
        method = "STOCHASTIC" if "stall_reason" in frame.columns else "HOST_TRAP"
        category = pl.lit(f"PC_SAMPLING_{method}").cast(pl.Categorical)
        frame = frame.with_columns(category.alias("category"), pl.col("start").alias("end"))
    elif "name" not in frame.columns:
        frame = frame.with_columns(pl.col("category").alias("name"))
    own.warnings += rows.warnings
    if "agent" in frame.columns or "source_agent" in frame.columns:
        own.numbering = "index" if rows.indexed else "agent"
    own.events.append(records_of(frame, file.path, kind_of_domain, texts, rows.cut))


def _add_counters(own: Collected, file: OutputFile, rows: RowFrame) -> None:
    frame = rows.rows
    if file.role == "wide counters":
        frame = counters_long(frame, counter_columns(file.header))
    _take_counters(own, frame, file.path, rows.cut)
    own.warnings += rows.warnings


def _take_counters(own: Collected, frame: pl.DataFrame, path: Path, cut: int = 0) -> None:
    table, dropped, warnings = counters_of(frame, path, cut)
    own.counters.append(table)
    own.dropped += dropped
    own.warnings += warnings


def _of_results(path: Path, result: JsonResults, files: Collected, texts: Codes) -> Collected:
    """A process of a JSON file; what its name says holds where the content is silent."""
    own = Collected(files.name, rank=files.rank, process=files.process if result.process is None else result.process)
    own.agents, own.facts, own.numbering = result.agents, result.facts, "agent"
    own.events = [records_of(frame, path, kind_of_domain, texts) for frame in result.records]
    if result.counters is not None:
        _take_counters(own, result.counters, path)
    return own


def _suspicions(process: ProcessFiles, found: list[Collected], lost: list[str]) -> list[str]:
    """Likely reasons why kernels are missing; `lost` are names of files that should hold them and were not read."""
    name = (process.files[0].path if len(process.files) == 1 else process.prefix).name
    no_kernels = f"no kernel in it, and {lost[0]} was not read: it is damaged, or no file." if lost else _NO_KERNELS
    if not any(len(records) for own in found for records in own.events):
        has_only_stats = bool(found[0].stats) and not any(own.counters for own in found)
        return [f"{name}: {_ONLY_STATISTICS}"] if has_only_stats else []
    return [] if any(own.has_device_work for own in found) else [f"{name}: {no_kernels}"]
