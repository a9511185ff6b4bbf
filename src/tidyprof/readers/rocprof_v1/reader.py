"""Reader for what the first rocprof (`rocprof`, until ROCm 7) writes."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl

from tidyprof.errors import ProfileReadError
from tidyprof.io.byte_stream import MAXIMUM_BYTES
from tidyprof.io.guard import guarded
from tidyprof.readers.rocprof_v1.recognition import V1File, find_runs
from tidyprof.readers.rocprof_v1.records import (
    counters_of_header,
    database_records,
    kernel_records,
    kind_of_domain,
)
from tidyprof.readers.rocprof_v1.system import agents_of_rocminfo
from tidyprof.readers.rocprofv3.collected import Collected, common_meta, refuse_copies
from tidyprof.readers.rocprofv3.frames import counters_of, records_of
from tidyprof.readers.rocprofv3.statistics import read_statistics
from tidyprof.tables.codes import Codes
from tidyprof.tables.contract import Origin, Profile
from tidyprof.tables.profiles import FOREIGN, SAME, profile_of
from tidyprof.tables.records import joined

_SOURCES = ("database", "kernels")
_HSA_COPY = "async-copy"
_NO_KERNELS = (
    "no kernel in it. Likely cause: only the host's calls were recorded, or the program ended before its kernels ran."
)
_ONLY_STATISTICS = "only statistics, no trace: totals are in meta['stats'], single events are not known."


@guarded
def read_rocprof_v1(
    path: str | PathLike[str], *, origin: Origin | None = None, maximum_bytes: int = MAXIMUM_BYTES
) -> Profile:
    """Read the output of rocprof, version 1: `results.db`, `results.csv` and `results.*stats.csv`.

    path -- a file, the folder that rocprof wrote to, or folder and start of the file names. Where a run has its
            database, kernels are read from it and not from `results.csv`, which says less; its `results.json` says the
            same and is not read.
    origin, maximum_bytes -- as of `tidyprof.read`.

    `events`, `counters` (from `pmc:` lines of an input file) and `meta` are those of `read_rocprofv3`. Here
      source_category  table: OPS (kernels), COPY, HIP, HSA, rocTX
      device           the agent, which counts CPUs too: rocprof's label `GPU2` does not mean HIP's device 2
      stream           number of the HIP stream in the order of use, 0 for the default stream
      grid, block      from results.csv, as the products of their three sizes: `[1024]` work-items
      bytes            of HIP's copy calls, and of copies that have a call of their own; database only
      launch_ns        start of the HIP call or, for kernels of results.csv, time of the dispatch
      stats            has no min_ns, max_ns and std_ns, and mean_ns is cut to whole numbers

    Raises ProfileReadError, whose one line says what was found and what to do.
    """
    path = Path(path)
    runs, others = find_runs(path)
    texts = Codes()
    found = [_read_run(files, texts, maximum_bytes) for files in runs]
    found[0].ignored |= dict.fromkeys(others, FOREIGN)
    refuse_copies(path, found)
    parts = [own.part(texts, _numbering(own, texts)) for own in found]
    return profile_of(parts, texts, common_meta(found) | {"tool": "rocprof"}, origin)


def _read_run(files: list[V1File], texts: Codes, maximum_bytes: int) -> Collected:
    own = Collected(files[0].prefix, numbering="agent")
    source = next((file for role in _SOURCES for file in files if file.role == role), None)
    traces = [file.path for file in files if file.role == "trace"]
    if {file.role for file in files} <= {"trace", "system"}:
        raise ProfileReadError(
            traces[0],
            "the JSON of rocprof 1, which is not read",
            "it was copied without the files beside it, which say the same and more",
            "pass the results.db or results.csv of this run, or its folder",
        )
    others = [file for file in files if file.role in _SOURCES and file != source]
    own.ignored = dict.fromkeys(traces + [file.path for file in others if not counters_of_header(file)], SAME)
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
        return own
    tables = [file for file in files if file.role == "kernels" and (file == source or counters_of_header(file))]
    _read_source(own, source, tables, texts, maximum_bytes)
    _refuse_nothing(source, own)
    if not own.has_device_work and not own.counters:
        own.warnings.append(f"{source.path.name}: {_NO_KERNELS}")
    return own


def _read_source(own: Collected, source: V1File, tables: list[V1File], texts: Codes, maximum_bytes: int) -> None:
    """Take the records of a database or a table of kernels; and the counters in tables."""
    frames, warnings = database_records(source, maximum_bytes) if source.role == "database" else ([], [])
    own.warnings += warnings
    for frame in _with_bytes_of_copies(frames):
        own.events.append(records_of(frame, source.path, kind_of_domain, texts))
    for file in tables:
        kernels, samples, cut, warnings = kernel_records(file, maximum_bytes)
        own.warnings += warnings
        if file == source and {"start", "end"} <= set(kernels.columns):
            own.events.append(records_of(kernels, file.path, kind_of_domain, texts, cut))
        if samples is not None:
            table, dropped, warnings = counters_of(samples, file.path)
            own.counters.append(table)
            own.dropped += dropped
            own.warnings += warnings


def _with_bytes_of_copies(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Give copies the size that their call states; a call that led to several copies does not say whose it is."""
    calls = [frame for frame in frames if "bytes" in frame.columns]
    if not calls:
        return frames
    key = ["process", "correlation_id"]
    sizes = calls[0].filter(pl.col("bytes").is_not_null()).select(*key, "bytes").unique(key, keep="none")
    is_only = ~pl.struct(key).is_duplicated() & (pl.col("name").cast(pl.String) != _HSA_COPY)
    return [
        frame.join(sizes, on=key, how="left", maintain_order="left").with_columns(pl.when(is_only).then("bytes"))
        if set(key) <= set(frame.columns) and (frame["category"].cast(pl.String) == "COPY").all()
        else frame
        for frame in frames
    ]


def _numbering(own: Collected, texts: Codes) -> np.ndarray:
    """Numbers of what correlation ids are unique within: a process, in which HIP and HSA number their calls each."""
    records = joined(own.events)
    category, name = records.get("source_category"), records["name"]
    by_hsa = (category == texts["HSA"]) | ((category == texts["COPY"]) & (name == texts[_HSA_COPY]))
    return 2 * pd.factorize(records.get("process"))[0] + by_hsa


def _refuse_nothing(source: V1File, own: Collected) -> None:
    if not any(records.total for records in own.events) and not own.counters:
        raise ProfileReadError(
            source.path,
            "no record of any kind",
            "the program used no GPU, or ended before rocprof wrote",
            "record with --hip-trace, and check that the program runs on a GPU",
        )
