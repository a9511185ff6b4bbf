"""The exercises of lesson 10 on recorded runs."""

from __future__ import annotations

import pandas as pd
import pytest

import proflab
import tidyprof
from proflab.exercises import Outcome, find
from proflab.exercises.registry import selftest


@pytest.fixture(scope="module")
def pair() -> dict[str, tidyprof.Profile]:
    """The two recordings of the vision transformer."""
    names = {"eager": "torch-cpu-vit", "compiled": "torch-cpu-vit-compiled"}
    return {how: tidyprof.read(proflab.recording(name).path) for how, name in names.items()}


def test_mistakes_with_the_recorded_times_are_told_apart(pair: dict[str, tidyprof.Profile]) -> None:
    selftest("10.1", pd.read_csv(proflab.recording("torch-cpu-compiled-block").files["times.csv"]))
    selftest("10.2", pair)


def test_the_share_of_the_optimizers_own_time_is_named(pair: dict[str, tidyprof.Profile]) -> None:
    result = find("10.2").on(pair).evaluate(44.8)
    assert result.outcome is Outcome.WRONG
    assert "a share of the optimizer's own time" in result.message
