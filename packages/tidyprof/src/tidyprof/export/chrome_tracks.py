"""Assignment of events to the rows of a Chrome trace, and the names of these rows. A row is a
thread of a process or a stream of a device.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.tables.contract import DEVICE_KINDS, Profile


@dataclass(frozen=True)
class Tracks:
    """The rows of a trace.

    The format supports only processes with threads. As in torch.profiler's traces, a device is
    therefore a process, and a stream is a thread of this process. The numbers come from the
    profile. If two rows would have the same number, for example with several ranks, new numbers
    replace the original numbers. The original numbers are then kept as in TraceLens's TraceFuse
    (`pid_raw`).

    - places: a table with one row per process or device. Its columns are the rank, `on_device`, the
      number of the process or device, and the pid (JSON).
    - events: a table with the process `pid` and the thread `tid` of each event as JSON. `pid_raw`
      is the original number of the process or device if a new number replaces it, and otherwise
      None.
    - states_rank: True if each event must contain its rank.
    """

    places: pd.DataFrame
    events: pd.DataFrame
    states_rank: bool

    def counter_pid(self, device: int | None) -> str:
        """Return the process that shows the counters of this device, as JSON."""
        if device is None:
            return json.dumps("counters of the host")
        same = (self.places["number"] == device).fillna(False)
        pids = self.places.loc[self.places["on_device"] & same, "pid"].tolist()
        # Counters don't state a rank, so with several ranks, the device number isn't unique.
        return pids[0] if len(pids) == 1 else json.dumps(f"counters of device {device}")

    def naming_lines(self) -> list[str]:
        """Return metadata events as JSON. The events name all rows and put each rank's host above
        its devices.
        """
        lines = []
        for order, row in enumerate(self.places.itertuples()):
            name = "GPU" if row.on_device else "process"
            name += "" if pd.isna(row.number) else f" {row.number}"
            facts = {
                "name": name if pd.isna(row.rank) else f"rank {row.rank}: {name}",
                "labels": "GPU" if row.on_device else "CPU",
                "sort_index": order,
            }
            for key, value in facts.items():
                lines.append(_metadata(f"process_{key}", row.pid, "0", key, value))
        threads = self.events[["pid", "tid", "on_device"]].drop_duplicates()
        for pid, tid, on_device in threads.itertuples(index=False):
            word = "stream" if on_device else "thread"
            lines.append(_metadata("thread_name", pid, tid, "name", f"{word} {json.loads(tid)}"))
        return lines


def find_tracks(profile: Profile) -> Tracks:
    """Return the rows that the events of a profile need."""
    events = profile.events
    on_device = events["device"].notna() | events["kind"].isin(DEVICE_KINDS)
    number = events["device"].astype("Int64").where(on_device, events["process"])
    keys = pd.DataFrame({"rank": events["rank"], "on_device": on_device, "number": number})
    place = keys.groupby(list(keys), dropna=False).ngroup().to_numpy(np.int64)
    places = keys.iloc[np.unique(place, return_index=True)[1]].reset_index(drop=True)
    several = places["rank"].nunique(dropna=False) > 1
    places["pid"] = _pids(places, several)
    pairs = list(zip(plain(places["number"]), places["pid"], strict=True))
    raw = [None if stated is None or pid == str(stated) else stated for stated, pid in pairs]
    threads = plain(events["stream"].where(on_device, events["thread"]))
    rows = pd.DataFrame(
        {
            "pid": places["pid"].to_numpy(object)[place],
            "tid": [json.dumps("unknown") if one is None else str(one) for one in threads],
            "pid_raw": np.array(raw, object)[place],
            "on_device": on_device.to_numpy(),
        },
        dtype=object,
    )
    moved = any(pid != str(stated) for stated, pid in pairs)
    return Tracks(places, rows, states_rank=bool(several or moved))


def _pids(places: pd.DataFrame, several_ranks: bool) -> list[str]:
    """Return a different process number for each row as JSON. If the profile has no number for a
    row, return a string.
    """
    on_device = places["on_device"]
    hosts, devices = (set(places.loc[mask, "number"].dropna()) for mask in (~on_device, on_device))
    # With several ranks, all rows get new numbers.
    hosts, taken = (hosts, hosts | devices) if not several_ranks else (set(), set())
    free = (number for number in count(1) if number not in taken)
    pids = []
    for row in places.itertuples():
        if pd.isna(row.number):
            owner = "" if pd.isna(row.rank) else f"rank {row.rank}: "
            pids.append(json.dumps(f"{owner}{'device' if row.on_device else 'host'}"))
        elif several_ranks or (row.on_device and row.number in hosts):
            pids.append(str(next(free)))
        else:
            pids.append(str(row.number))
    return pids


def plain(values: pd.Series) -> list[Any]:
    """Return the values as plain objects, with None for missing values."""
    return values.to_numpy(dtype=object, na_value=None).tolist()


def _metadata(kind: str, pid: str, tid: str, key: str, value: str | int) -> str:
    arguments = json.dumps({key: value})
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{arguments}}}'
