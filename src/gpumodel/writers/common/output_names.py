"""How rocprofv3 names its files: `<folder>/<prefix>_<what>.<ending>` with placeholders in the prefix."""

from __future__ import annotations

from pathlib import Path

from gpumodel.run import RankRun, Run

DEFAULT_PREFIX = "%hostname%/%pid%"
"""What rocprofv3 uses where `--output-file` is not given (source/lib/output of ROCm/rocprofiler-sdk)."""


def output_path(run: Run, rank: RankRun, folder: Path, prefix: str, ending: str) -> Path:
    """`folder`/`prefix`_`ending`, its folder made; %hostname%, %pid%, %rank% and %size% stand for the rank's own.

    A prefix without %pid% or %rank% is the same for all ranks: as with the tool, the last one overwrites the others.
    """
    values = {"hostname": run.hostname, "pid": rank.process_id, "rank": rank.rank, "size": len(run.ranks)}
    for name, value in values.items():
        prefix = prefix.replace(f"%{name}%", str(value)).replace(f"%{name[0]}%", str(value))
    path = folder / f"{prefix}_{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
