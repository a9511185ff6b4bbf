"""The pickle that `torch.cuda.memory._dump_snapshot` would leave at the end of a played training run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from cifar_train.errors import UserError
from gpumodel.run import RankRun, Run
from gpumodel.writers.common.marker import config_of, ranks_of, write_marker
from gpumodel.writers.common.placing import put
from gpumodel.writers.memory_snapshot.allocator import CachingAllocator
from gpumodel.writers.memory_snapshot.lifetimes import TensorLifetimes

PROTOCOL = 4
"""What `pickle.dump` takes up to Python 3.13 (documentation of `pickle`), and the newest that torch's viewer reads
(https://github.com/pytorch/pytorch/issues/183842)."""


def write(run: Run, folder: Path, *, rank: int | None = None) -> list[Path]:
    """One file per rank, `snapshot_rank0.pickle`, with the history from the model's parameters to the last step; and
    the marker. What is allocated when is told by `TensorLifetimes`.

    rank -- write only this rank. Raises UserError for a rank that there is not, and for a run that is no training.
    """
    if config_of(run) is None:
        raise UserError("a memory snapshot is modelled for training runs only")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for one in ranks_of(run, rank):
        path = folder / f"snapshot_rank{one.rank}.pickle"
        written.append(put(path, pickle.dumps(_snapshot(run, one), protocol=PROTOCOL)))
    return [*written, write_marker(run, folder)]


def _snapshot(run: Run, rank: RankRun) -> dict[str, Any]:
    allocator = CachingAllocator(run.device.memory_bytes, rank.device)
    lifetimes = TensorLifetimes(allocator, config_of(run))
    for step in run.steps:
        plan = step.plan
        times_ns = step.marks[rank.rank][plan.begin] + run.wall_clock_offset_ns
        lifetimes.play(plan.operators, (times_ns // 1000).tolist())
    return allocator.snapshot()
