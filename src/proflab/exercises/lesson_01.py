"""Exercises of lesson 01, is the GPU even the problem? Most take watched runs, see `proflab.parts.watched_runs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cifar_train.peaks import peak_flops
from proflab.display import near
from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.watched_runs import WatchedRun

VERDICTS = ("data", "host", "device", "network")

RIGHT_VERDICTS = {
    "healthy": ("host",),
    "slow-loader": ("data",),
    "tiny-batch": ("host",),
    "late-rank": ("host", "data"),
}
"""What the four runs allow to say: the first three are known by construction, and so is the last, whose late rank
sleeps before its forward pass. A monitor cannot tell whether that rank waits for data or for its processor."""

REASONS = {
    "healthy": "Compare it with tiny-batch: the same step time for far fewer images, so neither the amount of data nor "
    "the amount of arithmetic sets it.",
    "slow-loader": "The GPU holds the model and does next to nothing. Look at busy and power: it waits for its images.",
    "tiny-batch": "Its steps are as long as those of healthy, with far fewer images in them: what stays the same is "
    "the host's work for each step.",
    "late-rank": "Three GPUs spin, but the fourth does not: it is the one that the others wait for. A slow network "
    "would keep all of them spinning.",
}
"""What speaks against a wrong verdict."""

SPINNING_BUSY, SPINNING_POWER = 80, 0.6
"""A GPU of this lesson counts as spinning above this busy share at less than this fraction of its power limit."""

WOBBLE_PERCENT = 2.0
"""An alarm must stay right if busy and power move by this much: sensors are not exact."""


def power_share(run: WatchedRun) -> float:
    """Power in percent of the limit."""
    row = run.table.iloc[0]
    return float(100 * row["power_watt"] / row["limit_watt"])


def mfu_percent(run: WatchedRun) -> float:
    """MFU in percent."""
    return 100 * run.mfu


def mfu_of_float32(run: WatchedRun) -> float:
    """MFU in percent of the peak of float32 on an MI300X."""
    return 100 * run.images_per_second * run.flops_per_image / peak_flops("MI300X", "float32")


def step_s(run: WatchedRun) -> float:
    """Seconds of a mean step."""
    return run.batch_size / run.images_per_second


def waited_for(run: WatchedRun, busiest: bool = False) -> int:
    """Number of the least (or most) busy GPU. Raises ValueError where there is only one."""
    busy = run.table.set_index("device")["busy_percent"]
    if len(busy) < 2:
        raise ValueError("the log has one GPU")
    return int(busy.idxmax() if busiest else busy.idxmin())


def verdict_problem(answer: Any, data: Any) -> str | None:
    """What is wrong with a dictionary of run and verdict, None if the logs allow all of them."""
    if not isinstance(answer, Mapping):
        return f"A dictionary of runs and verdicts is asked, this is a {type(answer).__name__}."
    for run in RIGHT_VERDICTS:
        if run not in answer:
            return f"`{run}` is missing: {near(run, map(str, answer))}"
        given = str(answer[run]).strip().casefold()
        if given not in VERDICTS:
            return f"`{answer[run]}` is no verdict: {near(given, VERDICTS)}"
        if given not in RIGHT_VERDICTS[run]:
            return f"{run}: not {given}. {REASONS[run]}"
    return None


def is_spinning(table: pd.DataFrame) -> pd.Series:
    """Which rows of a table of GPUs are busy without doing much."""
    low = table["power_watt"] < SPINNING_POWER * table["limit_watt"]
    return (table["busy_percent"] > SPINNING_BUSY) & low.fillna(False)


def alarm_problem(answer: Any, table: pd.DataFrame) -> str | None:
    """What is wrong with an alarm, None if it rings for each spinning GPU of the table and for no other."""
    if not callable(answer):
        return f"A function of busy_percent and power_watt is asked, this is a {type(answer).__name__}."
    if not is_spinning(table).any():
        raise ValueError("no GPU of these runs spins")
    for row, spins in zip(table.to_dict("records"), is_spinning(table), strict=True):
        rings = [bool(answer(*reading)) for reading in _readings(row)]
        where = f"{row['run']}, GPU {row['device']} ({row['busy_percent']:.0f} % at {row['power_watt']:.0f} W)"
        if spins and not all(rings):
            return f"It must ring for {where}, also when the sensors are {WOBBLE_PERCENT:.0f} % off."
        if not spins and any(rings):
            return f"It rings for {where}, which does not look busy and idle at once."
    return None


def _readings(row: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Busy and power of a GPU as sensors that are a little off would show them."""
    factors = (1 - WOBBLE_PERCENT / 100, 1.0, 1 + WOBBLE_PERCENT / 100)
    return [(min(100.0, row["busy_percent"] * f), row["power_watt"] * g) for f in factors for g in factors]


