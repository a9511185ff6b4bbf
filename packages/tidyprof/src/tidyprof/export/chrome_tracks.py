"""Assignment of events to the rows of a Chrome trace, and the names of these rows. A row is a
thread of a process or a stream of a device.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

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
    - place_row: the row in `places` for each event.
    - thread: the thread or stream of each event, as Int64.
    - states_rank: True if each event must contain its rank.
    """

    places: pd.DataFrame
    place_row: np.ndarray
    thread: pd.Series
    states_rank: bool

    def pid_texts(self) -> np.ndarray:
        """Return each event's process as JSON."""
        return self.places["pid"].to_numpy(object)[self.place_row]

    def tid_texts(self) -> np.ndarray:
        """Return each event's thread as JSON."""
        unknown = json.dumps("unknown")
        return np.array(
            [unknown if number is None else str(number) for number in _plain(self.thread)],
            dtype=object,
        )

    def true_numbers(self) -> np.ndarray:
        """Return the original number of each event's process or device if a new number replaces it.
        Otherwise, return None.
        """
        numbers = [
            number if number is not None and pid != str(number) else None
            for number, pid in zip(_plain(self.places["number"]), self.places["pid"], strict=True)
        ]
        return np.array(numbers, dtype=object)[self.place_row]

    def counter_pid(self, device: int | None) -> str:
        """Return the process that shows the counters of this device, as JSON."""
        rows = self.places[
            self.places["on_device"] & (self.places["number"] == device).fillna(False)
        ]
        if device is not None and len(rows) == 1:
            return rows["pid"].iloc[0]
        # Counters don't state a rank, so with several ranks, the device number isn't unique.
        return json.dumps(
            "counters of the host" if device is None else f"counters of device {device}"
        )

    def naming_lines(self) -> list[str]:
        """Return metadata events as JSON. The events name all rows and put each rank's host above
        its devices.
        """
        lines = []
        for order, row in enumerate(self.places.itertuples()):
            what = ("GPU" if row.on_device else "process") + (
                "" if pd.isna(row.number) else f" {row.number}"
            )
            name = what if pd.isna(row.rank) else f"rank {row.rank}: {what}"
            lines += [
                _metadata("process_name", row.pid, "0", name=name),
                _metadata("process_labels", row.pid, "0", labels="GPU" if row.on_device else "CPU"),
                _metadata("process_sort_index", row.pid, "0", sort_index=order),
            ]
        rows = pd.DataFrame(
            {"place": self.place_row, "pid": self.pid_texts(), "tid": self.tid_texts()}
        ).drop_duplicates()
        for place, pid, tid in rows.itertuples(index=False):
            word = "stream" if self.places["on_device"].iloc[place] else "thread"
            lines.append(_metadata("thread_name", pid, tid, name=f"{word} {json.loads(tid)}"))
        return lines


def find_tracks(profile: Profile) -> Tracks:
    """Return the rows that the events of a profile need."""
    events = profile.events
    on_device = events["device"].notna() | events["kind"].isin(DEVICE_KINDS)
    keys = pd.DataFrame(
        {
            "rank": events["rank"],
            "on_device": on_device,
            "number": events["device"].astype("Int64").where(on_device, events["process"]),
        }
    )
    place = keys.groupby(list(keys), dropna=False, sort=True).ngroup().to_numpy(np.int64)
    _, first = np.unique(place, return_index=True)
    places = keys.iloc[first].reset_index(drop=True)
    several = places["rank"].nunique(dropna=False) > 1
    places["pid"] = _pids(places, several)
    moved = any(
        pid != str(number)
        for pid, number in zip(places["pid"], _plain(places["number"]), strict=True)
    )
    thread = events["stream"].where(on_device, events["thread"])
    return Tracks(places, place, thread, states_rank=bool(several or moved))


def _pids(places: pd.DataFrame, several_ranks: bool) -> list[str]:
    """Return a different process number for each row as JSON. If the profile has no number for a
    row, return a string.
    """
    hosts = set(places.loc[~places["on_device"], "number"].dropna()) if not several_ranks else set()
    devices = set(places.loc[places["on_device"], "number"].dropna())
    free = (number for number in count(1) if several_ranks or number not in hosts | devices)
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


def _plain(values: pd.Series) -> Iterable[int | None]:
    return values.to_numpy(dtype=object, na_value=None).tolist()


def _metadata(kind: str, pid: str, tid: str, **arguments: str | int) -> str:
    return f'{{"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{json.dumps(arguments)}}}'
