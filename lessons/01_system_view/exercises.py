"""Exercises of lesson 01, is the GPU even the problem? Most take watched runs, see `proflab.parts.watched_runs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from proflab.display import near
from proflab.exercises import Exercise, Mistake, Number, Property

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.watched_runs import WatchedRun

VERDICTS = ("data", "host", "device", "network")

BUILT_IN_VERDICTS = {"slow-loader": ("data",), "tiny-batch": ("host",), "late-rank": ("host", "data")}
"""What these runs allow to say, known by construction: the late rank sleeps before its forward pass, and a monitor
cannot tell whether it waits for data or for its processor. That of `healthy` depends on the GPU."""

HOST_RATIO = 0.9
"""From this share on a step of tiny-batch counts as being as long as one of healthy. Means of the same run differ by a
few percent, while a step that the work in it sets becomes much shorter with 4 images instead of 256."""

SAME_STEP = (
    "Compare it with tiny-batch: the same step time for far fewer images, so the amount of work does not set it."
)
SHORTER_STEP = "A step of tiny-batch is shorter than one of healthy: the amount of work sets the pace."
"""What the comparison of `healthy` with tiny-batch says, by HOST_RATIO."""

REASONS = {
    "slow-loader": "The GPU holds the model and does next to nothing: it waits for its images.",
    "tiny-batch": "With so few images a step has next to no work for loader and GPU: what is left is the host's.",
    "late-rank": "All GPUs but one spin: it is the one that the others wait for. A slow network keeps all spinning.",
}
"""What speaks against a wrong verdict on a run of BUILT_IN_VERDICTS."""

LOADED_BYTES = 1e9
"""More than this on the GPU means that a model is there: idle cards of the recording hold a third of it."""

RINGS_BUSY, RINGS_POWER = 88, 0.5
QUIET_BUSY, QUIET_POWER = 75, 0.7
"""Any alarm has to ring from RINGS_BUSY percent on below RINGS_POWER of the power limit, and must not below QUIET_BUSY
or above QUIET_POWER. In between it may do either."""

WOBBLE_PERCENT = 2.0
"""An alarm must stay right if busy and power move by this much: sensors are not exact."""


def step_ratio(table: pd.DataFrame) -> float:
    """How many times as long a step of tiny-batch is as one of healthy, by a table of runs."""
    runs = table.set_index("run")
    steps = runs["batch_size"] / runs["images_per_second"]
    return float(steps["tiny-batch"] / steps["healthy"])


def busier_others(run: WatchedRun, busiest: bool = False, with_itself: bool = False) -> float:
    """How much busier the others are than the least busy GPU, in percentage points; two mistakes to choose.

    busiest -- that GPU against the others; with_itself -- against the mean of all. Raises ValueError for one GPU.
    """
    busy = run.table.set_index("device")["busy_percent"]
    if len(busy) < 2:
        raise ValueError("the log has one GPU")
    one = busy.idxmax() if busiest else busy.idxmin()
    return float(abs((busy if with_itself else busy.drop(one)).mean() - busy[one]))


def extra_energy(samples: pd.DataFrame, window: int = -1, idle: bool = True) -> float:
    """Watt-hours of the last (or another) window with a model, without what an idle GPU takes; with it if not `idle`.

    samples -- columns timestamp (s), power_watts, vram_used_bytes and window.
    """
    loaded = samples["vram_used_bytes"] > LOADED_BYTES
    own = samples[samples["window"] == samples.loc[loaded, "window"].unique()[window]]
    seconds = own["timestamp"].diff()
    idle_watt = samples.loc[~loaded, "power_watts"].median() if idle else 0
    return float((seconds * (own["power_watts"].rolling(2).mean() - idle_watt)).sum() / 3600)


def same_step(healthy: WatchedRun, tiny: WatchedRun) -> bool:
    """Whether a step lasts as long with far fewer images."""
    seconds = [run.batch_size / run.images_per_second for run in (healthy, tiny)]
    return seconds[1] / seconds[0] >= HOST_RATIO


def allowed_verdicts(runs: Sequence[WatchedRun]) -> dict[str, tuple[str, ...]]:
    """What the runs (healthy, slow-loader, tiny-batch, late-rank) allow to say of each.

    Where the work in a step sets the pace of healthy, it is the GPU's work. If the GPU is busy for less than QUIET_BUSY
    percent of the time, it may be the loader's just as well.
    """
    healthy, _, tiny, _ = runs
    if same_step(healthy, tiny):
        own: tuple[str, ...] = ("host",)
    else:
        own = ("device",) if healthy.table["busy_percent"].iloc[0] >= QUIET_BUSY else ("device", "data")
    return {"healthy": own, **BUILT_IN_VERDICTS}


def verdict_problem(answer: Any, runs: Sequence[WatchedRun]) -> str | None:
    """What is wrong with a dictionary of run and verdict, None if the four runs allow all of them."""
    if not isinstance(answer, Mapping):
        return f"A dictionary of runs and verdicts is asked, this is a {type(answer).__name__}."
    for run, allowed in allowed_verdicts(runs).items():
        if run not in answer:
            return f"`{run}` is missing: {near(run, map(str, answer))}"
        given = str(answer[run]).strip().casefold()
        if given not in VERDICTS:
            return f"`{answer[run]}` is no verdict: {near(given, VERDICTS)}"
        if given not in allowed:
            return f"{run}: not {given}. {_reason(run, runs)}"
    return None


def must_ring(table: pd.DataFrame) -> pd.Series:
    """Whether an alarm has to ring for each row of a table of GPUs: True, False, or <NA> where it may do either.

    Rows without power or without a limit are <NA> too.
    """
    import pandas as pd

    busy, share = table["busy_percent"], (table["power_watt"] / table["limit_watt"]).astype("float64")
    rings = pd.Series(pd.NA, index=table.index, dtype="boolean")
    rings[(busy >= RINGS_BUSY) & (share < RINGS_POWER)] = True
    rings[((busy < QUIET_BUSY) & share.notna()) | (share > QUIET_POWER)] = False
    return rings


def alarm_problem(answer: Any, table: pd.DataFrame) -> str | None:
    """What is wrong with an alarm, None if it rings for each GPU that is busy at low power and not for the others.

    Raises ValueError for a table without such a GPU.
    """
    if not callable(answer):
        return f"A function of busy_percent, power_watt and limit_watt is asked, this is a {type(answer).__name__}."
    expected = must_ring(table)
    if not expected.any():
        raise ValueError("no GPU of these runs is busy at low power, or no power limit is known")
    for row, expects in zip(table[expected.notna()].to_dict("records"), expected.dropna(), strict=True):
        rings = [bool(answer(*reading, row["limit_watt"])) for reading in _readings(row)]
        where = f"{row['run']}, GPU {row['device']} ({row['busy_percent']:.0f} % at {row['power_watt']:.0f} W)"
        if expects and not all(rings):
            return f"It must ring for {where}, also when the sensors are {WOBBLE_PERCENT:.0f} % off."
        if not expects and any(rings):
            return f"It rings for {where}, which does not look busy and idle at once."
    return None


def _readings(row: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Busy and power of a GPU as sensors that are a little off would show them."""
    factors = (1 - WOBBLE_PERCENT / 100, 1.0, 1 + WOBBLE_PERCENT / 100)
    return [(min(100.0, row["busy_percent"] * f), row["power_watt"] * g) for f in factors for g in factors]


