"""One played training run written by several tools: whatever differs between the files is the formats' doing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

FORMATS = {
    "rpd": "rpd",
    "rocpd": "rocpd",
    "csv": "rocprofv3-csv",
    "sys": "rocprof-sys",
    "torch": "kineto",
    "compute": "rocprof-compute",
}
"""Witness -> the format that gpumodel writes: rpd; rocprofv3 as a database and as CSV; rocprof-sys; torch.profiler;
rocprof-compute, which lists kernels alone."""


def played_witnesses(folder: str | Path, *trainer: str) -> dict[str, Profile]:
    """What each witness saw of a run of the trainer with these options, by its name in FORMATS.

    The files stay in `folder`, one folder for each. Raises UserError for options that the trainer refuses.
    """
    import tidyprof
    from gpumodel import writers
    from gpumodel.simulation import simulate
    from proflab.standins.play import understand

    run = simulate(understand(["python", "-m", "cifar_train", *trainer], os.environ).workload)
    seen = {}
    for name, format_name in FORMATS.items():
        target = Path(folder) / name
        target.mkdir(parents=True, exist_ok=True)
        writers.write(format_name, run, target)
        seen[name] = tidyprof.read(_innermost(target))
    return seen


def _innermost(folder: Path) -> Path:
    """Tools put their folder for a host or a time into one for the run: go down while there is nothing beside it."""
    inside = [path for path in folder.iterdir() if not path.name.startswith(".")]  # such as another's unfinished files
    return _innermost(inside[0]) if len(inside) == 1 and inside[0].is_dir() else folder
