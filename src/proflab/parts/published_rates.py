"""The rates that AMD published for this workload, line by line: lesson 00's table, as steps."""

from __future__ import annotations

import pandas as pd

from proflab.lessons import lesson
from tidyprof.tables.contract import Origin

COUNTED_IMAGES = 256
"""What the script divides by the time, in every line."""

WARMUP_STEPS = 5
"""First lines to leave out: step 4 is still slow, and the trainer of this course leaves out as many."""


def published_rates(run: str) -> pd.DataFrame:
    """One row per published line of `run` ("one GPU" or "parallel"): step, part (warmup or steady), duration_ns (what
    the script's clock spanned), images_per_second as printed."""
    table = pd.read_csv(lesson("00").folder / "published_rates.csv", comment="#").query("run == @run")
    table = table.drop(columns="run").reset_index(drop=True)
    table["part"] = table["step"].lt(WARMUP_STEPS).map({True: "warmup", False: "steady"})
    table["duration_ns"] = (COUNTED_IMAGES / table["images_per_second"] * 1e9).round().astype("int64")
    table.attrs["origin"] = Origin("recorded", "AMD Instinct MI300X, ROCm 6.2, published by AMD in HPCTrainingExamples")
    return table
