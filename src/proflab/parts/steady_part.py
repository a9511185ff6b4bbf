"""The steady part of a run of the course's trainer: the part of a recording after the warm-up
steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Profile


@dataclass(frozen=True)
class SteadyPart:
    """Events that start between the beginning of the first steady step and the end of the last one.

    profile     -- these events, host ranges included.
    steps       -- number of steady steps of a rank.
    duration_ns -- their time in ns; with several ranks the mean.

    Each rank is cut at its own steps, so that all have the same collectives.
    """

    profile: Profile
    steps: int
    duration_ns: int

    @property
    def step_ns(self) -> float:
        """Mean length of a step in ns."""
        return self.duration_ns / self.steps

    @property
    def dispatches(self) -> pd.DataFrame:
        """One row for each event on a device: kernels, and the copies and fills that rocprofv3
        lists among them.
        """
        return self.profile.device_events


def own_run(path: str | PathLike[str]) -> Profile:
    """The recording that a command of a lesson wrote here: `modeled` if the player wrote it, else
    measured on this machine.

    Raises ProfileReadError as `tidyprof.read` does.
    """
    import tidyprof
    from tidyprof.tables.contract import Origin, recorded_on

    profile = tidyprof.read(path)
    if profile.origin == recorded_on(profile.meta):
        parts = (profile.meta.get("gpu"), "this machine", str(date.today()))
        profile.meta["origin"] = Origin("measured", ", ".join(part for part in parts if part))
    return profile


def steady_part(profile: Profile) -> SteadyPart:
    """The run without its warm-up, whose length follows the trainer's own rule.

    Raises ValueError for a recording without marked steps: the trainer marks them with --roctx,
    rocprofv3 records the marks with --marker-trace.
    """
    import pandas as pd

    import tidyprof
    from tidyprof.analyses.common import of_rank

    found = tidyprof.steps(profile)
    if not len(found):
        raise ValueError(
            "no steps are marked: run the trainer with --roctx and rocprofv3 with --marker-trace"
        )
    windows = [_steady_window(own) for _, own in found.groupby("rank", dropna=False)]
    parts = [
        of_rank(profile.events, rank).query("@begin <= start_ns < @end")
        for rank, begin, end, _ in windows
    ]
    events = pd.concat(parts).sort_values("start_ns", kind="stable").reset_index(drop=True)
    length = sum(end - begin for _, begin, end, _ in windows) // len(windows)
    return SteadyPart(
        tidyprof.Profile(events, meta=profile.meta), min(steps for *_, steps in windows), length
    )


def _steady_window(own: pd.DataFrame) -> tuple[object, int, int, int]:
    """Of one rank's steps: the rank, begin and end in ns of the steps after the warm-up, and the
    number of these.
    """
    from cifar_train.config import TrainConfig

    steady = own.iloc[TrainConfig().warmup_for(len(own)) :]
    last = steady.iloc[-1]
    return (
        last["rank"],
        int(steady["start_ns"].iloc[0]),
        int(last["start_ns"] + last["duration_ns"]),
        len(steady),
    )


def mean_steps(budgets: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row for each table of `tidyprof.step_budget`: its mean step, named by its key, ready for
    `plots.step_budget`.

    Columns as in `step_budget`, times in ns as float; `step` is the key.
    """
    import pandas as pd

    place = ["rank", "device", "step"]
    rows = [budget.drop(columns=place).mean() for budget in budgets.values()]
    table = (
        pd.DataFrame(rows)
        .assign(step=list(budgets), rank=pd.NA, device=pd.NA)
        .reset_index(drop=True)
    )
    table.attrs["origin"] = "; ".join(
        dict.fromkeys(str(budget.attrs["origin"]) for budget in budgets.values())
    )
    return table[[*place, *rows[0].index]]
