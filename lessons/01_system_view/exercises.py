"""Exercises of lesson 01, is the GPU even the problem? Most take watched runs, see
`proflab.parts.watched_runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from proflab.display import near
from proflab.exercises import Exercise, Mistake, Property

if TYPE_CHECKING:
    import pandas as pd

    from proflab.parts.watched_runs import WatchedRun

VERDICTS = ("data", "host", "device", "network")

ONE_LATE_RANK = frozenset({"data", "host"})
"""What stays open for the rank that the others wait for: it sleeps before its forward pass, by
construction, and a monitor can't tell whether it waits for data or for its processor.
"""

GENERATION, WINDOW = "text generation", "first window"
"""The recorded run: busy all the time and near its power limit, with one GPU. And the whole of the
first window in which a model is in its memory: most of that goes by with loading.
"""

HOST_SHARE = 0.9
"""From this share on the part of a step that does not depend on its images counts as all of it."""

LOADED_BYTES = 1e9
"""More than this on the GPU means that a model is there: idle GPUs of the recording hold a third of
it.
"""

RINGS_BUSY, RINGS_POWER = 88, 0.5
QUIET_BUSY, QUIET_POWER = 75, 0.7
"""Any alarm has to ring from RINGS_BUSY percent on below RINGS_POWER of the power limit, and must
not below QUIET_BUSY or above QUIET_POWER. In between it may do either.
"""

OTHER_LIMIT_WATT = 300.0
"""Each GPU is tried once more with this power limit, that of an MI210, at the same share of it: an
alarm in watts, such as `power_watt < 400`, would always ring there.
"""

WOBBLE_PERCENT = 2.0
"""An alarm must stay right if busy and power move by this much: sensors are not exact."""


def step_ms(run: WatchedRun) -> float:
    """Milliseconds of a step."""
    return 1e3 * run.batch_size / run.images_per_second


def fixed_share(case: WatchedRun, small: WatchedRun) -> float:
    """The share of the small batch's step that does not depend on its images, by a straight line
    through both runs.
    """
    per_image = (step_ms(case) - step_ms(small)) / (case.batch_size - small.batch_size)
    return 1 - per_image * small.batch_size / step_ms(small)


def window_busy(samples: pd.DataFrame) -> float:
    """Median activity, in percent, over the first window with a model in memory.

    samples -- columns gpu_use_percent, vram_used_bytes and window, as the lesson numbers them.
    """
    loaded = samples[samples["vram_used_bytes"] > LOADED_BYTES]
    return float(
        loaded.loc[loaded["window"] == loaded["window"].iloc[0], "gpu_use_percent"].median()
    )


def open_verdicts(runs: Sequence[Any]) -> dict[str, frozenset[str]]:
    """What stays open for each run (case, small batch, late rank), and for the recorded GPU: at
    full activity, and in the first window of its log. `runs` ends with that log, see `window_busy`.
    """
    case, small, _, log = runs
    fixed = fixed_share(case, small) >= HOST_SHARE
    return {
        "case": frozenset({"device"} if _busy(case) else {"data", "host"}),
        "small-batch": frozenset(
            {"device"} if _busy(small) else {"host"} if fixed else {"data", "host"}
        ),
        "late-rank": ONE_LATE_RANK,
        GENERATION: frozenset({"device"}),
        WINDOW: frozenset({"device"} if window_busy(log) >= QUIET_BUSY else {"data", "host"}),
    }


def verdict_problem(answer: Any, runs: Sequence[Any]) -> str | None:
    """What is wrong with a dictionary of run and open verdicts (one text or several), None if the
    runs say so.
    """
    if not isinstance(answer, Mapping):
        return (
            f"A dictionary of runs and open verdicts is asked, this is a {type(answer).__name__}."
        )
    for run, right in open_verdicts(runs).items():
        if run not in answer:
            return f"`{run}` is missing: {near(run, map(str, answer))}"
        texts = [answer[run]] if isinstance(answer[run], str) else answer[run]
        given = {str(text).strip().casefold() for text in texts}
        if unknown := sorted(given - set(VERDICTS)):
            return f"`{unknown[0]}` is no verdict: {near(unknown[0], VERDICTS)}"
        if excluded := sorted(given - right):
            return f"{run}: not {excluded[0]}. {_against(run, excluded[0], runs)}"
        if left := sorted(right - given):
            return (
                f"{run}: you rule out {left[0]}, and nothing that you saw does. {_still_open(run)}"
            )
    return None


def _against(run: str, verdict: str, runs: Sequence[Any]) -> str:
    """What speaks against a verdict on a run."""
    if run == "late-rank":
        return {
            "network": (
                "All GPUs but one spin: it is the one that they wait for. A slow network keeps all"
                " spinning."
            ),
            "device": "The GPU that the others wait for is idle for most of the time.",
        }[verdict]
    if verdict == "network":
        return "It has one GPU, which has nobody to wait for."
    if run == GENERATION:
        return "The GPU is busy all the time, near its power limit: nothing keeps it waiting."
    if run == WINDOW:
        return (
            f"Its median activity is {window_busy(runs[3]):.0f} % in that window. A model in memory"
            " is not yet at work."
        )
    one = runs[0] if run == "case" else runs[1]
    if verdict == "device":
        idle = 100 - one.table["busy_percent"].iloc[0]
        return f"The GPU is idle for {idle:.0f} % of the time: something keeps it waiting."
    return (
        "The GPU is hardly ever idle."
        if _busy(one)
        else "Next to nothing of this step depends on its images."
    )


def _still_open(run: str) -> str:
    what = "that rank" if run == "late-rank" else "the GPU"
    return f"A monitor of GPUs can't tell whether {what} waits for its data or for the program."


def _busy(run: WatchedRun) -> bool:
    return bool(run.table["busy_percent"].iloc[0] >= QUIET_BUSY)


def must_ring(table: pd.DataFrame) -> pd.Series:
    """Whether an alarm has to ring for each row of a table of GPUs: True, False, or <NA> where it
    may do either.

    Rows without power or without a limit are <NA> too.
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