def _alarm(table: pd.DataFrame) -> Callable[[float, float], bool]:
    return lambda busy_percent, power_watt: busy_percent > SPINNING_BUSY and power_watt < 450


def _changed(run: str, verdict: str) -> Callable[[Any], dict[str, str]]:
    return lambda data: {name: right[0] for name, right in RIGHT_VERDICTS.items()} | {run: verdict}


def _ratio(runs: Sequence[WatchedRun]) -> float:
    before, after = runs
    return step_s(after) / step_s(before)


EXERCISES = (
    Exercise(
        id="01.1",
        question="How much of its power limit does the GPU of the healthy run use, in percent?",
        answer=Number(power_share, unit="percent"),
        mistakes=(
            Mistake(
                lambda run: run.table["busy_percent"].iloc[0],
                "That is how busy it is. Power is in `power_watt`, the limit in `limit_watt`.",
            ),
            Mistake(
                lambda run: run.table["power_watt"].iloc[0],
                "That is the power in watts; the share of the limit is asked.",
            ),
        ),
        hints=(
            "`healthy.table` has one row per GPU.",
            "Divide `power_watt` by `limit_watt`; percent is asked.",
            '`100 * healthy.table["power_watt"].iloc[0] / healthy.table["limit_watt"].iloc[0]`',
        ),
        solution="""
row = healthy.table.iloc[0]
answer = 100 * row["power_watt"] / row["limit_watt"]
""",
        insight="An idle GPU takes a good part of this already: read power from idle to limit, not from zero.",
        minutes=3,
    ),
    Exercise(
        id="01.2",
        question="What is the MFU of the healthy run, in percent?",
        answer=Number(mfu_percent, unit="percent"),
        mistakes=(
            Mistake(
                mfu_of_float32,
                "That is a share of the peak of float32. This run computes in 16 bits: take `healthy.peak_flops`.",
            ),
            Mistake(
                lambda run: mfu_percent(run) * run.batch_size,
                "You multiplied by the batch size, but `images_per_second` counts images already, not steps.",
            ),
            Mistake(
                lambda run: run.table["busy_percent"].iloc[0],
                "That is how busy the GPU is. MFU needs the rate, the operations per image and the peak.",
            ),
        ),
        hints=(
            "What does the model need in a second, and what could the GPU do in a second?",
            "The first is `images_per_second` times `flops_per_image`, the second `peak_flops`.",
            "`100 * healthy.images_per_second * healthy.flops_per_image / healthy.peak_flops`",
        ),
        solution="""
answer = 100 * healthy.images_per_second * healthy.flops_per_image / healthy.peak_flops
""",
        insight=lambda run: (
            f"Busy for {run.table['busy_percent'].iloc[0]:.0f} % of the time, and {mfu_percent(run):.2f} % of the "
            "arithmetic that the GPU offers."
        ),
        minutes=4,
    ),
    Exercise(
        id="01.3",
        question="How many times as long as a step of healthy is a step of tiny-batch?",
        answer=Number(_ratio, unit="ratio", relative=0.02),
        mistakes=(
            Mistake(
                lambda runs: runs[0].images_per_second / runs[1].images_per_second,
                "That compares images per second, but the batches differ: a step is a batch divided by its rate.",
            ),
            Mistake(
                lambda runs: runs[1].images_per_second / runs[0].images_per_second,
                "That compares images per second, upside down too: a step is a batch divided by its rate.",
            ),
        ),
        hints=(
            "How long does a step take if you know the images in it and the images per second?",
            "`batch_size / images_per_second` is the time of a step, for both runs.",
            "`tiny.batch_size / tiny.images_per_second / (healthy.batch_size / healthy.images_per_second)`",
        ),
        solution="""
answer = (tiny.batch_size / tiny.images_per_second) / (healthy.batch_size / healthy.images_per_second)
""",
        insight=lambda runs: (
            f"{runs[0].batch_size / runs[1].batch_size:.0f} times the images in nearly the same time: the step does "
            "not depend on the work in it. What is left is the fixed cost of a step on the host."
        ),
        minutes=4,
    ),
    Exercise(
        id="01.4",
        question="Which GPU do the others wait for? Its number in the column `device` is asked.",
        answer=Number(waited_for, relative=0),
        mistakes=(
            Mistake(
                lambda run: waited_for(run, busiest=True),
                "That one is the busiest, and the one that waits the longest: waiting for another GPU counts as busy.",
            ),
            Mistake(
                lambda run: waited_for(run) + 1,
                "GPUs are numbered from 0: take the number in the column `device`.",
            ),
        ),
        hints=(
            "What is a GPU doing while it waits for another one, and what does the monitor call that?",
            "Waiting counts as busy. Who hardly ever waits?",
            '`late.table.set_index("device")["busy_percent"].idxmin()`',
        ),
        solution="""
answer = late.table.set_index("device")["busy_percent"].idxmin()
""",
        insight="The GPU that looks worst is the only one that nobody keeps waiting.",
        minutes=4,
    ),
    Exercise(
        id="01.5",
        question="Give a verdict for each run, as a dictionary: data, host, device or network.",
        answer=Property(verdict_problem, lambda data: {run: right[0] for run, right in RIGHT_VERDICTS.items()}),
        mistakes=(
            Mistake(_changed("late-rank", "network"), "late-rank: not network."),
            Mistake(_changed("late-rank", "device"), "the one that the others wait for"),
            Mistake(_changed("tiny-batch", "device"), "tiny-batch: not device."),
            Mistake(_changed("healthy", "data"), "the same step time for far fewer images"),
            Mistake(_changed("slow-loader", "host"), "it waits for its images"),
            Mistake(_changed("healthy", "cpu"), "`cpu` is no verdict"),
        ),
        hints=(
            "Go through the table of verdicts above, from the top, for each run.",
            "Which run is nearly idle? Which two have equally long steps? In which do the GPUs differ?",
            "Nearly idle is waiting for data; equal steps at any batch size are the host's; of four GPUs that "
            "differ, one is late, and not because of the network.",
        ),
        solution="""
answer = {"healthy": "host", "slow-loader": "data", "tiny-batch": "host", "late-rank": "host"}
""",
        insight="For late-rank `data` would do as well: a monitor of GPUs can't tell why that rank is late.",
        minutes=6,
    ),
    Exercise(
        id="01.6",
        question="Write an alarm: a function of busy_percent and power_watt that is true for GPUs that look busy "
        "and do little.",
        answer=Property(alarm_problem, _alarm),
        mistakes=(
            Mistake(lambda table: lambda busy, power: busy > 0, "which does not look busy and idle at once"),
            Mistake(lambda table: lambda busy, power: power < 300, "which does not look busy and idle at once"),
            Mistake(lambda table: lambda busy, power: busy > 99.5 and power < 400, "It must ring for late-rank"),
            Mistake(lambda table: {"busy": 80}, "A function of busy_percent and power_watt is asked"),
        ),
        hints=(
            "Look at the map: which points are far to the right, and still low?",
            "Two conditions, joined by `and`: one on busy, one on power.",
            "`def alarm(busy_percent, power_watt): return busy_percent > ... and power_watt < ...`",
        ),
        solution="""
def answer(busy_percent, power_watt):
    return busy_percent > 85 and power_watt < 450
""",
        insight="It says that something is wrong, not what: spinning, or one small kernel after another.",
        minutes=7,
    ),
)
