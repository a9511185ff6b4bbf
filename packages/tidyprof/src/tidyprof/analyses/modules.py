"""What parts of a model cost, in a trace of torch.profiler with Python functions."""

from __future__ import annotations

import pandas as pd

from tidyprof.analyses.common import host_events, names_matching, result
from tidyprof.analyses.launches import launched_ns
from tidyprof.analyses.operators import self_time
from tidyprof.tables.contract import Profile

MODULE_COLUMNS = {
    "name": "string",
    "calls": "int64",
    "total_ns": "int64",
    "self_ns": "int64",
    "device_ns": "int64",
}
"""Columns of `modules`."""

_MODULE = "nn.Module: "


def modules(profile: Profile) -> pd.DataFrame:
    """One row per module of the model (`Conv2d_3`: torch numbers the modules of a class), largest
    device_ns first.

    total_ns adds up the host's time in its calls, self_ns leaves out the modules called within,
    device_ns adds up the durations of the work on a GPU that it launched, including modules within.
    The backward pass runs outside of modules. All ranks count together. There are no rows unless
    the trace was recorded with `with_stack=True` and read with `python_functions=True`.
    """
    calls = host_events(profile, "annotation")
    calls = calls[names_matching(calls, f"{_MODULE}.*")]
    table = pd.DataFrame(
        {
            "name": calls["name"].astype(str).str.removeprefix(_MODULE),
            "calls": 1,
            "total_ns": calls["duration_ns"],
            "self_ns": self_time(calls),
            "device_ns": launched_ns(profile, calls),
        },
        index=calls.index,
    )
    table = table.groupby("name").sum().reset_index()
    return result(
        table.sort_values(["device_ns", "total_ns"], ascending=False, kind="stable"),
        MODULE_COLUMNS,
        profile,
    )
