"""The publishable part of a profile or a training run: its known columns and versions.

Archives contain only the names in these lists, so they never contain the names of machines,
people or files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tidyprof
from tidyprof.tables.codes import DEVICE_KINDS
from tidyprof.tables.contract import COUNTER_COLUMNS, EVENT_COLUMNS, Profile

COLUMNS = (*EVENT_COLUMNS, "external_id", "collective", "group_size")
META = ("tool", "tool_version", "gpu", "rocm", "torch", "hip_runtime_version", "origin")

IDENTIFIER = re.compile(r"[\w:]+")
"""Pattern for operator and runtime call names. The pattern excludes paths and sentences."""

RANGE = re.compile(
    r"ProfilerStep#\d+|data|normalise|forward|loss|backward|optimizer|Optimizer\.\w+#\w+\.\w+"
)
"""Ranges to keep. PyTorch and the course's trainer write these ranges."""

RUN = {
    "record": None,
    "device": None,
    "written": None,
    "planned_steps": None,
    "config": ("model", "precision", "batch_size"),
    "launch": ("world_size",),
    "versions": ("torch", "hip", "cuda"),
}
"""Nested keys to keep for each key in the trainer's run record."""


def published(profile: Profile) -> Profile:
    """Return the device work, the known host events and the counters, with only the known
    columns.
    """
    events, counters = profile.events, profile.counters
    kind, name = events["kind"].astype(str), events["name"].astype(str)
    kept = (
        kind.isin(DEVICE_KINDS)
        | kind.isin(("operator", "runtime")) & name.str.fullmatch(IDENTIFIER)
        | (kind == "annotation") & name.str.fullmatch(RANGE)
    )
    return Profile(
        events[kept][[column for column in COLUMNS if column in events]],
        counters[[column for column in COUNTER_COLUMNS if column in counters]],
        {key: profile.meta[key] for key in META if key in profile.meta},
    )


def publish(source: Path, target: Path) -> Profile:
    """Write the publishable part of a profile as a Chrome trace, and return that part."""
    found = published(tidyprof.read(source))
    target.parent.mkdir(parents=True, exist_ok=True)
    tidyprof.write_chrome_trace(found, target)
    return found


def published_run(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known values of the trainer's run record."""
    return {
        key: record.get(key) if kept is None else {one: record[key].get(one) for one in kept}
        for key, kept in RUN.items()
    }


FILES = ("profile/*.pftrace", "profile/*.rpd", "train/trace_rank*.json.gz")
"""Names of files that are read one at a time from a Slurm job's folder."""

FOLDERS = ("workloads/*/*/sysinfo.csv", "profile/*", "train/metrics_rank*.jsonl")
"""Names of files that mark a folder to be read as a whole."""


def readable_paths(folder: Path) -> list[Path]:
    """Return the paths in a job's folder that `tidyprof.read` accepts.

    The result is either one file per rank or one folder for all ranks.
    """
    for pattern in (*FILES, *FOLDERS):
        if found := sorted(folder.glob(pattern)):
            return found if pattern in FILES else [found[0].parent]
    return []
