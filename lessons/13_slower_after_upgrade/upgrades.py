"""One training run under three releases, and on another node: modeled repeats of rocprofv3.

The archive holds seven steps of each run. From the first to the second release, MIOpen's search
finds other kernels, as in two published runs by AMD. In the third release, one kernel takes 15%
longer. The other node runs the second release at 0.7 times the clock.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from proflab import journal

HERE = Path(__file__).parent
FOLDER = "13"
"""Folder of the recordings, below the runs folder."""

NOISE = 0.03
"""Run-to-run noise: all kernels of a run take up to this share longer. An assumption, since no
spread of repeats on one machine has been published; measure your own.
"""


def unpack() -> Path:
    """Unpack the runs into the runs folder and return the folder with a folder for each side, each
    with a folder for each run.
    """
    folder = journal.runs_folder() / FOLDER
    shutil.unpack_archive(HERE / "modeled_runs.tar.xz", folder)
    return folder


def watched(side: str) -> Path:
    """Return what `amd-smi monitor -p -u --csv` logs next to a run, one sample per second."""
    return HERE / f"modeled_{side}_smi.csv"


def interval(new: Sequence[float], old: Sequence[float]) -> tuple[float, float]:
    """Return the 95% interval of the ratio of two means, from all exchanges between the two sides.

    The values that leave a side have a ratio of totals to those that replace them. The interval is
    the range of the middle 95% of these ratios.
    """
    both, ratios = np.array([*new, *old]), []
    own = set(range(len(new)))
    for dealt in map(set, combinations(range(len(both)), len(new))):
        if dealt != own:
            ratios.append(both[[*own - dealt]].sum() / both[[*dealt - own]].sum())
    return tuple(np.quantile(ratios, [0.025, 0.975]))
