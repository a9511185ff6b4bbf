"""From a kernel's name to the operator that launched it: the step from a GPU's report back to PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from tidyprof.tables.contract import Profile


def kernel_operators(profile: Profile, *like: str) -> pd.DataFrame:
    """One row per pair of kernel and operator in a trace of torch.profiler, most calls first.

    Columns: name (as recorded), short_name, operator (the innermost one that was running at the launch), calls.
    like -- keep kernels whose name contains one of these texts, in any case; without a text all are kept. Kernels
    without a recorded launch have no operator and are left out. Raises ValueError if the file connects no kernel with
    an operator.
    """
    import numpy as np

    if "operator" not in profile.events:
        raise ValueError("this recording knows no operators: take a trace of torch.profiler")
    kernels = profile.events[profile.events["kind"].isin(("kernel", "collective"))]
    known = kernels.loc[kernels["operator"].notna(), ["name", "short_name", "operator"]].astype("str")
    if known.empty:
        raise ValueError("no kernel of this recording is connected with an operator: record CPU activity too")
    lower = known["name"].str.lower()
    chosen = np.logical_or.reduce([lower.str.contains(text.lower(), regex=False) for text in like or ("",)])
    table = known[chosen].groupby(["name", "short_name", "operator"]).size().rename("calls").reset_index()
    table = table.sort_values(["calls", "name"], ascending=[False, True], ignore_index=True)
    table.attrs["origin"] = profile.origin
    return table
