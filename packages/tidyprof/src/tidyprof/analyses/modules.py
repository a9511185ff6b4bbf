"""The time that each module of a model takes, from a torch.profiler trace with Python functions."""

from __future__ import annotations

import pandas as pd

from tidyprof.analyses.common import host_events, names_matching, result
from tidyprof.analyses.launches import launched_ns
from tidyprof.analyses.operators import self_time
from tidyprof.tables.contract import Profile

_MODULE = "nn.Module: "


def modules(profile: Profile) -> pd.DataFrame:
    """Return one row per module of the model. The module with the largest `device_ns` comes first.

    The names are PyTorch's numbered names, for example `Conv2d_3`. `total_ns` is the host time of
    the module's calls, and `self_ns` excludes the modules that it calls. `device_ns` is the total
    duration of the GPU work that the module and its nested modules launched. The backward pass
    isn't included because it runs outside of modules. The values combine all ranks. The table is
    empty if the trace wasn't recorded with `with_stack=True` or wasn't read with
    `python_functions=True`.
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
    table = table.sort_values(["device_ns", "total_ns"], ascending=False, kind="stable")
    return result(table, "modules", profile)
