"""The part of a trainer's profile that follows the warmup steps."""

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
    """Events that start in the steady steps.

    - profile: these events, including host ranges.
    - steps: number of steady steps per rank.
    - duration_ns: total time of these steps in ns, averaged over the ranks.

    Each rank's events come from the rank's own steady steps, so all ranks have the same
    collectives.
    """

    profile: Profile
    steps: int
    duration_ns: int

    @property
    def step_ns(self) -> float:
        """Mean step time in ns."""
        return self.duration_ns / self.steps

    @property
    def dispatches(self) -> pd.DataFrame:
        """Device events. Each row is a kernel, copy or fill."""
        return self.profile.device_events


def own_run(path: str | PathLike[str]) -> Profile:
    """Return the profile that a lesson's command wrote, with the origin `modeled` or `measured`.

    Raises ProfileReadError under the same conditions as `tidyprof.read`.
    """
    import tidyprof
    from tidyprof.tables.contract import Origin, recorded_on

    profile = tidyprof.read(path)
    if profile.origin == recorded_on(profile.meta):
        parts = (profile.meta.get("gpu"), "this machine", str(date.today()))
        profile.meta["origin"] = Origin("measured", ", ".join(part for part in parts if part))
    return profile


def steady_part(profile: Profile) -> SteadyPart:
    """Return the part of the run after the trainer's warmup steps.

    Raises ValueError if the profile doesn't contain step markers. Step markers need the
    trainer's --roctx and rocprofv3's --marker-trace.
    """
    import pandas as pd

    import tidyprof
    from tidyprof.analyses.common import of_rank

    found = tidyprof.steps(profile)
    if not len(found):
        raise ValueError(
            "the profile doesn't contain step markers. Run the trainer with --roctx and rocprofv3"
            " with --marker-trace"
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
    """Return one rank's number, the start and end of its steady steps in ns, and their count."""
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
    """Return a table with the mean step of each step budget, for `plots.step_budget`.

    The result has the columns of `tidyprof.step_budget` in ns. The column `step` contains the
    keys of `budgets`.
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
