"""What holds the device itself back, where counters tell: its power cap, and the roof over its longest kernel."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from tidyprof.analyses.roofline import roofline_ceilings, roofline_points
from tidyprof.tables.contract import Profile, is_one_of

AT_CAP = 0.97
"""Share of the power cap from which a sample counts as capped: a capped socket hovers closely below its limit."""

BUSY_PERCENT = 90.0
"""Samples of a device that is less busy say nothing about what limits it."""


def power_samples(profile: Profile) -> pd.DataFrame:
    """The samples of a profile that `capped_share` looks at."""
    chosen = is_one_of(profile.counters["name"], ["power", "power_cap", "gpu_busy"])
    table = {column: profile.counters[column].array[chosen] for column in ("time_ns", "device", "name", "value")}
    return pd.DataFrame(table | {"name": table["name"].astype(str)})


def capped_share(tables: Iterable[pd.DataFrame]) -> float | None:
    """Share of samples of busy devices with the power at its cap, the largest over devices; None if unknown.

    Takes tables of `power_samples`. The cap is the device's `power_cap`, in whichever of them it is.
    """
    filled = [table for table in tables if len(table)]
    if not filled:
        return None
    samples = pd.concat(filled)
    wide = samples.pivot_table(index=["device", "time_ns"], columns="name", values="value", aggfunc="last")
    if not {"power", "power_cap"} <= set(wide.columns):
        return None
    cap = wide.groupby("device")["power_cap"].transform("max")
    known = wide["power"].notna() & cap.notna()
    if "gpu_busy" in wide:
        known &= wide["gpu_busy"] >= BUSY_PERCENT
    capped = (wide["power"] >= AT_CAP * cap)[known]
    return float(capped.groupby("device").mean().max()) if len(capped) else None


def roof_share(profile: Profile) -> float | None:
    """What the kernel with the most time reaches of the roof, memory's or arithmetic's, that it is nearer to.

    None if unknown.
    Operations, bytes and roofs are those of `roofline_points` and `roofline_ceilings`.
    """
    try:
        points, ceilings = roofline_points(profile), roofline_ceilings(profile)
    except ValueError:
        return None
    roofs = ceilings.set_index("name")["value"]
    for point in points.head(1).to_dict("records"):
        rates = {"HBM": point["hbm_bytes"], point["main_type"]: point["flops"]}
        reached = [1e9 * amount / point["duration_ns"] / roofs[name] for name, amount in rates.items()
                   if name in roofs.index and not pd.isna([amount, point["duration_ns"]]).any()]  # fmt: skip
        return float(max(reached)) if reached else None
    return None
