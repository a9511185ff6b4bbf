"""From the records of ROCm's profilers to the event table: damage, kinds, devices, launches.

Works on polars frames, which hold the records of one process each. Columns that a record can have:
`category` (domain), `name`, `start`, `end` (ns), `process`, `thread`, `queue`, `stream`, `dispatch_id`,
`correlation_id`, `agent`, `source_agent`, `destination_agent` (numbers), `bytes`, `grid_x` to `grid_z`,
`block_x` to `block_z`, and what `EXTRA_COLUMNS` lists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidyprof.io.csv_files import mapped
from tidyprof.readers.torch.events import LATEST_START_NS, LONGEST_NS
from tidyprof.tables.contract import DEVICE_KINDS, KINDS
from tidyprof.tables.damage import refuse_damage
from tidyprof.tables.kind_codes import kind_of_kernel

if TYPE_CHECKING:
    import polars as pl

EXTRA_COLUMNS = {
    "lds_bytes": "Int64",
    "scratch_bytes": "Int64",
    "vgprs": "Int32",
    "accum_vgprs": "Int32",
    "sgprs": "Int32",
    "source_device": "Int32",
    "destination_device": "Int32",
    "memory_device": "Int32",
    "source_line": "category",
    "exec_mask": "UInt64",
    "wave_issued": "Int32",
    "wave_count": "Int32",
    "instruction_type": "category",
    "stall_reason": "category",
}
"""Columns that the event table has only if a file states them, with their types."""


def impossible_times() -> dict[str, pl.Expr]:
    """Reasons to leave a record out -> which records they concern, for records with `start` and `end`."""
    import polars as pl

    start, duration = pl.col("start"), pl.col("end") - pl.col("start")
    return {
        "without start or end": start.is_null() | pl.col("end").is_null(),
        "at time zero": start <= 0,
        "with negative duration": duration < 0,
        "with an impossible time": (start >= LATEST_START_NS) | (duration >= LONGEST_NS),
    }


def without_damage(
    records: pl.DataFrame, path: Path, reasons: Mapping[str, pl.Expr], *, cut: int = 0, one_per_dispatch: bool = True
) -> tuple[pl.DataFrame, Counter[str]]:
    """The records that none of the reasons concerns, and reason -> how many were left out for it.

    cut              -- records that were already left out because they end early.
    one_per_dispatch -- whether a second record with the same dispatch id is a repetition and left out.
    Raises ProfileReadError if that leaves out too many.
    """
    import polars as pl

    dropped: Counter[str] = Counter({"cut short": cut} if cut else {})
    total = len(records) + cut
    if records.select(pl.any_horizontal(wrong.any() for wrong in reasons.values())).item():
        numbered = [pl.when(wrong).then(pl.lit(place)) for place, wrong in enumerate(reasons.values())]
        found = records.select(pl.coalesce(numbered)).to_series()
        for place, count in found.drop_nulls().value_counts().iter_rows():
            dropped[list(reasons)[place]] += count
        records = records.filter(found.is_null())
    if one_per_dispatch and "dispatch_id" in records.columns:
        records, repeated = _without_repeated(records)
        if repeated:
            dropped["with the dispatch id of another"] = repeated
    refuse_damage(
        path,
        "records",
        dropped,
        total,
        "the file is damaged, two processes wrote it, or its times are not in nanoseconds",
        "record again, with %pid% in the name of the output file",
    )
    return records, dropped


def _without_repeated(records: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """A process numbers its dispatches: another record with the same number is a copy, or of another process."""
    import polars as pl

    known = records["dispatch_id"].drop_nulls()
    if "guid" not in records.columns and known.n_unique() == len(known):
        return records, 0
    identifier = ["dispatch_id", *(["guid"] if "guid" in records.columns else [])]
    repeated = pl.col("dispatch_id").is_not_null() & ~pl.struct(identifier).is_first_distinct()
    kept = records.filter(~repeated)
    return kept, len(records) - len(kept)


def with_kinds(records: pl.DataFrame, kind_of_domain: Callable[[str], str | None]) -> tuple[pl.DataFrame, Counter[str]]:
    """The records that become events, with the column `kind`, and domain -> number of the others.

    kind_of_domain says which kind a domain's records are. Kernels of the collective libraries are
    `collective`, and the runtime's kernels that copy and fill are `copy` and `fill`, as in `read_torch_trace`.
    Records of copies that are called fills are `fill`.
    """
    import polars as pl

    kinds = pl.Enum(KINDS)
    kind = mapped(records["category"], kind_of_domain, kinds)
    not_kept: Counter[str] = Counter()
    if kind.null_count():
        left_out = records.filter(kind.is_null())["category"].cast(pl.String)
        not_kept.update({str(domain): count for domain, count in left_out.value_counts().iter_rows()})
        records, kind = records.filter(kind.is_not_null()), kind.drop_nulls()
    for general, kind_of_name in (("kernel", kind_of_kernel), ("copy", _kind_of_copy)):
        concerned = kind == general
        if concerned.any():
            own = mapped(records["name"], kind_of_name, kinds).fill_null(general)
            kind = own if concerned.all() else pl.select(pl.when(concerned).then(own).otherwise(kind)).to_series()
    return records.with_columns(kind.alias("kind")), not_kept


def _kind_of_copy(name: str) -> str:
    return "fill" if re.search("fill|memset", name, re.IGNORECASE) else "copy"


def with_devices(records: pl.DataFrame) -> pl.DataFrame:
    """Replace agents by the device that an event occupies: of a copy's source and target the GPU.

    Between two GPUs it is the target. Rows on the host get no device; agents whose memory a call is
    about become `memory_device`.
    """
    import polars as pl

    on_device = pl.col("kind").is_in(DEVICE_KINDS)
    if {"source_agent", "destination_agent"} <= set(records.columns):
        name = pl.col("name").cast(pl.String)
        device = (
            pl.when(name.str.contains("HOST_TO_DEVICE|DEVICE_TO_DEVICE"))
            .then(pl.col("destination_agent"))
            .when(name.str.contains("DEVICE_TO_HOST"))
            .then(pl.col("source_agent"))
        )
        records = records.with_columns(device.alias("device"))
        records = records.rename({"source_agent": "source_device", "destination_agent": "destination_device"})
    elif "agent" in records.columns:
        has_host_rows = not records.select(on_device.all()).item()
        records = records.with_columns(
            pl.when(on_device | (pl.col("kind") == "annotation")).then("agent").alias("device")
        )
        if has_host_rows:
            records = records.with_columns(pl.when(~on_device).then("agent").alias("memory_device"))
        records = records.drop("agent")
    return _with_launching_thread(records, on_device)


def _with_launching_thread(records: pl.DataFrame, on_device: pl.Expr) -> pl.DataFrame:
    """What runs on a device has no thread; the tool states the one that launched it."""
    import polars as pl

    if "thread" not in records.columns:
        return records
    thread = pl.col("thread")
    return records.with_columns(
        pl.when(~on_device).then(thread).alias("thread"), pl.when(on_device).then(thread).alias("launch_thread")
    )


@dataclass(frozen=True)
class LaunchCounts:
    """unlaunched -- device events whose launch is not in the files; shared -- launch calls with another's id."""

    unlaunched: int
    shared: int


