"""Exercises of lesson 01: is the GPU even the problem? Their runs come from
`proflab.parts.watched_runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from proflab.display import near
from proflab.exercises import Exercise, Mistake, Property

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.watched_runs import WatchedRun

SUSPECTS = ("data", "host", "device", "network")

GENERATION = "text generation"
"""The recorded run: one GPU that is always busy and near its power limit."""

HOST_SHARE = 0.9
"""Smallest share of a step independent of its images that counts as the whole step."""

RINGS_BUSY, RINGS_POWER = 88, 0.5
QUIET_BUSY, QUIET_POWER = 75, 0.7
"""An alarm must ring at RINGS_BUSY percent or more, below RINGS_POWER of the power limit. It must
not ring below QUIET_BUSY or above QUIET_POWER. Between these values, both are correct.
"""

OTHER_LIMIT_WATT = 300.0
"""A second power limit for each GPU, taken from an MI210. An alarm in watts, such as `power_watt <
400`, would always ring there.
"""

WOBBLE = 0.02
"""Relative error of activity and power that an alarm must tolerate, because sensors are inexact."""


def step_ms(run: WatchedRun) -> float:
    """Return the milliseconds of a step."""
    return 1e3 * run.batch_size / run.images_per_second


def open_suspects(runs: Sequence[WatchedRun]) -> dict[str, frozenset[str]]:
    """Return the suspects that remain for the example, the small batch, the late rank and the
    recorded GPU.

    The late rank sleeps before its forward pass. A monitor can't show whether it waits for data or
    for the host.
    """
    example, small, _ = runs
    per_image = (step_ms(example) - step_ms(small)) / (example.batch_size - small.batch_size)
    fixed = 1 - per_image * small.batch_size / step_ms(small) >= HOST_SHARE
    idle = frozenset({"data", "host"})
    return {
        "example": frozenset({"device"}) if _busy(example) else idle,
        "small-batch": frozenset({"device"} if _busy(small) else {"host"} if fixed else idle),
        "late-rank": idle,
        GENERATION: frozenset({"device"}),
    }


def suspects_problem(answer: Any, runs: Sequence[WatchedRun]) -> str | None:
    """Return what is wrong with a dictionary from run to suspects (one string or several), or
    None.
    """
    if not isinstance(answer, Mapping):
        return f"Your answer is of type `{type(answer).__name__}`. Answer with a dictionary."
    for run, right in open_suspects(runs).items():
        if run not in answer:
            return f"Add the key `{run}` to your dictionary. {near(run, map(str, answer))}"
        names = [answer[run]] if isinstance(answer[run], str) else answer[run]
        given = {str(name).strip().casefold() for name in names}
        if unknown := sorted(given - set(SUSPECTS)):
            return f"`{run}`: `{unknown[0]}` isn't a suspect. {near(unknown[0], SUSPECTS)}"
        if excluded := sorted(given - right):
            against = _against(run, excluded[0], runs)
            return f"`{run}`: remove `{excluded[0]}`. {against}"
        if left := sorted(right - given):
            return (
                f"`{run}`: you ruled out `{left[0]}`, but no evidence contradicts it. A GPU monitor"
                " can't distinguish a wait for data from a wait for the host."
            )
    return None


def _against(run: str, suspect: str, runs: Sequence[WatchedRun]) -> str:
    """Return the evidence against a suspect."""
    if run == "late-rank":
        return {
            "network": "On a slow network, all GPUs would spin, but this GPU is idle.",
            "device": "The GPU that the others wait for is idle most of the time.",
        }[suspect]
    if suspect == "network":
        return "A single GPU doesn't wait for data from other GPUs."
    if run == GENERATION:
        return "The GPU is always busy and near its power limit, so it doesn't wait for anything."
    one = runs[0] if run == "example" else runs[1]
    if suspect == "device":
        idle = 100 - one.table["busy_percent"].iloc[0]
        return f"The GPU is idle for {idle:.0f}% of the time, so it isn't the limit."
    if _busy(one):
        return "The GPU is almost never idle."
    return "This step would take nearly as long without its images."


def _busy(run: WatchedRun) -> bool:
    return bool(run.table["busy_percent"].iloc[0] >= QUIET_BUSY)


def must_ring(table: pd.DataFrame) -> pd.Series:
    """Return for each GPU whether an alarm must ring: True, False, or <NA> if both are correct or
    its power share is unknown.
    """
    import pandas as pd

    busy, share = (
        table["busy_percent"],
        (table["power_watt"] / table["limit_watt"]).astype("float64"),
    )
    rings = pd.Series(pd.NA, index=table.index, dtype="boolean")
    rings[(busy >= RINGS_BUSY) & (share < RINGS_POWER)] = True
    rings[((busy < QUIET_BUSY) & share.notna()) | (share > QUIET_POWER)] = False
    return rings


Alarm = Callable[[float, float, float], Any]

BUSY_FRACTION = (
    "You compared `busy_percent` with a fraction, so the alarm rings for idle GPUs. Compare"
    " `busy_percent` with a number from 0 to 100."
)
POWER_PERCENT = (
    "You compared a percentage of the power limit with a fraction. Use percentages or fractions for"
    " both."
)
SCALES = ((100, 1, BUSY_FRACTION), (1, 100, POWER_PERCENT), (1, 0.01, POWER_PERCENT))
"""Divisors of activity and power that make an alarm with a wrong unit correct, and the reply."""


def alarm_problem(answer: Any, table: pd.DataFrame) -> str | None:
    """Return what is wrong with an alarm, or None if it rings for exactly the GPUs that are busy at
    low power.

    Raises ValueError for a table without such a GPU, or without one that is busy at high power.
    """
    if not callable(answer):
        return f"Your answer is of type `{type(answer).__name__}`. Define `answer` as a function."
    expected = must_ring(table)
    if not expected.any():
        raise ValueError("no GPU is busy at low power, or no power limit is known")
    if not (~expected & (table["busy_percent"] >= RINGS_BUSY)).any():
        raise ValueError("no GPU is busy at high power")
    judged = table[expected.notna()].assign(rings=expected.dropna().astype(bool))
    judged = judged.sort_values(["rings", "busy_percent"])
    lower = judged["power_watt"] / judged["limit_watt"] * OTHER_LIMIT_WATT
    elsewhere = judged.assign(limit_watt=OTHER_LIMIT_WATT, power_watt=lower)
    rows = [*judged.to_dict("records"), *elsewhere.to_dict("records")]
    problem = _wrong_row(answer, rows)
    for busy, power, reply in SCALES:

        def rescaled(percent: float, watt: float, limit: float, by=(busy, power)) -> Any:
            return answer(percent / by[0], watt / by[1], limit)

        if problem and not _wrong_row(rescaled, rows):
            return reply
    return problem


def _wrong_row(alarm: Alarm, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a reply about the first GPU for which the alarm is wrong, with sensors a little off."""
    factors = (1 - WOBBLE, 1.0, 1 + WOBBLE)
    for row in rows:
        busy, watt, limit = (row[name] for name in ("busy_percent", "power_watt", "limit_watt"))
        rings = [
            bool(alarm(min(100.0, busy * f), watt * g, limit)) for f, g in product(factors, factors)
        ]
        gpu = f"{row['run']}, GPU {row['device']} ({busy:.0f}% busy at {watt:.0f} of {limit:.0f} W)"
        if row["rings"] and not all(rings):
            return (
                f"Your alarm must ring for {gpu}, even if the sensor values are off by"
                f" {WOBBLE:.0%}. Set the power threshold midway between the recorded GPU's power draw"
                " when idle and at work, and the activity threshold below that of every spinning GPU."
            )
        if row["rings"] or not any(rings):
            continue
        if busy < QUIET_BUSY:
            return f"Your alarm rings for {gpu}, which isn't busy. Require more activity."
        return (
            f"Your alarm rings for {gpu}, which draws {watt / limit:.0%} of its limit. Require"
            " a smaller share of `limit_watt`."
        )
    return None