def alarm_problem(answer: Any, table: pd.DataFrame) -> str | None:
    """What is wrong with an alarm, None if it rings for each GPU that is busy at low power and not
    for the others.

    Raises ValueError for a table without such a GPU, or without one that is as busy and works hard.
    """
    if not callable(answer):
        return (
            "A function of busy_percent, power_watt and limit_watt is asked, this is a"
            f" {type(answer).__name__}."
        )
    expected = must_ring(table)
    if not expected.any():
        raise ValueError("no GPU of these runs is busy at low power, or no power limit is known")
    if not (~expected & (table["busy_percent"] >= RINGS_BUSY)).any():
        raise ValueError(
            "no GPU of these runs is busy at high power: what looks busy at low power has no"
            " counterpart"
        )
    judged = (
        table[expected.notna()]
        .assign(rings=expected.dropna().astype(bool))
        .sort_values(["rings", "busy_percent"])
    )
    lower = judged["power_watt"] / judged["limit_watt"] * OTHER_LIMIT_WATT
    elsewhere = judged.assign(limit_watt=OTHER_LIMIT_WATT, power_watt=lower, other_limit=True)
    for row in [
        *judged.assign(other_limit=False).to_dict("records"),
        *elsewhere.to_dict("records"),
    ]:
        rings = [bool(answer(*reading, row["limit_watt"])) for reading in _readings(row)]
        if not row["rings"] and any(rings):
            return f"It rings for {_where(row)}. {_why_quiet(row)}"
        if row["rings"] and not all(rings):
            off = (
                ""
                if not any(rings)
                else f" It does with other readings: let it ring {WOBBLE_PERCENT:.0f} % earlier."
            )
            return f"It must ring for {_where(row)}.{off} {LINE_BETWEEN}"
    return None


LINE_BETWEEN = (
    "Draw the line for power midway between the recorded GPU's idle power and its power at work,"
    " and that for busy below what every spinning GPU shows."
)


def _where(row: Mapping[str, Any]) -> str:
    limit = (
        f", were its power limit {row['limit_watt']:.0f} W: use `limit_watt`" * row["other_limit"]
    )
    return (
        f"{row['run']}, GPU {row['device']} ({row['busy_percent']:.0f} % at {row['power_watt']:.0f}"
        f" W{limit})"
    )


