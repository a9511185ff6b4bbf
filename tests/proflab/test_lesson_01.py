"""Lesson 01: replies of its checks to synthetic logs, and the table of runs."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from proflab.parts.watched_runs import WatchedRun, one_table

from proflab.exercises import Outcome, exercises_of, find
from tidyprof.tables.contract import EVENT_DTYPES, Origin, Profile

lesson = exercises_of("01")

RUNS = ("example", "small-batch", "late-rank", "text generation")


def profile_of(*rows: tuple) -> Profile:
    """Rows of second, device, name, value and unit."""
    table = pd.DataFrame(rows, columns=["time_ns", "device", "name", "value", "unit"])
    table["time_ns"] = (table["time_ns"].astype(float) * 1e9).astype("int64")
    table = table.astype(
        {"device": "Int32", "name": "category", "value": "float64", "unit": "category"}
    )
    events = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in EVENT_DTYPES.items()})
    return Profile(events, table, {"origin": Origin("modeled", "by hand")})


def run_of(
    name: str,
    *gpus: tuple[float, float],
    batch: int = 256,
    rate: float = 1000.0,
    limit: float | None = 750.0,
) -> WatchedRun:
    """A run with busy % and power W of each GPU; 2 FLOP per image and a peak of 20,000 FLOP/s."""
    rows = [
        (0, device, quantity, value, unit)
        for device, (busy, power) in enumerate(gpus)
        for quantity, value, unit in (("gpu_busy", busy, "%"), ("power", power, "W"))
    ]
    return WatchedRun(name, profile_of(*rows), batch, rate, 2.0, 20_000.0, limit)


def three_runs(
    busy: float = 16, small_step_s: float = 0.1, small_busy: float = 31
) -> tuple[Any, ...]:
    """The data of exercise 01.1: the example with a step of 0.256 s, the same with 4 images, and a
    late rank.
    """
    small = run_of("small-batch", (small_busy, 230), batch=4, rate=4 / small_step_s)
    return run_of("example", (busy, 200)), small, run_of("late-rank", (94, 315), (11, 190))


RIGHT = {
    "example": {"Data", "host "},
    "small-batch": "host",
    "late-rank": ("data", "host"),
    "text generation": ["device"],
}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("data", "dictionary"),
        ({"example": "host"}, "ruled out `data`"),
        ({"example": ["data", "host"]}, "`small-batch`"),
        (dict.fromkeys(RUNS, "device"), "idle for 84%"),
        (RIGHT | {"small-batch": {"data", "host"}}, "remove `data`"),
        (RIGHT | {"late-rank": {"data", "device"}}, "remove `device`"),
        (RIGHT | {"text generation": {"network"}}, "remove `network`"),
    ],
)
def test_verdicts_say_what_is_wrong(answer: object, words: str) -> None:
    assert words in find("01.1").on(three_runs()).evaluate(answer).message


def test_verdicts_follow_from_the_steps() -> None:
    assert find("01.1").on(three_runs()).evaluate(RIGHT).outcome is Outcome.PASSED
    # Half of the small step grows with its images: its data stay open.
    assert lesson.open_suspects(three_runs(small_step_s=0.008))["small-batch"] == {"data", "host"}
    assert lesson.open_suspects(three_runs(busy=80, small_busy=80))["small-batch"] == {"device"}


RECORDED = run_of("text generation", (100.0, 686.0), (0.0, 154.0))
"""What the recorded GPU shows at work and without a model: what decides the alarm together with a
run that spins.
"""


def with_recorded(*runs: WatchedRun) -> pd.DataFrame:
    """All GPUs of some runs, and the recorded one."""
    return one_table([*runs, RECORDED])


SPINS = run_of("spins", (95.0, 315.0), (94.0, 315.0))


@pytest.mark.parametrize(
    ("alarm", "words"),
    [
        (lambda busy, watt, limit: busy > 80, "text generation, GPU 0"),
        (lambda busy, watt, limit: busy > 95, "text generation, GPU 0"),
        (lambda busy, watt, limit: watt < limit / 2, "isn't busy"),
        (lambda busy, watt, limit: busy > 0.85 and watt < 0.6 * limit, lesson.BUSY_FRACTION),
        (lambda busy, watt, limit: busy > 85 and 100 * watt / limit < 0.6, lesson.POWER_PERCENT),
        (lambda busy, watt, limit: busy > 85 and watt / limit < 60, lesson.POWER_PERCENT),
    ],
)
def test_a_wrong_alarm_gets_its_reason(alarm: Any, words: str) -> None:
    result = find("01.2").on(with_recorded(SPINS, run_of("example", (17.0, 204.0)))).evaluate(alarm)
    assert result.outcome is Outcome.WRONG
    assert words in result.message


def test_an_alarm_needs_a_gpu_that_is_busy_and_works() -> None:
    with pytest.raises(ValueError, match="busy at high power"):
        lesson.alarm_problem(lambda percent, power, limit: True, SPINS.table)


def test_the_table_has_medians_of_the_samples_with_the_memory_in_use() -> None:
    used, busy = (0.3e9, 1.8e9, 1.9e9, 1.8e9, 0.3e9), (0.0, 90.0, 80.0, 100.0, 0.0)
    rows = [(second, 0, "memory_used", value, "bytes") for second, value in enumerate(used)]
    rows += [(second, 0, "gpu_busy", value, "%") for second, value in enumerate(busy)]
    table = WatchedRun("a", profile_of(*rows), 4, 1.0, 1.0, 1.0, None).table
    assert table["busy_percent"].tolist() == [90]
    assert (
        table[["power_watt", "limit_watt", "limit_from", "memory_busy_percent"]]
        .isna()
        .all(axis=None)
    )
    without = profile_of(*(row for row in rows if row[2] == "gpu_busy"))
    assert WatchedRun("a", without, 4, 1.0, 1.0, 1.0, None).table["busy_percent"].tolist() == [80]
