"""The CPUs and GPUs in rocprof's copy of what `rocminfo` printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tidyprof.io.byte_stream import in_lines, read_bytes
from tidyprof.io.text_cells import whole_number

_AGENT = re.compile(r"^Agent (\d{1,9})\s*$")
_FIELD = re.compile(r"^  ([A-Z][^:]*):\s+(.*?)\s*$")
_NAMES = {
    "Device Type": "type",
    "Name": "name",
    "Marketing Name": "product_name",
    "Node": "node_id",
    "Compute Unit": "cu_count",
}
_NUMBERS = ("node_id", "cu_count")


def agents_of_rocminfo(path: Path, maximum_bytes: int) -> list[dict[str, Any]]:
    """The agents of a *.sysinfo.txt, with the keys that rocprofv3's agents have; nothing if it lists none."""
    text = read_bytes(path, maximum_bytes, in_lines).decode("utf-8", "replace")
    agents: dict[int, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in text.splitlines():
        field = _FIELD.match(line)
        if start := _AGENT.match(line):
            current = agents.setdefault(int(start[1]), {})
        elif field and field[1] in _NAMES:
            # Fields of an agent come before the fields of its parts, some of which have the same names.
            current.setdefault(_NAMES[field[1]], field[2])
    return [
        {key: whole_number(text) if key in _NUMBERS else text for key, text in agent.items()}
        for agent in agents.values()
        if agent.get("type") in ("CPU", "GPU")
    ]
