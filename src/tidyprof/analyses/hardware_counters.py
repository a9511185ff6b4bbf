"""Hardware counters as columns: one row per dispatch, for formulas over several counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from tidyprof.tables.contract import Profile

DURATION = "duration_ns"
"""Stands for the dispatch's duration among the counters of a formula; a rate per ns is one in 10^9 per second."""

_KEY = ["device", "dispatch_id", "kernel"]


def holds_metrics(profile: Profile) -> bool:
    """Whether the counters were evaluated already, as in an analysis database: metrics by kernel, none by dispatch."""
    return "metric_id" in profile.counters


class DispatchCounters:
    """Counters of the dispatches of a profile, looked up by name.

    frame -- one row per dispatch: `device`, `dispatch_id`, `kernel`, `duration_ns` (float, NaN without times).
    A counter that several runs of the program counted counts as in the first of them, or as in the run that also
    counted another one (`with_run_of`).
    """

    def __init__(self, profile: Profile, names: Iterable[str], kernel: str | None = None) -> None:
        """names -- the counters that will be asked for; kernel -- only kernels with this in their name.

        Raises ValueError if the profile has no raw counters, or no kernel of that name.
        """
        if "dispatch_id" not in profile.counters:
            raise ValueError("the profile has no hardware counters: read the folder of rocprof-compute profile")
        counters = profile.counters
        known = counters[_KEY].drop_duplicates()
        if kernel is not None:
            known = known[_matching(known["kernel"], kernel)]
        timed = profile.events[["device", "dispatch_id", "name", DURATION]].rename(columns={"name": "kernel"})
        timed = timed.assign(kernel=timed["kernel"].astype(object))
        known = known.assign(kernel=known["kernel"].astype(object))
        self.frame = known.merge(timed, how="left", on=_KEY).astype({DURATION: "float64"}).reset_index(drop=True)
        wanted = counters[counters["name"].isin(list(names))]
        places = self.frame[_KEY].assign(row=np.arange(len(self.frame)))
        wanted = wanted.assign(kernel=wanted["kernel"].astype(object)).merge(places, on=_KEY)
        self._values = wanted[["row", "name", "replay_pass", "value"]].sort_values("replay_pass", kind="stable")
        self._present = set(wanted["name"].unique())

    def __len__(self) -> int:
        return len(self.frame)

    def missing(self, names: Iterable[str]) -> list[str]:
        """Which of these no dispatch has."""
        return [name for name in dict.fromkeys(names) if not self._has(name)]

    def _has(self, name: str) -> bool:
        return bool(self.frame[DURATION].notna().any()) if name == DURATION else name in self._present

    def column(self, name: str, with_run_of: str | None = None) -> np.ndarray:
        """One value per dispatch, NaN where it was not counted."""
        if name == DURATION:
            return self.frame[DURATION].to_numpy()
        found = self._values[self._values["name"] == name]
        first = found.drop_duplicates("row").set_index("row")["value"].reindex(range(len(self.frame)))
        if with_run_of is None or with_run_of == name:
            return first.to_numpy()
        runs = self._values.loc[self._values["name"] == with_run_of, ["row", "replay_pass"]]
        same = found.merge(runs, on=["row", "replay_pass"]).drop_duplicates("row").set_index("row")["value"]
        return same.reindex(range(len(self.frame))).fillna(first).to_numpy()

    def weighted_sum(self, weights: Mapping[str, float], with_run_of: str | None = None) -> np.ndarray:
        """Sum of weight times counter, one value per dispatch, NaN where one of them was not counted."""
        total = np.zeros(len(self.frame))
        for name, weight in weights.items():
            total = total + weight * self.column(name, with_run_of)
        return total


def _matching(kernels: pd.Series, text: str) -> np.ndarray:
    names = kernels.astype("category").cat
    found = [text in name for name in names.categories]
    if not any(found):
        shown = "; ".join(str(name)[:60] for name in names.categories[:5])
        raise ValueError(f"no kernel has {text!r} in its name; there are: {shown}")
    return np.array([*found, False])[names.codes]
