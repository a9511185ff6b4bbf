"""The CPUs and GPUs that rocprofv3 lists."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import in_lines, read_bytes

_NUMBERS = ("node_id", "logical_node_id", "cu_count", "num_xcc", "lds_size_in_kb", "max_engine_clk_fcompute")
_TEXTS = ("name", "product_name", "model_name")


def read_agents(path: Path, maximum_bytes: int) -> list[dict[str, Any]]:
    """The rows of an agent_info.csv: `type` (CPU or GPU), `logical_node_id` (as in `Agent 4`), names and sizes.

    Raises ProfileReadError for rows that are no agents.
    """
    text = read_bytes(path, maximum_bytes, in_lines).decode("utf-8-sig", "replace")
    agents = []
    try:
        for row in csv.DictReader(io.StringIO(text), strict=True):
            cells = {name.lower(): cell for name, cell in row.items() if name and cell}
            agent: dict[str, Any] = {"type": cells["agent_type"]}
            agent |= {name: int(cells[name]) for name in _NUMBERS if name in cells}
            agents.append(agent | {name: cells[name] for name in _TEXTS if name in cells})
    except (csv.Error, KeyError, ValueError) as error:
        raise ProfileReadError(
            path,
            f"a row {len(agents) + 1} that describes no CPU or GPU ({' '.join(str(error).split())[:80]})",
            *DAMAGED,
        ) from None
    return agents
