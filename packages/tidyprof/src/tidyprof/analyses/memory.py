"""What lies in the memory that PyTorch's allocator has reserved."""

from __future__ import annotations

import pandas as pd

from tidyprof.analyses.common import PLACE, result
from tidyprof.tables.contract import Profile

MEMORY_BLOCK_COLUMNS = {
    **PLACE,
    "stream": "Int64",
    "segment": "int64",
    "segment_bytes": "int64",
    "state": "string",
    "bytes": "int64",
    "requested_bytes": "int64",
    "source_line": "string",
    "frames": "string",
}
"""Columns of `memory_blocks`."""


def memory_blocks(profile: Profile) -> pd.DataFrame:
    """One row per block of memory at the time of the snapshot, segment by segment, in the order of
    their addresses.

    A segment is the memory that the allocator took from the device with one call; its blocks add up
    to it. state is `active_allocated` (a tensor has it), `active_pending_free` (freed, but another
    stream may still use it) or `inactive` (free for the next tensor). bytes is the size after
    rounding, requested_bytes the size that was last asked for. source_line and frames say where it
    was asked for, <NA> where the history does not have it; a free block has none. There are no rows
    unless the profile is of a memory snapshot.
    """
    return result(profile.meta.get("blocks", []), MEMORY_BLOCK_COLUMNS, profile)
