"""A run of the trainer as torch.profiler would record it on a modelled MI300X, where there is no GPU to record."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from proflab import journal

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

FOLDER = "modelled"
"""Folder of the traces, below the runs folder."""

SCHEDULE = (
    "--max-epochs 2 --max-steps 7 --torch-profile --record-shapes "
    "--profile-wait 3 --profile-warmup 1 --profile-active 3"
)


def modelled_trace(options: str, ranks: int = 1) -> Profile:
    """Rank 0 of the trainer with these options on modelled MI300X: three recorded steps, written as a Chrome trace and
    read back. Raises UserError for options that the trainer refuses."""
    import tidyprof
    from cifar_train.config import parse
    from gpumodel import Training, simulate, writers

    name = hashlib.sha256(f"{options} {ranks}".encode()).hexdigest()[:8]
    folder = journal.runs_folder() / FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    run = simulate(Training(config=parse(shlex.split(f"{options} {SCHEDULE}")), ranks=ranks, profiler="torch"))
    traces = sorted(writers.write("kineto", run, folder))
    return tidyprof.read(Path(traces[0]))
