"""The CPUs and GPUs in rocprof's copy of what `rocminfo` printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tidyprof.io.byte_stream import ByteStream

_AGENT = re.compile(r"^Agent (\d+)\s*$")
_FIELD = re.compile(r"^  ([A-Z][^:]*):\s+(.*?)\s*$")
_KEY = re.compile(r"Agent(\d+)\.(\w+)")
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
    text = b"".join(ByteStream(path, maximum_bytes).chunks()).decode("utf-8", "replace")
    agents: dict[int, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in text.splitlines():
        start = _AGENT.match(line)
        field = _FIELD.match(line)
        if start:
            current = agents.setdefault(int(start[1]), {})
        elif field and field[1] in _NAMES:
            # Fields of an agent come before the fields of its parts, some of which have the same names.
            current.setdefault(_NAMES[field[1]], field[2])
    return _typed(agents.values())


def agents_of_trace(system: Mapping[str, str]) -> list[dict[str, Any]]:
    """The agents in a trace's `otherData`, whose texts have lost their spaces: without product names, therefore."""
    squeezed = {name.replace(" ", ""): key for name, key in _NAMES.items() if key != "product_name"}
    agents: dict[int, dict[str, str]] = {}
    for entry, value in system.items():
        match = _KEY.fullmatch(entry)
        if match and match[2] in squeezed:
            agents.setdefault(int(match[1]), {})[squeezed[match[2]]] = value
    return _typed(agent for _, agent in sorted(agents.items()))


def _typed(agents: Iterable[Mapping[str, str]]) -> list[dict[str, Any]]:
    found = []
    for agent in agents:
        if agent.get("type") in ("CPU", "GPU"):
            numbers = {key: int(value) for key, value in agent.items() if key in _NUMBERS and value.isdecimal()}
            found.append({key: value for key, value in agent.items() if key not in _NUMBERS} | numbers)
    return found
