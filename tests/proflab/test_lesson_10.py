"""What lesson 10 shows of two runs, and the mistakes that its exercises know."""

from __future__ import annotations

import re

import pandas as pd
import pytest

import proflab
import tidyprof
from cifar_train.config import parse
from gpumodel import Training, simulate
from gpumodel.truth import profile_of
from proflab.exercises.registry import selftest
from proflab.lessons import lessons
from proflab.parts.runs_above import runs_above


def test_a_compiled_run_asks_for_its_data_earlier_in_the_picture() -> None:
    options = ["--model", "vit", "--num-workers", "8", "--max-steps", "5"]
    runs = {
        name: profile_of(simulate(Training(config=parse([*options, *more]))))
        for name, more in {"eager": [], "compiled": ["--compile"]}.items()
    }
    text = runs_above(runs, "modelled", first=2, steps=2).alternative_text
    eager, compiled = (
        [float(number) for number in re.search(rf"{name} at ([\d., ]+) ms", text)[1].split(", ")] for name in runs
    )
    assert len(eager) == 2 < len(compiled)  # more compiled steps begin in the same time
    assert compiled[1] < eager[1]
    begins = tidyprof.phases(runs["eager"]).query("phase == 'data'")["start_ns"]
    step = tidyprof.steps(runs["eager"])["start_ns"].iloc[2]
    assert eager[1] == pytest.approx((begins.iloc[3] - step) / 1e6, abs=0.05)


def test_mistakes_with_the_recorded_times_are_told_apart() -> None:
    recorded = pd.read_csv(proflab.recording("torch-cpu-compiled-block").files["times.csv"])
    selftest("10.1", recorded)
    names = {"eager": "torch-cpu-vit", "compiled": "torch-cpu-vit-compiled"}
    selftest("10.2", {how: tidyprof.read(proflab.recording(name).path) for how, name in names.items()})


def test_the_table_of_names_fits_a_narrow_window() -> None:
    # A cell is at least as wide as its longest word. 846 px are left at 1280, a character of code takes 7.8 px there,
    # and a cell has 16 px around.
    text = lessons()["10"].source.read_text(encoding="utf-8")
    table = text.split("## From CUDA to any GPU")[1].split("## Decide")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("# |")]
    widths = [max(len(word) for row in rows for word in (row[column].split() or [""])) for column in range(4)]
    assert 7.8 * sum(widths) + 4 * 16 < 846
