"""Whose host events belong together: a rank's, or a process's where several without a rank mark steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from tidyprof.analyses.common import Events, equal, of_rank
from tidyprof.tables.codes import ABSENT
from tidyprof.tables.contract import rows, whole_numbers

OWNER = {"rank": "Int32", "process": "Int64"}
"""Columns that say whose host events a row is about. process is <NA> where the rank alone tells them apart."""


def processes_apart(annotations: Events, marks: Events) -> np.ndarray:
    """The column `process` of OWNER for each annotation, int64; marks are those that steps begin with.

    It is ABSENT unless several processes without a rank have such marks: a process that marks no steps, as a loader's
    worker, belongs to the run of the one that does.
    """
    marking = np.unique(whole_numbers(of_rank(marks, None)["process"]))
    if (marking != ABSENT).sum() < 2:
        return np.full(len(annotations), ABSENT)
    return np.where(equal(annotations["rank"], None), whole_numbers(annotations["process"]), ABSENT)


def of_owner(events: Events, owner: Mapping[str, Any]) -> Events:
    """The rows of one owner, a mapping with the keys of OWNER: of its process if that is known, else of its rank."""
    own = of_rank(events, owner["rank"])
    if pd.isna(owner["process"]):
        return own
    return rows(own, equal(own["process"], owner["process"]))


def owners_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The owners in a table with their columns, in order."""
    found = dict.fromkeys(zip(*(table[column].tolist() for column in OWNER), strict=True))
    return [dict(zip(OWNER, owner, strict=True)) for owner in found]


def owner_of(place: Mapping[str, Any], events: Events, marked: pd.DataFrame) -> dict[str, Any]:
    """The owner of a device's events; place is its rank and device, marked the host's steps.

    Raises ValueError where several processes without a rank mark steps and the events are not all of one process.
    """
    rank = place["rank"]
    if (whole_numbers(of_rank(marked, rank)["process"]) == ABSENT).all():
        return {"rank": rank, "process": pd.NA}
    processes = np.unique(whole_numbers(events["process"]))
    if len(processes) > 1 or processes[0] == ABSENT:
        raise ValueError(
            f"several processes without a rank mark steps, and whose work device {place['device']} did is not clear: "
            "read the files of one process at a time, or make the profiler write ranks into their names"
        )
    return {"rank": rank, "process": int(processes[0])}
