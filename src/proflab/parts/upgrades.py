"""One training under three releases, and on another node: repeats as rocprofv3 would record them,
on a modelled GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from proflab import journal

if TYPE_CHECKING:
    from gpumodel.run import Run

FOLDER = "13"
"""Folder of the recordings, below the runs folder."""

OPTIONS = "--batch-size 1024 --fused-optimizer --batched-transforms --num-workers 8 --max-epochs 2"
"""A training that the GPU limits: if the host limits it, a slower kernel changes no step."""

REPEATS = 5
STEPS = 7
WATCHED_STEPS = 45
"""Enough steps for a monitor that reads its sensors once a second."""

NOISE = 0.03
"""Run-to-run noise: all kernels of a run take up to this share longer. An assumption, since no
spread of repeats on one machine has been published; measure your own.
"""

SIDES: dict[str, dict[str, Any]] = {
    "first": {},
    "second": {"solutions": "winograd"},
    "third": {"solutions": "winograd", "longer": (("f2x3_stride1", 1.15),)},
    "other_node": {"solutions": "winograd", "clock": 0.7},
}
"""Side -> settings of the model. From the first to the second release MIOpen's search finds other
kernels, as in two published runs of AMD's; in the third one kernel takes longer; the other node
runs the second release at a lower clock.
"""


def record(side: str, repeats: int = REPEATS) -> Path:
    """The folder of a side of SIDES, with a folder for each of its runs of STEPS steps, each a
    rocpd database.
    """
    from gpumodel import writers

    folder = journal.runs_folder() / FOLDER / side
    for number in range(repeats):
        run = folder / f"run{number + 1}"
        run.mkdir(parents=True, exist_ok=True)
        writers.write("rocpd", _play(side, number, STEPS, "rocprofv3"), run)
    return folder


def watch(side: str) -> Path:
    """The file that `amd-smi monitor -p -u --csv` writes beside a run of a side of SIDES, one
    sample a second.
    """
    from gpumodel import writers

    folder = journal.runs_folder() / FOLDER / f"{side}_watched"
    folder.mkdir(parents=True, exist_ok=True)
    return writers.write(
        "amd-smi", _play(side, REPEATS, WATCHED_STEPS, "none"), folder, flags="pu"
    )[0]


def _play(side: str, number: int, steps: int, profiler: str) -> Run:
    """One run of a side: `number` draws its noise, and everything else that differs between
    runs.
    """
    import numpy as np

    from cifar_train.config import parse
    from gpumodel import Training, simulate

    seed = 100 * list(SIDES).index(side) + number
    noise = 1 + NOISE * np.random.default_rng(seed).random()
    # An empty name fits every kernel.
    knobs = SIDES[side] | {"longer": (*SIDES[side].get("longer", ()), ("", float(noise)))}
    config = parse([*OPTIONS.split(), "--max-steps", str(steps), "--roctx"])
    return simulate(Training(config=config, profiler=profiler, seed=seed, **knobs))