def _changed(run: str, *suspects: str) -> Callable[[Any], dict[str, Any]]:
    return lambda runs: {**open_suspects(runs), run: set(suspects)}


def _alarm(alarm: Alarm, reply: str) -> Mistake:
    return Mistake(lambda table: alarm, reply)


EXERCISES = (
    Exercise(
        id="01.1",
        answer=Property(suspects_problem, open_suspects),
        mistakes=(
            Mistake(_changed("example", "network"), "`example`: remove `network`"),
            Mistake(_changed("late-rank", "network"), "`late-rank`: remove `network`"),
            Mistake(_changed("late-rank", "host"), "`late-rank`: you ruled out `data`"),
            Mistake(_changed("small-batch", "network"), "`small-batch`: remove `network`"),
            Mistake(_changed(GENERATION, "host"), f"`{GENERATION}`: remove `host`"),
            Mistake(_changed("example", "cpu"), "`cpu` isn't a suspect"),
        ),
        hints=(
            "Start with all four suspects for each run, and remove those that the evidence"
            " contradicts.",
            "A single GPU doesn't wait for a network, and an idle GPU isn't the limit. Time that grows"
            " with the number of images can be due to the data, and other time is due to the host."
            " If one of several GPUs is late, consider that one.",
        ),
        insight=(
            "It is honest to keep two suspects. They tell you which two causes the next tool must"
            " distinguish."
        ),
    ),
    Exercise(
        id="01.2",
        answer=Property(
            alarm_problem,
            lambda table: lambda busy, power, limit: busy > 85 and power < 0.6 * limit,
        ),
        mistakes=(
            _alarm(lambda busy, power, limit: busy > 80, "Require a smaller share"),
            _alarm(lambda busy, power, limit: power < limit, "Require more activity"),
            _alarm(lambda busy, power, limit: busy > 0.8 and power < limit / 1.8, BUSY_FRACTION),
            _alarm(
                lambda busy, power, limit: busy > 85 and 100 * power / limit < 0.55, POWER_PERCENT
            ),
            _alarm(lambda busy, power, limit: busy > 85 and power < limit / 4, "must ring for"),
            _alarm(lambda busy, power, limit: busy > 99.5 and power < limit / 2, "must ring for"),
            _alarm(lambda busy, power, limit: busy > 85 and power < 400, "rings for"),
        ),
        hints=(
            "In the table below the figure, find the busy GPUs whose power draw is a small share of"
            " their limit.",
            "Combine two conditions with `and`: one for the activity, and one for the power draw as a"
            " share of the limit. Choose the power threshold between the recorded GPU's shares when"
            " idle and at work.",
        ),
        insight=(
            "The alarm shows that something is wrong, but it doesn't show the cause. The GPU may spin"
            " or run one small kernel after another."
        ),
    ),
)