def with_launches(events: pl.DataFrame) -> tuple[pl.DataFrame, LaunchCounts]:
    """Add `launch`: start of the call of the HIP or HSA library with the same correlation id in the same process.

    A launch that a record states itself stays.
    Of calls with one id it is the first and longest: HIP calls HSA within its own calls.
    """
    import polars as pl

    on_device = pl.col("kind").is_in(DEVICE_KINDS)
    domain = mapped(events["category"], lambda text: text.upper().startswith(("HIP", "HSA")), pl.Boolean)
    is_call = pl.lit(False)
    if domain.any():
        is_call = domain.fill_null(False) & (pl.col("kind") == "runtime") & pl.col("correlation_id").is_not_null()
    calls = events.filter(is_call)
    if "launch" not in events.columns:
        events = events.with_columns(pl.lit(None, pl.Int64).alias("launch"))
    if not len(calls):
        return events, LaunchCounts(events.select((on_device & pl.col("launch").is_null()).sum()).item(), 0)
    first = calls.sort(["start", "duration"], descending=[False, True]).unique(
        ["unit", "correlation_id"], keep="first", maintain_order=True
    )
    launches = first.select("unit", "correlation_id", pl.col("start").alias("call"))
    events = events.join(launches, on=["unit", "correlation_id"], how="left", maintain_order="left")
    launch = pl.when(on_device).then(pl.coalesce("launch", "call"))
    events = events.with_columns(launch.alias("launch")).drop("call")
    unlaunched = events.select((on_device & pl.col("launch").is_null()).sum()).item()
    return events, LaunchCounts(unlaunched, len(calls) - len(first))
