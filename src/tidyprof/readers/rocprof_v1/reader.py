"""Reader for what the first rocprof (`rocprof`, until ROCm 7) writes."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.errors import ProfileReadError
from tidyprof.readers.registry import register_reader
from tidyprof.readers.rocprof_v1.files import V1File, find_runs, is_v1_output
from tidyprof.readers.rocprof_v1.records import (
    counters_of,
    database_records,
    kernel_records,
    kind_of_domain,
    trace_records,
)
from tidyprof.readers.rocprof_v1.system import agents_of_rocminfo, agents_of_trace
from tidyprof.tables.contract import DEVICE_KINDS, Origin, Profile
from tidyprof.tables.device_table import counter_table, event_table
from tidyprof.tables.runs import ProcessRecords, Run
from tidyprof.tables.statistics import read_statistics

if TYPE_CHECKING:
    import polars as pl

_SOURCES = ("database", "trace", "kernels")
_HSA_COPY = "async-copy"
_NO_KERNELS = (
    "no kernel in it. Likely cause: only the host's calls were recorded, or the program ended before its kernels ran."
)
_ONLY_STATISTICS = "only statistics, no trace: totals are in meta['stats'], single events are not known."


def read_rocprof_v1(
    path: str | PathLike[str], *, origin: Origin | None = None, maximum_bytes: int = MAXIMUM_BYTES
) -> Profile:
    """Read the output of rocprof, version 1: `results.db`, `results.json`, `results.csv` and `results.*stats.csv`.

    path          -- a file, the folder that rocprof wrote to, or folder and start of the file names. Of a run's
                     three forms the first that is there is read: database, JSON, CSV; they say the same, the
                     database most.
    origin        -- where the recording comes from; not stated if None.
    maximum_bytes -- refuse files that are larger when unpacked.

    `events` has the columns of `read_rocprofv3` (times in ns since the node was started). Here
      source_category  table: OPS (kernels), COPY, HIP, HSA, rocTX
      device           the agent, which counts CPUs too: rocprof's label `GPU2` does not mean HIP's device 2
      stream           number of the HIP stream in the order of use, 0 for the default stream
      grid, block      from results.csv, as the products of their three sizes: `[1024]` work-items
      bytes            of HIP's copy calls, and of copies that have a call of their own; database only
      launch_ns        start of the HIP call or, for kernels of results.csv, time of the dispatch
    Kernels of results.json have neither correlation id nor launch.

    `counters` has the columns of `read_rocprofv3`, from `pmc:` lines of an input file.

    `meta` is that of `read_rocprofv3`. `stats` has no min_ns, max_ns and std_ns, and mean_ns is cut to whole numbers.

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    runs, others = find_runs(path)
    records = [process for files in runs for process in _read_run(files, maximum_bytes)]
    records[0].ignored += others
    run = Run(path, records)
    run.meta["tool"] = "rocprof"
    if origin is not None:
        run.meta["origin"] = origin
    return Profile(event_table(run.events), counter_table(run.counters), run.meta)


def _read_run(files: list[V1File], maximum_bytes: int) -> list[ProcessRecords]:
    """The processes of one run; the first entry also has what is true of all."""
    own = ProcessRecords(files[0].prefix, numbering="agent")
    source = next((file for role in _SOURCES for file in files if file.role == role), None)
    others = [file for file in files if file.role in _SOURCES and file != source]
    own.ignored = [file.path for file in others if not counters_of(file)]
    own.files = [file.path for file in files if file.path not in own.ignored]
    for file in files:
        if file.role == "statistics":
            table, warnings = read_statistics(file.path, list(file.header), maximum_bytes)
            own.warnings += warnings
            own.stats.setdefault(file.subject, []).append(table)
        elif file.role == "system":
            own.agents = agents_of_rocminfo(file.path, maximum_bytes)
    if source is None:
        own.warnings.append(f"{files[0].path.name}: {_ONLY_STATISTICS}")
        return [own]
    tables = [file for file in files if file.role == "kernels" and (file == source or counters_of(file))]
    processes = [own, *_read_source(source, tables, own, maximum_bytes)]
    _refuse_nothing(source, processes)
    if not _has_device_work(processes) and not any(process.counters for process in processes):
        own.warnings.append(f"{source.path.name}: {_NO_KERNELS}")
    return processes


