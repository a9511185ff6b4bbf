"""Rounds of two versions of a script: the learner's own, or recorded ones if those are
inconclusive.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tidyprof.running.report import read_run
from tidyprof.tables.contract import Origin

HERE = Path(__file__).parent
RECORDED_ON = Origin("recorded", "two cores of an AMD EPYC, sort_letters.py")
FEWEST = 7
"""Number of rounds that agree by chance in less than 2% of cases (2 / 2**7)."""


def rounds_to_judge(folder: Path) -> tuple[pd.DataFrame, Origin]:
    """Return one row per round with the mean step time of both versions in ms, and the origin.

    The result comes from `folder`, which contains a folder per version with a folder per round. If
    the rounds are missing or some of them disagree about which version is faster, the result is
    the recorded table.
    """
    own = _rounds(folder)
    if len(own) >= FEWEST and (own["fixed_ms"] < own["before_ms"]).nunique() == 1:
        return own, Origin("measured", "this machine")
    return pd.read_csv(HERE / "rounds.csv"), RECORDED_ON


def _rounds(folder: Path) -> pd.DataFrame:
    columns = ["before_ms", "fixed_ms"]
    table = pd.DataFrame(columns=columns, dtype=float).rename_axis("round")
    for path in sorted(folder.glob("*/*")):
        if step_ns := read_run(path).step_ns:
            version = columns[path.parent.name.startswith("fixed_")]
            table.loc[int(path.name), version] = step_ns / 1e6
    return table.dropna().sort_index().reset_index()
