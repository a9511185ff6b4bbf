"""What every writer says of itself: that the numbers were computed, by what and how exactly."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cifar_train.config import TrainConfig
from cifar_train.errors import UserError
from gpumodel.run import RankRun, Run
from gpumodel.writers.common.files import put

VERSION = "0.1.0"
"""Of the model, not of the course: it changes when its numbers do, so that files of one model are the same files."""

MARK = "modelled"
"""The member, tag or file name under which files of the model say that they are."""


def marker(run: Run) -> dict[str, Any]:
    """Who computed the run: `by`, `version`, `device`, `seed`, and the model's known `error` in words."""
    return {
        "by": "gpumodel",
        "version": VERSION,
        "device": run.device.name,
        "seed": run.workload.seed,
        "error": run.error,
    }


def marker_text(run: Run) -> str:
    """The marker as JSON in one line."""
    return json.dumps(marker(run), ensure_ascii=False)


def write_marker(run: Run, folder: Path) -> Path:
    """Write `modelled.json` into the folder: an object with the one key `modelled`."""
    folder.mkdir(parents=True, exist_ok=True)
    return put(folder / f"{MARK}.json", json.dumps({MARK: marker(run)}, ensure_ascii=False, indent=1) + "\n")


def ranks_of(run: Run, rank: int | None) -> tuple[RankRun, ...]:
    """The ranks to write: all, or the one asked for. Raises UserError if the run does not have it."""
    if rank is None:
        return run.ranks
    chosen = tuple(one for one in run.ranks if one.rank == rank)
    if not chosen:
        raise UserError(f"the modelled run has no rank {rank}; it has {len(run.ranks)}, counted from 0")
    return chosen


def config_of(run: Run) -> TrainConfig | None:
    """The trainer's configuration; None for a workload that is no training."""
    return getattr(run.workload, "config", None)


def has_ranges(run: Run) -> bool:
    """Whether the program marks its phases with ROCTx, so that AMD's profilers see them."""
    config = config_of(run)
    return config is not None and config.roctx


def identity(run: Run, rank: RankRun) -> str:
    """32 hexadecimal digits that name a rank's recording: the same for the same run, byte by byte."""
    text = f"{run.workload!r} {run.command!r} {run.hostname} {run.start_ns} {rank.rank} {rank.process_id}"
    text += getattr(run.workload, "altered", "")
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