def _read_source(source: V1File, tables: list[V1File], own: ProcessRecords, maximum_bytes: int) -> list[ProcessRecords]:
    """The records of a database, a JSON trace or a table of kernels, by process; and the counters in tables."""
    whole = ProcessRecords(source.prefix)
    frames: list[pl.DataFrame] = []
    if source.role == "database":
        frames = database_records(source, maximum_bytes)
    elif source.role == "trace":
        frames, system = trace_records(source, maximum_bytes)
        own.agents = own.agents or agents_of_trace(system)
    for frame in frames:
        whole.add_events(source.path, frame, kind_of_domain)
    for file in tables:
        _add_table(whole, file, with_kernels=file == source, maximum_bytes=maximum_bytes)
    own.dropped, own.not_kept = whole.dropped, whole.not_kept
    own.warnings += whole.warnings
    _add_bytes_of_copies(whole)
    return list(_by_process(whole))


def _add_table(whole: ProcessRecords, file: V1File, with_kernels: bool, maximum_bytes: int) -> None:
    """The counters of a results.csv, and its kernels unless another form of the results has them."""
    kernels, samples, cut, warnings = kernel_records(file, maximum_bytes)
    whole.warnings += warnings
    if with_kernels and {"start", "end"} <= set(kernels.columns):
        whole.add_events(file.path, kernels, kind_of_domain, cut)
    if samples is not None:
        whole.add_counters(file.path, samples)


def _add_bytes_of_copies(whole: ProcessRecords) -> None:
    """Give copies the size that their call states; a call that led to several copies does not say whose it is."""
    import polars as pl

    calls = [frame for frame in whole.events if "bytes" in frame.columns]
    for place, copies in enumerate(whole.events):
        if not calls or "correlation_id" not in copies.columns or (copies["category"] != "COPY").any():
            continue
        key = ["process", "correlation_id"]
        sizes = calls[0].filter(pl.col("bytes").is_not_null()).select(*key, "bytes").unique(key, keep="none")
        is_only = ~pl.struct(key).is_duplicated() & (pl.col("name") != _HSA_COPY)
        joined = copies.join(sizes, on=key, how="left", maintain_order="left")
        whole.events[place] = joined.with_columns(pl.when(is_only).then("bytes").alias("bytes"))


def _by_process(whole: ProcessRecords) -> Iterator[ProcessRecords]:
    """Split records into those whose correlation ids belong together: HIP and HSA number their calls each."""
    import polars as pl

    found: dict[Any, ProcessRecords] = {}
    for frames, which in ((whole.events, "events"), (whole.counters, "counters")):
        for frame in frames:
            by_hsa = pl.lit(False) if which == "counters" else _numbered_by_hsa()
            process = pl.col("process") if "process" in frame.columns else pl.lit(None, pl.Int64)
            keyed = frame.with_columns(by_hsa.alias("by_hsa"), process.alias("process"))
            for key, part in keyed.partition_by("process", "by_hsa", as_dict=True, include_key=True).items():
                records = found.setdefault(key, ProcessRecords(whole.name, process=key[0]))
                getattr(records, which).append(part.drop("by_hsa"))
    yield from found.values()


def _numbered_by_hsa() -> pl.Expr:
    import polars as pl

    category, name = pl.col("category").cast(pl.String), pl.col("name").cast(pl.String)
    return (category == "HSA") | ((category == "COPY") & (name == _HSA_COPY))


def _has_device_work(processes: list[ProcessRecords]) -> bool:
    import polars as pl

    on_device = pl.col("kind").is_in(DEVICE_KINDS).any()
    return any(frame.select(on_device).item() for process in processes for frame in process.events if len(frame))


def _refuse_nothing(source: V1File, processes: list[ProcessRecords]) -> None:
    if not any(process.events or process.counters for process in processes):
        raise ProfileReadError(
            source.path,
            "no record of any kind",
            "the program used no GPU, or ended before rocprof wrote",
            "record with --hip-trace, and check that the program runs on a GPU",
        )


register_reader("rocprof 1 (database, JSON or CSV)", is_v1_output, read_rocprof_v1)
