"""What parts of a model and lines of source code cost, in a trace of torch.profiler with Python
functions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from tidyprof.analyses.common import host_events, names_matching, result, start_and_end
from tidyprof.analyses.launches import launched_ns
from tidyprof.analyses.operators import self_time
from tidyprof.tables.contract import Profile
from tidyprof.tables.launches import innermost

_TIMES = {"calls": "int64", "total_ns": "int64", "self_ns": "int64", "device_ns": "int64"}

MODULE_COLUMNS = {"name": "string", **_TIMES}
"""Columns of `modules`."""

SOURCE_LINE_COLUMNS = {"source_line": "string", "operator": "string", **_TIMES}
"""Columns of `source_lines`."""

_MODULE = "nn.Module: "


def modules(profile: Profile) -> pd.DataFrame:
    """One row per module of the model (`Conv2d_3`: torch numbers the modules of a class), largest
    device_ns first.

    total_ns adds the host's time in its calls, self_ns leaves out the modules called within,
    device_ns adds the durations of the work on a GPU that it launched, with that of modules within.
    The backward pass runs outside of modules. All ranks together. No rows unless the trace was
    recorded with `with_stack=True` and read with `python_functions=True`.
    """
    calls = host_events(profile, "annotation")
    calls = calls[names_matching(calls, f"{_MODULE}.*")]
    names = calls["name"].astype(str).str.removeprefix(_MODULE)
    return _summed(profile, calls, {"name": names}, MODULE_COLUMNS)


def source_lines(profile: Profile, without: Sequence[str] = ("torch/",)) -> pd.DataFrame:
    """One row per source line and operator that it called, largest device_ns first.

    source_line is the innermost Python function around the operator, as `file(line): name` with the
    line of its definition; files whose names begin with one of `without` are passed by. total_ns
    adds the operator's time on the host, self_ns leaves out the operators within, device_ns adds
    the durations of the work on a GPU that it and the operators within launched. The backward pass
    has no Python functions around it: its source_line is <NA>. All ranks together. No rows unless
    the trace was recorded with `with_stack=True` and read with `python_functions=True`.
    """
    events = host_events(profile, ("operator", "annotation"))
    thread = (
        events.groupby(["rank", "process", "thread"], dropna=False, sort=False)
        .ngroup()
        .astype("int64")
    )
    passed_by = "".join(f"(?!{re.escape(start)})" for start in without)
    is_line = names_matching(events, rf"{passed_by}.+\(\d+\): .*")
    operators = events[(events["kind"] == "operator") & is_line.any()]
    lines = events[is_line & (events["kind"] == "annotation")]
    (outer, inner) = [
        (start_and_end(side), (thread[side.index],) * 2) for side in (lines, operators)
    ]
    names = np.append(lines["name"].astype(object), None)[innermost(*outer, *inner)]
    keys = {
        "source_line": pd.Series(names, operators.index, "string"),
        "operator": operators["name"].astype("string"),
    }
    return _summed(profile, operators, keys, SOURCE_LINE_COLUMNS)


def _summed(
    profile: Profile, calls: pd.DataFrame, keys: dict[str, pd.Series], columns: dict[str, str]
) -> pd.DataFrame:
    """The times of calls added up by keys."""
    times = {"calls": 1, "total_ns": calls["duration_ns"], "self_ns": self_time(calls)}
    table = pd.DataFrame(
        {**keys, **times, "device_ns": launched_ns(profile, calls)}, index=calls.index
    )
    table = table.groupby(list(keys), dropna=False, sort=True).sum().reset_index()
    return result(
        table.sort_values(["device_ns", "total_ns"], ascending=False, kind="stable"),
        columns,
        profile,
    )
