"""One run as the gate sees it: how long a step takes, in which parts, and with which kernels.

A training loop can write times about itself, without a profiler: a file for each rank, a line for each step, such as
`{"rank": 0, "step": 3, "data": 0.002, "forward": 0.011, ...}`, in seconds, as the block of lesson 14 writes them
(snippets/14_instrument_me.py, WATCH=times).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

import pandas as pd

from tidyprof.analyses.budget import parts_of, steady_steps, step_budget
from tidyprof.analyses.common import has_launches
from tidyprof.analyses.kernels import kernels
from tidyprof.errors import DAMAGED, ProfileReadError
from tidyprof.io.byte_stream import in_lines, read_bytes
from tidyprof.io.guard import guarded
from tidyprof.readers.registry import read
from tidyprof.tables.contract import Origin, Profile, origin_of_files
from tidyprof.tables.profiles import ignored_lines

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


@dataclass(frozen=True)
class RunTimes:
    """One run. `step_ns` is the median of its steady steps over ranks and devices, `steps` their number.

    Steps are the device's own where launches are recorded. A host that runs ahead ends its steps early, and a device
    that got slower would show in none of them.

    parts    -- mean ns of each part of a step (`tidyprof.step_budget`, or the loop's own), by its name.
    kernels  -- by short name the columns calls and total_ns, both for one step of one device, and full_name, by which
                its developers know it.
    profiled -- whether a profiler ran, so that steps are longer than otherwise.
    ignored  -- what of the run's folder was not read, see `ignored_lines`.
    """

    path: str
    step_ns: float
    steps: int
    parts: pd.Series
    kernels: pd.DataFrame
    origin: Origin
    profiled: bool = True
    ignored: tuple[str, ...] = ()


@guarded
def repeats_in(path: str | PathLike[str]) -> list[Path]:
    """The runs of one side: each sub-folder of a folder that has several, else the file or folder itself."""
    folder = Path(path)
    inside = sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    return inside if len(inside) > 1 else [folder]


@guarded
def run_times(path: str | PathLike[str], mark: str | None = None) -> RunTimes:
    """Read one run: the times that its loop wrote (`times_files`), which win over a recording beside them, else that.

    mark -- the range or operator with which each step of a recording begins, see `tidyprof.steps`.
    Raises ProfileReadError where it can't be read, or has no steps.
    """
    if files := times_files(path):
        return _own_times(path, files)
    profile = read(path)
    try:
        budget = step_budget(profile, _timeline(profile), mark)
    except ValueError as error:
        raise ProfileReadError(path, str(error), "another script", "name another mark") from None
    budget = budget[budget["step"].notna()]
    if not len(budget):
        raise ProfileReadError(
            path,
            "no steps are marked in it, so runs of different length can't be compared",
            "it was recorded without the profiler's step() and without ranges",
            "give --mark NAME, a range or an operator that runs once in each step",
        )
    steady = steady_steps(budget)
    parts = pd.Series({part: steady[f"{part}_ns"].mean() for part in parts_of(steady)})
    return RunTimes(
        str(path),
        float(steady["duration_ns"].median()),
        len(steady),
        parts,
        _kernels_of_a_step(profile, steady),
        profile.origin,
        ignored=tuple(ignored_lines(profile.meta)),
    )


def _own_times(path: str | PathLike[str], files: list[Path]) -> RunTimes:
    """A run without a profiler, of all its ranks; the first step of each rank is left out as in a recording."""
    table = pd.concat([read_times(file) for file in files], ignore_index=True).fillna(0)
    steady = steady_steps(table[["rank", "step"]].assign(process=0, device=0)).index
    parts = table.drop(columns=["rank", "step"]).loc[steady]
    return RunTimes(
        str(path),
        float(parts.sum(axis=1).median()),
        len(parts),
        parts.mean(),
        pd.DataFrame(columns=["full_name", "calls", "total_ns"]),
        origin_of_files(map(str, files)),
        profiled=False,
    )


def _timeline(profile: Profile) -> str:
    return "device" if has_launches(profile.device_events) else "host"


def _kernels_of_a_step(profile: Profile, steady: pd.DataFrame) -> pd.DataFrame:
    """Kernels that began within the steady steps, for one step of one device."""
    begin = steady["start_ns"].min()
    end = (steady["start_ns"] + steady["duration_ns"]).max()
    inside = profile.events[profile.events["start_ns"].between(begin, end, inclusive="left")]
    table = kernels(replace(profile, events=inside)).set_index("short_name").rename(columns={"name": "full_name"})
    return table[["full_name"]].join(table[["calls", "total_ns"]] / len(steady))