def _reason(run: str, runs: Sequence[WatchedRun]) -> str:
    return REASONS.get(run) or (SAME_STEP if same_step(runs[0], runs[2]) else SHORTER_STEP)


def _verdicts(runs: Sequence[WatchedRun]) -> dict[str, str]:
    return {name: allowed[0] for name, allowed in allowed_verdicts(runs).items()}


def _changed(run: str, verdict: str) -> Callable[[Any], dict[str, str]]:
    return lambda runs: _verdicts(runs) | {run: verdict}


def _rates(table: pd.DataFrame) -> pd.Series:
    return table.set_index("run")["images_per_second"]


def _what_the_ratio_says(table: pd.DataFrame) -> str:
    batch = table.set_index("run")["batch_size"]
    fewer = f"{batch['healthy'] / batch['tiny-batch']:.0f} times fewer images"
    if step_ratio(table) >= HOST_RATIO:
        return f"{fewer} take nearly the same time: what is left is the fixed cost of a step on the host."
    return f"{fewer} make the step shorter: the work sets a part of the pace. On a busy GPU it is the GPU's work."


EXERCISES = (
    Exercise(
        id="01.1",
        answer=Number(lambda run: 100 * run.mfu, unit="percent"),
        mistakes=(
            Mistake(
                lambda run: 100 * run.mfu * run.batch_size,
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
        ),
        insight=lambda run: (
            f"Busy for {run.table['busy_percent'].iloc[0]:.0f} % of the time, at {100 * run.mfu:.2f} % of the peak."
        ),
    ),
    Exercise(
        id="01.2",
        answer=Number(step_ratio, unit="ratio", relative=0.02),
        mistakes=(
            Mistake(
                lambda table: _rates(table)["healthy"] / _rates(table)["tiny-batch"],
                "That compares images per second, but the batches differ: a step is a batch divided by its rate.",
            ),
            Mistake(
                lambda table: _rates(table)["tiny-batch"] / _rates(table)["healthy"],
                "That compares images per second, upside down too: a step is a batch divided by its rate.",
            ),
        ),
        hints=(
            "`batch_size / images_per_second` is the time of a step, for all runs at once.",
            '`single.set_index("run")` lets you ask for `["tiny-batch"]` and `["healthy"]` by name.',
        ),
        insight=_what_the_ratio_says,
    ),
    Exercise(
        id="01.3",
        answer=Number(busier_others),
        mistakes=(
            Mistake(
                lambda run: busier_others(run, busiest=True),
                "You took the busiest one. It waits the longest: waiting for another GPU counts as busy.",
            ),
            Mistake(lambda run: busier_others(run, with_itself=True), "It is in your mean itself: leave it out."),
        ),
        hints=(
            "What is a GPU doing while it waits for another one, and what does the monitor call that?",
            "Waiting counts as busy. Who hardly ever waits? `busy[used > used.max() / 2]` are the samples to look at.",
            "`.median()` gives a number for each column, `.idxmin()` the name of the smallest: machine and card.",
        ),
        insight="The GPU that looks worst is the only one that nobody keeps waiting.",
    ),
    Exercise(
        id="01.4",
        answer=Number(extra_energy, unit="Wh", relative=0.02),
        mistakes=(
            Mistake(
                lambda samples: extra_energy(samples, idle=False),
                "That is all that was taken. Subtract what an idle GPU would have taken: its power times the hours.",
            ),
            Mistake(lambda samples: extra_energy(samples, 0), "That is the first window with a model: take the last."),
            Mistake(lambda samples: 3600 * extra_energy(samples), "That is in joules. A watt-hour is 3,600 of them."),
        ),
        hints=(
            "`watt_hours` of its samples is what was taken; idle power times its hours is what would have been anyway.",
            '`gpu0[gpu0["window"] == windows.index[-1]]` are its samples.',
        ),
        insight=lambda samples: (
            f"{extra_energy(samples):.1f} of {extra_energy(samples, idle=False):.1f} Wh: the rest was for being there."
        ),
    ),
    Exercise(
        id="01.5",
        answer=Property(verdict_problem, _verdicts),
        mistakes=(
            Mistake(_changed("late-rank", "network"), "late-rank: not network."),
            Mistake(_changed("tiny-batch", "device"), "tiny-batch: not device."),
            Mistake(_changed("healthy", "network"), lambda runs: f"healthy: not network. {_reason('healthy', runs)}"),
            Mistake(_changed("healthy", "cpu"), "`cpu` is no verdict"),
        ),
        hints=(
            "Go through the table of verdicts above, from the top, for each run.",
            "Nearly idle is waiting for data; steps that are equally long at any batch size are the host's; of GPUs "
            "that differ, one is late, and not because of the network.",
        ),
        insight="For late-rank `data` would do as well: a monitor of GPUs can't tell why that rank is late.",
    ),
    Exercise(
        id="01.6",
        answer=Property(alarm_problem, lambda table: lambda busy, power, limit: busy > 85 and power < 0.6 * limit),
        mistakes=(
            Mistake(lambda table: lambda busy, power, limit: power < limit, "does not look busy and idle at once"),
            Mistake(lambda table: lambda busy, power, limit: busy > 99.5 and power < limit / 2, "It must ring for"),
        ),
        hints=(
            "Look at the table below the map: who is busy, and takes little of its power limit?",
            "Two conditions, joined by `and`: one on busy, one on power as a share of the limit.",
        ),
        insight="It says that something is wrong, not what: spinning, or one small kernel after another.",
    ),
)
