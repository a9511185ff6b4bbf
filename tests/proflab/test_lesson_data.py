"""Data that holds no answer to an exercise: nothing is judged, and the learner is told why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from proflab.exercises import Outcome, find
from tidyprof_tests.analyses.test_analyses import event, host_step, profile_of

SLOWER_COMPILED = pd.DataFrame(
    [{"how": how, "call": call, "ms": 1} for how in ("eager", "compiled") for call in range(6)]
)


@pytest.mark.parametrize(
    ("number", "make", "words"),
    [
        (
            "02.2",
            lambda folder: profile_of(
                host_step(0, 0, 100), event("kernel", "k", 10, 20, launch_ns=5)
            ),
            "fewer than two steps",
        ),
        ("10.1", lambda folder: SLOWER_COMPILED, "never pays"),
        ("12.2", lambda folder: profile_of(event("kernel", "a", 0, 10)), "no graph was launched"),
    ],
)
def test_nothing_is_judged(
    tmp_path: Path, number: str, make: Callable[[Path], object], words: str
) -> None:
    result = find(number).on(make(tmp_path)).evaluate(3)
    assert result.outcome is Outcome.NOT_ATTEMPTED
    assert words in result.message
