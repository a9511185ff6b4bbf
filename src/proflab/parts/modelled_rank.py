"""One rank of eight, as torch.profiler would record it: where AMD's recording of such a run can't be had."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from proflab import journal

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

FOLDER = "02/modelled_rank"
"""Folder of the trace, below the runs folder."""

RANKS = 8

OPTIONS = (
    "--batch-size 1024 --fused-optimizer --batched-transforms --num-workers 8 --max-epochs 2 --max-steps 7 "
    "--torch-profile --record-shapes --profile-wait 3 --profile-warmup 1 --profile-active 3"
)
"""A run whose device is the limit, as in the recording that it stands for: with smaller batches the host is."""


def modelled_rank() -> Profile:
    """Rank 0 of the trainer on eight modelled MI300X: three recorded steps, written as a Chrome trace and read back."""
    import tidyprof
    from cifar_train.config import parse
    from gpumodel import Training, simulate, writers

    folder = journal.runs_folder() / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    run = simulate(Training(config=parse(OPTIONS.split()), ranks=RANKS, profiler="torch"))
    (trace,) = writers.write("kineto", run, folder)
    return tidyprof.read(Path(trace))
