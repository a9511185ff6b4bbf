"""Times that a training loop wrote about itself, without a profiler: a file for each rank, a line for each step.

`{"rank": 0, "step": 3, "data": 0.002, "forward": 0.011, ...}`, in seconds, as the block of lesson 14 writes them
(snippets/14_instrument_me.py, WATCH=times).
"""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

import pandas as pd

from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import in_lines, read_bytes
from tidyprof.io.guard import guarded

NAMES = "times_rank*.jsonl"
LONGEST_S = 1e9
"""No part of a step takes 30 years."""


def times_files(path: str | PathLike[str]) -> list[Path]:
    """This file if it has such a name, or those in this folder; none if there are none."""
    path = Path(path)
    return sorted(path.glob(NAMES)) if path.is_dir() else [path] if path.match(NAMES) else []


@guarded
def read_times(file: str | PathLike[str]) -> pd.DataFrame:
    """A row for each step of one rank: rank, step, and ns of each part under its own name.

    A last line without its end is left out: the job was killed while it wrote. Raises ProfileReadError for a file
    without a whole line, and for a line that is no step, or not the next one.
    """
    *lines, last = read_bytes(Path(file), guard=in_lines).split(b"\n")
    rows: list[dict[str, float]] = []
    for number, line in enumerate([*lines, last], 1):
        step = _step(line)
        if step and (not rows or step["step"] > rows[-1]["step"]):
            rows.append(step)
        elif number <= len(lines):
            raise ProfileReadError(
                file,
                f"line {number} is no step with a rank and seconds, or not the next one",
                "two runs wrote into one file, or another program changed it",
                "run it again, with a WATCH_DIR for each run",
            )
    if not rows:
        raise ProfileReadError(file, "no whole line", *DAMAGED)
    table = pd.DataFrame(rows).fillna(0)
    table[table.columns.difference(["rank", "step"])] *= 1e9
    return table


def _step(line: bytes) -> dict[str, float] | None:
    """A line's content, if it is a step."""
    try:
        step = json.loads(line)
    except ValueError:
        return None
    if not isinstance(step, dict) or not all(type(step.get(name)) is int for name in ("rank", "step")):
        return None
    parts = {name: seconds for name, seconds in step.items() if name not in ("rank", "step")}
    possible = all(
        name.isprintable() and type(seconds) in (int, float) and 0 <= seconds < LONGEST_S
        for name, seconds in parts.items()
    )
    return step if possible and sum(parts.values()) > 0 else None
