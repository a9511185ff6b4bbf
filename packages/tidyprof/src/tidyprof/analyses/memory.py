"""Contents of the memory that PyTorch's allocator has reserved."""

from __future__ import annotations

import pandas as pd

from tidyprof.analyses.common import result
from tidyprof.tables.contract import Profile


def memory_blocks(profile: Profile) -> pd.DataFrame:
    """Return one row per memory block at the time of the snapshot, sorted by segment and address.

    A segment is memory on the device that the allocator reserved with a single call. The sizes of
    its blocks add up to the segment's size.

    - `state`: the state of the block. `active_allocated` means that a tensor uses the block.
      `active_pending_free` means that the block was freed, but another stream may still use it.
      `inactive` means that the block is available for the next tensor.
    - `bytes`: the size of the block after rounding.
    - `requested_bytes`: the size of the last request for the block.
    - `source_line`, `frames`: the place in the code that requested the block. The values are `<NA>`
      for free blocks, and if the history doesn't contain the request.

    The table is empty if the profile doesn't come from a memory snapshot.
    """
    return result(profile.meta.get("blocks", []), "memory_blocks", profile)