def _why_quiet(row: Mapping[str, Any]) -> str:
    """Why an alarm must not ring for a GPU."""
    if row["busy_percent"] < QUIET_BUSY:
        return (
            "That GPU does not look busy. Low power alone is no alarm: ask for a busy GPU as well."
        )
    share = 100 * row["power_watt"] / row["limit_watt"]
    return (
        f"That GPU is as busy, but takes {share:.0f} % of its power limit: it works. Busy alone is"
        " no alarm."
    )


def _readings(row: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Busy and power of a GPU as sensors that are a little off would show them."""
    factors = (1 - WOBBLE_PERCENT / 100, 1.0, 1 + WOBBLE_PERCENT / 100)
    return [
        (min(100.0, row["busy_percent"] * f), row["power_watt"] * g)
        for f in factors
        for g in factors
    ]


def _changed(run: str, *verdicts: str) -> Callable[[Any], dict[str, Any]]:
    return lambda runs: {**open_verdicts(runs), run: set(verdicts)}


def _wrong_for_the_case(runs: Sequence[Any]) -> str:
    """The tempting verdict: the device, since the step got shorter; the data, where the GPU is
    busy.
    """
    return "data" if _busy(runs[0]) else "device"


def _convicted(runs: Sequence[Any]) -> dict[str, Any]:
    return {**open_verdicts(runs), "case": {_wrong_for_the_case(runs)}}


EXERCISES = (
    Exercise(
        id="01.1",
        answer=Property(verdict_problem, open_verdicts),
        mistakes=(
            Mistake(_convicted, lambda runs: f"case: not {_wrong_for_the_case(runs)}. "),
            Mistake(_changed("case", "network"), "case: not network. It has one GPU"),
            Mistake(
                _changed("late-rank", "network"), "late-rank: not network. All GPUs but one spin"
            ),
            Mistake(_changed("late-rank", "host"), "late-rank: you rule out data"),
            Mistake(_changed("small-batch", "network"), "small-batch: not network"),
            Mistake(
                _changed(GENERATION, "host"),
                f"{GENERATION}: not host. The GPU is busy all the time",
            ),
            Mistake(_changed(WINDOW, "device"), f"{WINDOW}: not device. Its median activity is"),
            Mistake(_changed(WINDOW, "data"), f"{WINDOW}: you rule out host"),
            Mistake(_changed("case", "cpu"), "`cpu` is no verdict"),
        ),
        hints=(
            (
                "For each run begin with all four, and cross out what something that you saw speaks"
                " against."
            ),
            (
                "One GPU has no network to wait for. An idle GPU is not the limit. What grows with"
                " the images may be data; what doesn't is the host's. Where one GPU of several is"
                " late, judge that one."
            ),
        ),
        insight=(
            "Two verdicts that stay open are an honest result. They say what the next tool has to"
            " tell apart."
        ),
    ),
    Exercise(
        id="01.2",
        answer=Property(
            alarm_problem,
            lambda table: lambda busy, power, limit: busy > 85 and power < 0.6 * limit,
        ),
        mistakes=(
            Mistake(
                lambda table: lambda busy, power, limit: busy > 80,
                "it works. Busy alone is no alarm.",
            ),
            Mistake(
                lambda table: lambda busy, power, limit: busy > 85,
                "it works. Busy alone is no alarm.",
            ),
            Mistake(
                lambda table: lambda busy, power, limit: power < limit / 2,
                "Low power alone is no alarm",
            ),
            Mistake(
                lambda table: lambda busy, power, limit: power < limit,
                "Low power alone is no alarm",
            ),
            Mistake(
                lambda table: lambda busy, power, limit: busy > 85 and power < limit / 4,
                "It must ring for",
            ),
            Mistake(
                lambda table: lambda busy, power, limit: busy > 99.5 and power < limit / 2,
                "It must ring for",
            ),
            Mistake(
                lambda table: lambda busy, power, limit: busy > 85 and power < 400, "It rings for"
            ),
        ),
        hints=(
            (
                "Look at the table below the map: which of the busy GPUs takes little of its power"
                " limit?"
            ),
            (
                "Two conditions, joined by `and`: one on busy, one on power as a share of the"
                " limit. The recorded GPU, idle and at work, shows where the line for power"
                " belongs."
            ),
        ),
        insight=(
            "It says that something is wrong, not what: spinning, or one small kernel after"
            " another."
        ),
    ),
)
