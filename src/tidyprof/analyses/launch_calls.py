"""Which call on the host launched each piece of device work, by correlation id."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tidyprof.analyses.common import launch_times
from tidyprof.tables.contract import DEVICE_KINDS


def launching_calls(events: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Positions of device events and, beside them, of the runtime calls that launched them.

    The call has the event's rank and correlation id, and its process where the event states one. Of several calls of
    one process it is the first. Where calls of several processes remain, it is the one that began at launch_ns; if
    none did, the event has no call.
    """
    key = ["rank", "correlation_id"]
    known = events[[*key, "process", "start_ns"]].assign(launch=launch_times(events), row=np.arange(len(events)))
    known = known[events["correlation_id"].notna()]
    kind = events["kind"][known.index]
    calls = known[kind == "runtime"].drop_duplicates([*key, "process"])
    pairs = known[kind.isin(DEVICE_KINDS)].merge(calls, on=key, suffixes=("", "_call"))
    possible = (pairs["process"] == pairs["process_call"]).fillna(True).astype(bool)
    pairs = pairs[possible]
    alone = ~pairs["row"].duplicated(keep=False)
    timed = (pairs["launch"] == pairs["start_ns_call"]).fillna(False).astype(bool)
    pairs = pairs[alone | timed].drop_duplicates("row")
    return pairs["row"].to_numpy(), pairs["row_call"].to_numpy()
