"""Checks that a rank's dump is recent enough to prove that the rank didn't make a call."""

from __future__ import annotations

from typing import Any

import pandas as pd

_NEEDS_ALL = r"all_?reduce|all_?gather|reduce_scatter|all_?to_?all|barrier"
"""Collectives that no rank can finish before all ranks have called them. A broadcast, for example,
isn't listed because its root can finish early.
"""

WRITING_S = 60
"""Time after a timeout within which a rank writes its dump, in seconds. PyTorch's watchdog waits
for the dumps for this long (`waitTimeoutDumpInMilSec_ * 4` in ProcessGroupNCCL.cpp).
"""

CLOCK_SKEW_S = 0.1
"""Assumed maximum difference between the clocks of nodes and file systems, in seconds. NTP keeps
the difference within one network below this value. Linux sets a file's time to the last clock tick,
which is at most 10 ms old.
"""

NEXT_STEP = (
    "Take the dumps of all ranks at the same time after the timeout. Use cp -p to copy them because"
    " it preserves their file times. Until then, read the ranks' logs."
)


class DumpAges:
    """The ages of the dumps that a table of `read_flight_recorder` comes from.

    A dump doesn't contain the time when it was written. However, the dump must have been written
    after its newest call and no later than its file time. A copy of a dump can only have a later
    file time.
    """

    def __init__(self, calls: pd.DataFrame) -> None:
        self._newest: dict[int, int] = calls.groupby("rank")["called_ns"].max().dropna().to_dict()
        # If a file is older than its own calls, its time comes from a different clock.
        self._written = {
            rank: written
            for rank, written in calls.attrs["written_ns"].items()
            if _seconds(self._newest.get(rank, written), written) >= -CLOCK_SKEW_S
        }
        completed = calls["state"] == "completed"
        self._with_states = {*calls.loc[completed, "rank"]}
        # A timeout that expired on any rank shows that the job hangs.
        self._ran_out_s = float("inf")
        newest = calls["record"] == calls.groupby("rank")["record"].transform("max")
        failed = calls["retired"] & calls["rank"].isin(self._with_states)
        ended = calls[(newest | failed) & ~completed].to_dict("records")
        ran_out_s = [self._timeout_s(one) for one in ended if self._timed_out(one["rank"], one)]
        self._ran_out_s = min(ran_out_s, default=self._ran_out_s)
        # Of the calls with one number, the call comes first that its dump shows to be the oldest.
        written = calls["rank"].map(self._written).astype("Int64")
        calls = calls.assign(age=written - calls["called_ns"])[~calls["message"]]
        self._calls = calls.sort_values(["number", "age"], ascending=[True, False])
        of_all = self._calls[self._calls["call"].str.contains(_NEEDS_ALL, case=False)]
        self._completed = of_all[of_all["state"] == "completed"]
        # gloo retires calls when they end, even if they end with an error. Calls from one line may
        # have been pending at the same time, but a rank that made a call from a different line has
        # continued.
        elsewhere = of_all["stack"] != of_all.groupby(["group", "rank"])["stack"].transform("last")
        silent = ~of_all["rank"].isin(self._with_states)
        self._went_on = of_all[silent & elsewhere & of_all["retired"]]
        self._older = {
            rank: why
            for (group, rank), number in calls.groupby(["group", "rank"])["number"].max().items()
            if (why := _finished(self._completed, rank, group, number))
        }

    def doubt(self, rank: int, group: str, last: int) -> str | None:
        """Return the reason why a rank's dump can't prove that call number `last` is the rank's
        last call in a group.

        A `last` of 0 means that the rank made no call in the group, although other ranks made later
        calls. If the dump can prove this, the result is None.
        """
        later = _later(self._calls, group, last)
        if not later:
            return None
        why = _finished(self._completed, rank, group, last)
        if not self._timed_out(rank, later[0]):
            why = why or _finished(self._went_on, rank, group, last)
        return why or self.doubt_of_call(rank, later[0])

    def doubt_of_call(self, rank: int, call: dict[str, Any]) -> str | None:
        """Return the reason why a rank's dump can't prove that the rank didn't answer another
        rank's call.

        - call: the table row of the other rank's call.

        If the dump can prove this, the result is None.
        """
        if rank in self._older or pd.isna(call["called_ns"]):
            return self._older.get(rank)
        name = f"rank {call['rank']}'s call {call['number']} ({call['call']})"
        before_s, age_s = -self._age_s(rank, call), self._age_s(call["rank"], call)
        if before_s > CLOCK_SKEW_S:
            return f"rank {rank}'s dump was written {before_s:.3g} s before {name}"
        if self._timed_out(rank, call):
            return None
        timeout_s = self._timeout_s(call)
        if age_s < timeout_s - CLOCK_SKEW_S:
            return f"{name} was {age_s:.3g} s old in its dump (timeout: {timeout_s:g} s)"
        younger_s = _seconds(call["called_ns"], self._newest.get(rank, call["called_ns"]))
        # gloo's states don't show which calls are pending, so only a younger dump is evidence.
        # Equal times don't show that one dump is younger.
        if call["rank"] in self._with_states or not younger_s or younger_s > CLOCK_SKEW_S:
            return None
        how = f"{abs(younger_s):.3g} s {'younger' if younger_s > 0 else 'older'}"
        return (
            f"the newest call in rank {rank}'s dump is {how} than {name}, so the dump may be too"
            " old"
        )

    def _timed_out(self, rank: int, call: dict[str, Any]) -> bool:
        """Return True if a call timed out. If the dumps contain no call states, the ages of both
        ranks' dumps must be consistent with the timeout.
        """
        if call["rank"] in self._with_states:
            return bool(call["retired"]) and call["state"] != "completed"
        earliest_s = self._timeout_s(call) - CLOCK_SKEW_S
        latest_s = earliest_s + WRITING_S
        age_s = self._age_s(call["rank"], call)
        return (
            earliest_s <= age_s <= latest_s and -CLOCK_SKEW_S <= self._age_s(rank, call) <= latest_s
        )

    def _timeout_s(self, call: dict[str, Any]) -> float:
        """Return the timeout of a call in seconds. If a shorter timeout expired in the job, return
        the shorter timeout.
        """
        return float(min(self._ran_out_s, call["timeout_ms"] / 1e3))

    def _age_s(self, rank: int, call: dict[str, Any]) -> float:
        """Return the age of a call in seconds when the dump of `rank` was written. The result is
        nan if the age is unknown.
        """
        if rank not in self._written or pd.isna(call["called_ns"]):
            return float("nan")
        return _seconds(call["called_ns"], self._written[rank])


def _seconds(start_ns: int, end_ns: int) -> float:
    return float(end_ns - start_ns) / 1e9


def _later(calls: pd.DataFrame, group: str, last: int) -> list[dict[str, Any]]:
    """Return the calls of a group that are later than call number `last`."""
    return calls[(calls["group"] == group) & (calls["number"] > last)].to_dict("records")


def _finished(calls: pd.DataFrame, rank: int, group: str, last: int) -> str | None:
    """Return a sentence if one of the calls is later than the rank's last call. Otherwise, return
    None.
    """
    later = _later(calls, group, last)
    if not later:
        return None
    return (
        f"rank {later[-1]['rank']} finished collective {later[-1]['number']}, which requires rank"
        f" {rank}. But rank {rank}'s dump ends with collective {last}, so the dump is older"
    )
