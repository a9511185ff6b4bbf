"""Contents of the memory that PyTorch's allocator has reserved."""

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
    """Return one row per memory block at the time of the snapshot, by segment and address.

    A segment is the memory that the allocator reserved on the device with one call. Its blocks
    add up to its size.

    - `state`: `active_allocated` (used by a tensor), `active_pending_free` (freed, but another
      stream may still use it) or `inactive` (available for the next tensor).
    - `bytes`: the size after rounding.
    - `requested_bytes`: the size of the last request.
    - `source_line`, `frames`: the place of the request, `<NA>` if the history doesn't contain it.
      Free blocks have no place.

    The table is empty unless the profile comes from a memory snapshot.
    """
    return result(profile.meta.get("blocks", []), MEMORY_BLOCK_COLUMNS, profile)
