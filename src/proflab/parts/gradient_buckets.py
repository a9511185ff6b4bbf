"""The buckets in which DistributedDataParallel adds up the gradients: what each holds, and how long it took."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Profile

ELEMENT_BYTES = {"Float": 4, "Half": 2, "BFloat16": 2, "Double": 8}
"""Bytes of one gradient by the name that PyTorch gives its type in a trace (`dtype` of a collective's kernel)."""

OPERATION = "allreduce"


def gradient_buckets(profile: Profile) -> pd.DataFrame:
    """One row per all-reduce that all ranks of a torch profile ran, in order.

    Columns: number and step as in `tidyprof.collectives`; bucket, from 1 in each step; elements (gradients in it);
    bytes; longest_ns, the kernel on the rank that waited longest; transfer_ns, from the last rank's entry to the end.

    The sizes are read from the profile's first file, since all ranks exchange the same. Raises ValueError for a
    profile whose files state none, or not one for each all-reduce.
    """
    import tidyprof

    each = tidyprof.collectives(profile, per_rank=True)
    each = each[each["name"] == OPERATION]
    table = each.groupby("number", as_index=False).agg(
        step=("step", "first"), longest_ns=("duration_ns", "max"), transfer_ns=("transfer_ns", "max")
    )
    sizes = _sizes(Path(profile.meta["files"][0]))
    if len(sizes) != len(table) or not len(table):
        raise ValueError(f"{len(table)} all-reduces on all ranks, but sizes of {len(sizes)} in the first rank's file")
    table["bucket"] = table.groupby("step", dropna=False).cumcount() + 1
    table["elements"] = [elements for elements, _ in sizes]
    table["bytes"] = [elements * width for elements, width in sizes]
    table = table[["number", "step", "bucket", "elements", "bytes", "longest_ns", "transfer_ns"]]
    table.attrs["origin"] = profile.origin
    return table


def _sizes(path: Path) -> list[tuple[int, int]]:
    """Elements and bytes of an element of each all-reduce of the file's first rank, in order of time."""
    content = path.read_bytes()
    trace = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    found = [event for event in events if event.get("cat") == "kernel" and _is_all_reduce(event.get("args", {}))]
    first = min((event["args"].get("rank", 0) for event in found), default=0)
    chosen = [event for event in found if event["args"].get("rank", 0) == first]
    chosen.sort(key=lambda event: float(event["ts"]))
    return [_size(event["args"]) for event in chosen]


def _is_all_reduce(arguments: dict[str, Any]) -> bool:
    return arguments.get("Collective name") == OPERATION


def _size(arguments: dict[str, Any]) -> tuple[int, int]:
    kind = arguments.get("dtype")
    if kind not in ELEMENT_BYTES or "In msg nelems" not in arguments:
        raise ValueError(f"the trace does not state how large its collectives are (type {kind!r})")
    return int(arguments["In msg nelems"]), ELEMENT_BYTES[kind]
