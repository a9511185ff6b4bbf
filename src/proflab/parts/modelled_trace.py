"""A run of the trainer as torch.profiler would record it on a modelled MI300X, for machines without
a GPU.
"""

from __future__ import annotations

import hashlib
import shlex
from typing import TYPE_CHECKING

from proflab import journal

if TYPE_CHECKING:
    from tidyprof.tables.contract import Profile

FOLDER = "modelled"
"""Folder of the traces, below the runs folder."""

SCHEDULE = "--max-epochs 2 --max-steps 7 --torch-profile --record-shapes"


def modelled_trace(
    options: str, ranks: int = 1, longer: tuple[tuple[str, float], ...] = ()
) -> Profile:
    """The trainer with these options on modelled MI300X: three recorded steps, written as Chrome
    traces and read back.

    Of several ranks only rank 0 is recorded, unless the options have `--profile-all-ranks`;
    `longer` as in gpumodel's Training. Raises UserError for options that the trainer refuses.
    """
    import tidyprof
    from cifar_train.config import parse
    from gpumodel import Training, simulate, writers

    # The same options give the same folder, so calling again replaces the files.
    name = hashlib.sha256(f"{options} {ranks} {longer}".encode()).hexdigest()[:8]
    folder = journal.runs_folder() / FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    config = parse(shlex.split(f"{options} {SCHEDULE}"))
    run = simulate(Training(config=config, ranks=ranks, profiler="torch", longer=longer))
    writers.write("kineto", run, folder)
    return tidyprof.read(folder)
