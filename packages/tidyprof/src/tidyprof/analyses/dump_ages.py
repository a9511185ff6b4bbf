"""Whether the dump of a rank is young enough to show that the rank didn't make a call."""

from __future__ import annotations

from typing import Any

import pandas as pd

_NEEDS_ALL = r"all_?reduce|all_?gather|reduce_scatter|all_?to_?all|barrier"
"""Collectives that no rank finishes before all ranks have called them. The root of a broadcast,
for example, can finish early.
"""

WRITING_S = 60
"""Time after a timeout within which a rank writes its dump, in seconds. PyTorch's watchdog waits
this long for the dumps (`waitTimeoutDumpInMilSec_ * 4` in ProcessGroupNCCL.cpp).
"""

CLOCK_SKEW_S = 0.1
"""Difference between the clocks of nodes and file systems, in seconds. NTP keeps it below that in
one network, and Linux sets the times of files to its last tick, at most 10 ms ago.
"""

NEXT_STEP = (
    "Take the dumps of all ranks at the same moment, after the timeout, and copy them with their"
    " times (cp -p). Until then, read the ranks' logs."
)


class DumpAges:
    """The ages of the dumps behind a table of `read_flight_recorder`.

    A dump contains no time of its own. It is at least as young as its newest call, and at least as
    old as its file, because a copy gets a later time.
    """

    def __init__(self, calls: pd.DataFrame) -> None:
        self._newest: dict[int, int] = calls.groupby("rank")["called_ns"].max().dropna().to_dict()
        # A file older than its own calls has the time of another clock.
        self._written = {
            rank: written
            for rank, written in calls.attrs["written_ns"].items()
            if _seconds(self._newest.get(rank, written), written) >= -CLOCK_SKEW_S
        }
        completed = calls["state"] == "completed"
        self._with_states = {*calls.loc[completed, "rank"]}
        # A timeout that ran out anywhere shows that the job hangs.
        self._ran_out_s = float("inf")
        newest = calls["record"] == calls.groupby("rank")["record"].transform("max")
        failed = calls["retired"] & calls["rank"].isin(self._with_states)
        ended = calls[(newest | failed) & ~completed].to_dict("records")
        ran_out_s = [self._timeout_s(one) for one in ended if self._timed_out(one["rank"], one)]
        self._ran_out_s = min(ran_out_s, default=self._ran_out_s)
        written = calls["rank"].map(self._written).astype("Int64")
        calls = calls.assign(age=written - calls["called_ns"])[~calls["message"]]
        calls = calls.sort_values(["number", "age"], ascending=[True, False])
        # Of the calls of one number, the one that its dump shows to be the oldest.
        first = calls.drop_duplicates(["group", "number"])
        self._first = {group: rows.to_dict("records") for group, rows in first.groupby("group")}
        of_all = calls[calls["call"].str.contains(_NEEDS_ALL, case=False)]
        self._completed = _newest_of_group(of_all[of_all["state"] == "completed"])
        # gloo's calls are retired when they end, also by an error. Calls from one line may have
        # been pending at once, but a rank that made a call from elsewhere went on.
        elsewhere = of_all["stack"] != of_all.groupby(["group", "rank"])["stack"].transform("last")
        silent = ~of_all["rank"].isin(self._with_states)
        self._went_on = _newest_of_group(of_all[silent & elsewhere & of_all["retired"]])
        last = calls.groupby(["group", "rank"])["number"].max()
        self._older = {
            rank: why
            for (group, rank), number in last.items()
            if (why := _finished(self._completed, rank, group, number))
        }

    def doubt(self, rank: int, group: str, last: int) -> str | None:
        """Return why the dump of a rank can't show that its last call in a group is number `last`
        (0: none), although other ranks made later ones; None if it can.
        """
        first = next((call for call in self._first.get(group, []) if call["number"] > last), None)
        if first is None:
            return None
        why = _finished(self._completed, rank, group, last)
        if not self._timed_out(rank, first):
            why = why or _finished(self._went_on, rank, group, last)
        return why or self.doubt_of_call(rank, first)

    def doubt_of_call(self, rank: int, call: dict[str, Any]) -> str | None:
        """Return why the dump of a rank can't show that it left the call of another rank, a row of
        the table, without an answer; None if it can.
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
            return f"{name} was {age_s:.3g} s old in its dump, and the timeout is {timeout_s:g} s"
        younger_s = _seconds(call["called_ns"], self._newest.get(rank, call["called_ns"]))
        # gloo's states don't show which calls are pending, so only a younger dump is evidence.
        # Equal times are no difference of two clocks.
        if call["rank"] in self._with_states or not younger_s or younger_s > CLOCK_SKEW_S:
            return None
        how = f"{abs(younger_s):.3g} s {'younger' if younger_s > 0 else 'older'}"
        return f"the newest call in rank {rank}'s dump is {how} than {name}, so it may be too old"

    def _timed_out(self, rank: int, call: dict[str, Any]) -> bool:
        """Return True if a call ran into its timeout, and the dump of `rank` is younger than it."""
        if call["rank"] in self._with_states:
            return bool(call["retired"]) and call["state"] != "completed"
        earliest_s = self._timeout_s(call) - CLOCK_SKEW_S
        latest_s = earliest_s + WRITING_S
        age_s = self._age_s(call["rank"], call)
        return (
            earliest_s <= age_s <= latest_s and -CLOCK_SKEW_S <= self._age_s(rank, call) <= latest_s
        )

    def _timeout_s(self, call: dict[str, Any]) -> float:
        """Return the timeout of a call, or a shorter one that ran out in the job, in seconds."""
        return float(min(self._ran_out_s, call["timeout_ms"] / 1e3))

    def _age_s(self, rank: int, call: dict[str, Any]) -> float:
        """Return how old a call was when the dump of `rank` was written, in seconds; nan if
        unknown.
        """
        if rank not in self._written or pd.isna(call["called_ns"]):
            return float("nan")
        return _seconds(call["called_ns"], self._written[rank])


def _seconds(start_ns: int, end_ns: int) -> float:
    return float(end_ns - start_ns) / 1e9


def _newest_of_group(calls: pd.DataFrame) -> dict[str, tuple[int, int]]:
    """Return group -> the highest number among these calls, and a rank that made it."""
    rows = calls.drop_duplicates("group", keep="last")
    pairs = zip(rows["number"], rows["rank"], strict=True)
    return dict(zip(rows["group"], pairs, strict=True))


def _finished(newest: dict[str, tuple[int, int]], rank: int, group: str, last: int) -> str | None:
    """Return in words that a call of `newest` is later than the last one of a rank, or None."""
    number, other = newest.get(group, (0, 0))
    if number <= last:
        return None
    return (
        f"rank {other} got past collective {number}, which it can't without rank {rank}. But rank"
        f" {rank}'s dump ends with collective {last}, so this dump is older"
    )
